/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A packet of the network for a terminal. Nothing here changes a packet. */

#ifndef ISTHMUS_GGSN_DOWN_H
#define ISTHMUS_GGSN_DOWN_H

#include "ggsn_judge.h"

/* A packet for a terminal, as it was judged. */
struct down {
	struct context *context;
	struct inner inner;
	struct exit exit;
	be32 node;
	be32 teid;
	u32 tos;
};

/* What becomes of a packet that was read, once its context is known. */
INLINE u32 judge_way(void *ctx, struct context *c, u32 state, int may_cut, const struct arrival *in, struct down *d)
{
	d->context = c;
	d->node = c->node;
	d->teid = c->node_teid;
	d->tos = c->class | (c->flags & CONTEXT_CLEAR_ECN ? 0 : d->inner.tos & ECN);
	if (UNLIKELY(is_doubtful(in, &d->inner)))
		return REASON_OFFLOAD;
	u32 reason = judge_size(d->inner.size, c->mtu, may_cut);
	if (UNLIKELY(reason))
		return reason;
	struct nexthop4 *hop = find_hop4(ctx, d->node, HOOK_DEVICE(in->hook));
	if (UNLIKELY(!hop))
		return REASON_NO_NEXT_HOP;
	d->exit = exit4(hop);
	if (UNLIKELY(d->inner.size + DOWN_LEN > hop->mtu))
		return REASON_TO_BE_CUT;
	if (UNLIKELY(!has_volume(c, d->inner.size)))
		return REASON_VOLUME;
	return LIKELY(is_same(c, state)) ? 0 : REASON_NO_RECORD;
}

/* Judges an IPv6 packet whose destination may be a terminal's; REASON_NOT_OURS where it is nobody's. */
INLINE u32 judge_down6(void *ctx, const struct ip6 *p, void *end, const struct arrival *in, struct down *d)
{
	u64 prefix = U64_AT(p->destination, 0);
	const u32 *number = bpf_map_lookup_elem(&by_prefix, &prefix);
	if (LIKELY(!number))
		return REASON_NOT_OURS;
	u32 state;
	struct context *c = context_at(number, &state);
	if (UNLIKELY(!c || c->prefix != prefix || !(c->flags & CONTEXT_IPV6)))
		return REASON_NO_RECORD;
	if (UNLIKELY(is_asleep(in)))
		return REASON_ASLEEP;
	if (UNLIKELY(in->segment))
		return REASON_OFFLOAD;
	if (UNLIKELY(p->version >> 4 != 6))
		return REASON_ODD_LENGTH;
	u32 reason = read6(p, end, in->length, &d->inner);
	if (UNLIKELY(reason))
		return reason;
	if (UNLIKELY(!is_host(p->source)))
		return REASON_ILLEGAL_ADDRESS;
	if (UNLIKELY(is_inside6(p->source)))
		return REASON_INSIDE;
	return judge_way(ctx, c, state, 0, in, d);
}

/* Its counterpart. */
INLINE u32 judge_down4(void *ctx, const struct ip4 *p, void *end, const struct arrival *in, struct down *d)
{
	be32 address = p->destination;
	const u32 *number = bpf_map_lookup_elem(&by_address, &address);
	if (LIKELY(!number))
		return REASON_NOT_OURS;
	u32 state;
	struct context *c = context_at(number, &state);
	if (UNLIKELY(!c || c->address != address || !(c->flags & CONTEXT_IPV4)))
		return REASON_NO_RECORD;
	if (UNLIKELY(is_asleep(in)))
		return REASON_ASLEEP;
	if (UNLIKELY(in->segment))
		return REASON_OFFLOAD;
	u32 reason = read4(p, end, in->length, &d->inner);
	if (UNLIKELY(reason))
		return reason;
	if (UNLIKELY(!is_sound4(p)))
		return REASON_BAD_CHECKSUM;
	if (UNLIKELY(is_illegal4(p->source)))
		return REASON_ILLEGAL_ADDRESS;
	if (UNLIKELY(is_inside4(p->source)))
		return REASON_INSIDE;
	return judge_way(ctx, c, state, !(p->fragment & IPV4_DF), in, d);
}

/* Spends and counts a packet that leaves; else why it does not. */
INLINE u32 pass_down(const struct down *d, u64 now)
{
	struct context *c = d->context;
	u32 reason = pass(c, &c->down, 0, d->inner.size, now - settings.epoch);
	if (LIKELY(!reason))
		account(&c->down, d->inner.size);
	return reason;
}

/* The header of GTP in two words, as they are stored. */
struct gtp_words {
	u32 first;
	be32 teid;
};

INLINE struct gtp_words make_gtp(const struct down *d)
{
	return (struct gtp_words){GTP_V1 | GTP_GPDU << 8 | (u32)TO_BE16(d->inner.size) << 16, d->teid};
}

/*
 * Makes the headers; is_summed tells whether the packet inside has its checksum. That its hop limit
 * falls changes the sum of an IPv6 packet alone: in IPv4 the header's checksum makes up for it.
 */
INLINE void make_down(struct tunnel_words *w, struct gtp_words *g, const struct down *d, u32 is_summed)
{
	struct outer o = {
		.mac0 = d->exit.mac0, .mac1 = d->exit.mac1, .source = settings.source, .destination = d->node,
		.source_port = GTP_PORT, .destination_port = GTP_PORT, .payload = d->inner.size + GTP_LEN,
		.tos = d->tos, .ttl = settings.ttl,
	};
	*g = make_gtp(d);
	u64 sum = 0;
	if (d->inner.known && is_summed)
		sum = d->inner.sum + g->first + g->teid + (d->inner.six ? 0xffff - (1 << 8) : 0);
	make_tunnel(w, &o, count(REASON_DOWN_FORWARDED, d->inner.size), sum);
}

/* Takes one off the hop limit of a packet; of IPv4 the checksum takes account of that (RFC 1624). */
INLINE void take_hop(void *p, u32 six)
{
	if (six) {
		((struct ip6 *)p)->hops--;
		return;
	}
	struct ip4 *four = p;
	u32 sum = four->checksum + (u32)TO_BE16(0x0100);
	four->ttl--;
	four->checksum = sum + (sum >> 16);
}

#endif
