/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Next hops: cached answers of the kernel's own routing. An answer of another
 * generation than the present one is none. Anything but a plain answer is left to
 * the kernel, and so to the engine. The set of programs says, by judge_destination,
 * which IPv6 destinations it sends to at all.
 */

#ifndef ISTHMUS_NEXTHOP_H
#define ISTHMUS_NEXTHOP_H

#include "budget.h"
#include "parse.h"

/* Notes a neighbour, which no traffic of ours confirms to the kernel. */
INLINE void note_neighbour(const struct bpf_fib_lookup *f, u64 now)
{
	struct neighbour n = {.family = f->family, .ifindex = f->ifindex};
	if (f->family == FAMILY_IPV4)
		__builtin_memcpy(n.address, &f->ipv4_dst, 4);
	else
		__builtin_memcpy(n.address, f->ipv6_dst, 16);
	bpf_map_update_elem(&neighbours, &n, &now, BPF_ANY);
}

/* The addresses of an Ethernet header, in words; they lie on the stack at odd places. */
INLINE u64 first_macs(const struct bpf_fib_lookup *f)
{
	return (u64)U16_AT(f->dmac, 0) | (u64)U16_AT(f->dmac, 2) << 16 | (u64)U16_AT(f->dmac, 4) << 32 |
	       (u64)U16_AT(f->smac, 0) << 48;
}

INLINE u32 last_macs(const struct bpf_fib_lookup *f) { return U16_AT(f->smac, 2) | (u32)U16_AT(f->smac, 4) << 16; }

/*
 * Asks the kernel for the next hop of an IPv4 destination. Its MTU may be one that a Datagram
 * Too Big has taught for this destination alone (RFC 1191 3), which anybody may have sent. So
 * a class takes over only an answer with the MTU of the device. Another one lies in the place
 * of the class under the destination's own key, until somebody else of the class asks.
 */
NOINLINE int fill4(void *ctx, struct nexthop4 *hop, u32 key, be32 destination)
{
	if (!hop)
		return 0;
	u64 generation = READ_ONCE(settings.generation);
	/*
	 * Back to front it is the number of no class: that would be of 0.0.0.0/8, where nobody is.
	 * What looks like a class and is the key of 192.0.0.0, say, does no harm in its own place.
	 */
	u32 own = key < HOPS4_CLASSES ? __builtin_bswap32(destination) : destination;
	if (hop->key == own && hop->generation == generation)
		return 1;
	struct bpf_fib_lookup f = {
		.family = FAMILY_IPV4,
		.l4_protocol = PROTO_UDP,
		.tot_len = 1, /* asks for the MTU */
		.ifindex = settings.tun,
		.ipv4_src = settings.source,
		.ipv4_dst = destination,
	};
	u32 flags = settings.source || !fixed.fib_source ? 0 : FIB_LOOKUP_SOURCE;
	hop->generation = 0;
	if (bpf_fib_lookup(ctx, &f, sizeof f, flags) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	be32 source = flags ? f.ipv4_src : settings.source;
	struct device *d = device_at(f.ifindex);
	if (!source || d->ifindex != f.ifindex)
		return 0;
	note_neighbour(&f, bpf_ktime_get_coarse_ns());
	hop->key = !d->mtu || f.mtu_result == d->mtu ? key : own;
	hop->source = source;
	hop->mac0 = first_macs(&f);
	hop->mac1 = last_macs(&f);
	hop->ifindex = f.ifindex;
	hop->mtu = f.mtu_result;
	hop->flags = d->flags;
	hop->generation = generation;
	return 1;
}

/* The next hop of an IPv4 destination, if there is one that this hook can use. */
INLINE struct nexthop4 *find_hop4(void *ctx, be32 destination, u32 hook_flag)
{
	u32 prefix = FROM_BE16((u16)destination);
	HIDE(prefix); /* to old verifiers a swap is anything */
	u32 class = shared.routes4[prefix & 0xffff];
	u32 key = class, index = class;
	if (!class) {
		key = destination;
		index = HOPS4_CLASSES + (scatter(destination) >> 32 & (HOPS4 - 1));
	}
	u32 block = index / HOPS4_BLOCK;
	struct nexthops4 *hops = bpf_map_lookup_elem(&hops4, &block);
	if (UNLIKELY(!hops))
		return 0;
	struct nexthop4 *hop = &hops->hop[index % HOPS4_BLOCK];
	if (UNLIKELY(hop->generation != READ_ONCE(settings.generation) || hop->key != key)) {
		if (!fill4(ctx, hop, key, destination))
			return 0;
	}
	return hop->flags & hook_flag ? hop : 0;
}

/* Asks the kernel for the next hop of an IPv6 destination. */
NOINLINE int fill6(void *ctx, struct nexthop6 *hop, const struct address6 *source, const struct address6 *destination)
{
	if (!hop || !source || !destination)
		return 0;
	struct bpf_fib_lookup f = {
		.family = FAMILY_IPV6,
		.tot_len = 1,
		.ifindex = settings.tun,
	};
	__builtin_memcpy(f.ipv6_src, source, 16);
	__builtin_memcpy(f.ipv6_dst, destination, 16);
	if (bpf_fib_lookup(ctx, &f, sizeof f, 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	struct device *d = device_at(f.ifindex);
	if (d->ifindex != f.ifindex)
		return 0;
	note_neighbour(&f, bpf_ktime_get_coarse_ns());
	hop->key = *destination;
	hop->mac0 = first_macs(&f);
	hop->mac1 = last_macs(&f);
	hop->ifindex = f.ifindex;
	hop->mtu = f.mtu_result;
	hop->flags = d->flags;
	return 1;
}

/* Judges a destination and finds its next hop. */
NOINLINE int learn6(void *ctx, struct nexthop6 *hop, const struct address6 *source, const struct address6 *destination)
{
	if (!hop || !source || !destination)
		return REASON_NO_NEXT_HOP;
	/* Read first: what is judged by settings that change meanwhile is not kept. */
	u64 generation = READ_ONCE(settings.generation);
	hop->generation = 0;
	u32 reason = judge_destination(destination);
	if (reason != REASON_TO_IPV6)
		return reason;
	if (!fill6(ctx, hop, source, destination))
		return REASON_NO_NEXT_HOP;
	hop->generation = generation;
	return REASON_TO_IPV6;
}

/*
 * The next hop of an IPv6 destination, that this hook can use. One that is there was
 * allowed when it was put there.
 */
INLINE u32 find_hop6(void *ctx, const struct address6 *source, const struct address6 *destination, u32 hook_flag,
		     struct nexthop6 **out)
{
	u64 h = scatter(destination->word[0] + destination->word[1] * 0xc2b2ae3d27d4eb4f);
	u32 block = h >> 32 & (HOPS6 / HOPS6_BLOCK - 1);
	struct nexthops6 *hops = bpf_map_lookup_elem(&hops6, &block);
	if (UNLIKELY(!hops))
		return REASON_NO_NEXT_HOP;
	struct nexthop6 *hop = &hops->hop[h >> 48 & (HOPS6_BLOCK - 1)];
	if (UNLIKELY(hop->generation != READ_ONCE(settings.generation) ||
		     hop->key.word[0] != destination->word[0] || hop->key.word[1] != destination->word[1])) {
		u32 reason = learn6(ctx, hop, source, destination);
		if (reason != REASON_TO_IPV6)
			return reason;
	}
	*out = hop;
	return hop->flags & hook_flag ? REASON_TO_IPV6 : REASON_NO_NEXT_HOP;
}

#endif
