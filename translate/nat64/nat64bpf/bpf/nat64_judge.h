/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What becomes of a packet: first what it takes to judge its form, then its next hop, as
 * far as that is known, and its session last, so that none is made for a packet that
 * the engine gets. What is not fully handled here is punted. Nothing here changes a
 * packet.
 */

#ifndef ISTHMUS_NAT64_JUDGE_H
#define ISTHMUS_NAT64_JUDGE_H

#include "nat64_pool.h"
#include "translate_judge.h"

/* Where packets to IPv6 hosts go, for nexthop.h: any host that a binding names. */
INLINE u32 judge_destination(const struct address6 *a)
{
	return is_illegal6((const u32 *)a) ? REASON_ILLEGAL_ADDRESS : REASON_TO6_FORWARDED;
}

#include "nexthop.h"
#include "nat64_flow.h"

/*
 * Judges the header of a packet to pool6, by the prefix of that number, and finds its
 * IPv4 host.
 */
INLINE u32 judge_header6(const struct ip6 *p, u32 prefix, const struct arrival *in, u32 *size, be32 *host)
{
	if (UNLIKELY(is_asleep(in)))
		return REASON_ASLEEP;
	*size = IPV6_LEN + FROM_BE16(p->length);
	/* A longer one has no room in an IPv4 packet. */
	if (UNLIKELY(p->version >> 4 != 6 || *size > in->length || *size > 65535 + IPV6_LEN - IPV4_LEN))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(p->hops <= 1))
		return REASON_HOP_LIMIT;
	if (UNLIKELY(is_illegal6(p->source)))
		return REASON_ILLEGAL_ADDRESS;
	if (UNLIKELY(prefix_of(U64_AT(p->source, 0), U64_AT(p->source, 8)) != NO_PREFIX))
		return REASON_SOURCE_IN_POOL6;
	*host = extract(prefix, U64_AT(p->destination, 0), U64_AT(p->destination, 8));
	u32 bad = judge_peer4(*host, prefix);
	if (UNLIKELY(bad))
		return bad;
	if (UNLIKELY(is_any_pool4(*host)))
		return REASON_HAIRPIN;
	return REASON_TO4_FORWARDED;
}

/* Judges a packet to pool6 that is no ICMP error. */
INLINE u32 judge_to4(void *ctx, const struct ip6 *p, void *end, u32 prefix, const struct arrival *in, struct to4 *out)
{
	struct content *c = &out->content;
	be32 host;
	u32 reason = judge_header6(p, prefix, in, &out->size, &host);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	reason = read_content6(p, end, c);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	if (UNLIKELY(is_ftp(c->destination, c->transport)))
		return REASON_DETOUR;
	out->hop = find_hop4(ctx, host, HOOK_DEVICE(in->hook));
	if (UNLIKELY(!out->hop))
		return REASON_NO_NEXT_HOP;
	u32 segment = in->segment ? in->segment : out->size;
	if (UNLIKELY(segment - (IPV6_LEN - IPV4_LEN) > lesser(out->hop->mtu, settings.mtu4)))
		return REASON_TOO_BIG;
	struct flow f = {}; /* or a verifier may see what the compiler moved about */
	be16 z = c->transport == TRANSPORT_ICMP ? 0 : c->destination;
	reason = find_flow6(c->transport, p->source, c->source, host, z, prefix, c->flags, in->now, &f);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	out->ends.source = f.pool;
	out->ends.destination = host;
	out->ends.source_port = f.pool_port;
	out->ends.destination_port = c->destination;
	return REASON_TO4_FORWARDED;
}

/* Whether all packets to an address are for the translator. */
INLINE u32 is_translated4(be32 destination) { return is_whole_pool4(destination); }

/* Whether a packet to an address is, by what it carries. */
INLINE u32 takes4(be32 destination, struct to6 *out) { return is_for_pool4(destination, &out->content); }

/* Judges the header of a plain packet to pool4. */
INLINE u32 judge_header4(const struct ip4 *p, const struct arrival *in, u32 *size)
{
	if (UNLIKELY(is_asleep(in)))
		return REASON_ASLEEP;
	*size = FROM_BE16(p->length);
	if (UNLIKELY(*size > in->length))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(!is_sound4(p)))
		return REASON_BAD_HEADER_CHECKSUM;
	if (UNLIKELY(p->ttl <= 1))
		return REASON_HOP_LIMIT;
	return UNLIKELY(is_any_pool4(p->source)) ? REASON_ILLEGAL_ADDRESS : REASON_TO6_FORWARDED;
}

/* Judges a plain packet to pool4 that is no ICMP error, whose content was read. */
INLINE u32 judge_to6(void *ctx, const struct ip4 *p, const struct arrival *in, struct to6 *out)
{
	struct content *c = &out->content;
	int unsummed = is_unsummed4(p, c);
	if (UNLIKELY(unsummed && !(settings.flags & FLAG_UNSUMMED)))
		return REASON_ZERO_CHECKSUM;
	u32 reason = judge_header4(p, in, &out->size);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	if (UNLIKELY(is_illegal4(p->source)))
		return REASON_ILLEGAL_ADDRESS;
	u32 segment = (in->segment ? in->segment : out->size) + IPV6_LEN - IPV4_LEN;
	if (UNLIKELY(p->fragment & IPV4_DF && segment > settings.mtu6))
		return REASON_TOO_BIG;
	struct flow f = {};
	be16 z = c->transport == TRANSPORT_ICMP ? 0 : c->source;
	reason = find_flow4(c->transport, p, c->destination, z, c->flags, unsummed, segment, in->now, &f);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	u32 bad = judge_peer4(p->source, f.prefix);
	if (UNLIKELY(bad))
		return bad;
	if (UNLIKELY(unsummed))
		return REASON_ZERO_CHECKSUM;
	embed(f.prefix, p->source, &out->ends.source);
	out->ends.destination.word[0] = f.address6[0] | (u64)f.address6[1] << 32;
	out->ends.destination.word[1] = f.address6[2] | (u64)f.address6[3] << 32;
	out->ends.source_port = c->transport == TRANSPORT_ICMP ? f.port6 : c->source;
	out->ends.destination_port = f.port6;
	reason = find_hop6(ctx, &out->ends.source, &out->ends.destination, HOOK_DEVICE(in->hook), &out->hop);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	return LIKELY(segment <= largest6(p, lesser(out->hop->mtu, settings.mtu6))) ? REASON_TO6_FORWARDED : too_big6(p);
}

/*
 * Punts that are as many as the host's set-up makes them, or packets of sessions that
 * it cuts or computes the checksum of: the engine must get all of them, as without a fast path.
 */
#define UNRATIONED ((u64)1 << REASON_ASLEEP | (u64)1 << REASON_NO_NEXT_HOP | (u64)1 << REASON_OFFLOAD | \
		    (u64)1 << REASON_ENGINE_SESSION | (u64)1 << REASON_DETOUR | (u64)1 << REASON_HAIRPIN | \
		    (u64)1 << REASON_TO_BE_CUT | (u64)!!(settings.flags & FLAG_UNSUMMED) << REASON_ZERO_CHECKSUM)

/* A subscriber is a network, even one with many /64. */
#define NETWORK_MASK fixed.client_mask[0]

#include "settle.h"

#endif
