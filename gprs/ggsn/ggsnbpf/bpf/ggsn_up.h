/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A G-PDU of a terminal, on its way to the network. Nothing here changes a packet. */

#ifndef ISTHMUS_GGSN_UP_H
#define ISTHMUS_GGSN_UP_H

#include "ggsn_judge.h"

/* A G-PDU, as it was judged. */
struct up {
	struct context *context;
	struct inner inner;
	struct exit exit;
	u32 front;      /* octets from the outer IP header to the packet inside */
	u32 udp_length;
	u32 outer;      /* enum outer_sum */
	u32 teid;
};

/* Whether a datagram is for the node: only then anything is counted. */
INLINE int is_ours(const struct tunnel *t)
{
	return t->protocol == PROTO_UDP && t->destination_port == GTP_PORT && t->destination == settings.source;
}

/* Why a datagram for the node, perhaps, is not of the plain form. */
NOINLINE u32 judge_odd(const struct tunnel *t, void *end)
{
	if (!t || t->version >> 4 != 4 || t->protocol != PROTO_UDP || t->destination != settings.source)
		return REASON_NOT_OURS;
	u32 header = (t->version & 0xf) * 4;
	if (header < IPV4_LEN || t->fragment & TO_BE16(0x1fff))
		return REASON_NOT_OURS;
	const u16 *ports = (void *)t + header;
	if ((void *)(ports + 2) > end || ports[1] != GTP_PORT)
		return REASON_NOT_OURS;
	return t->fragment & TO_BE16(0x2000) ? REASON_OUTER_FRAGMENT : REASON_OUTER_OPTIONS;
}

/* Whose share of the punts it is: of the context, or as long as that is not known of the node. */
INLINE u64 source_of(const struct up *u, be32 node) { return u->context ? u->teid : node; }

/* Judges the headers of UDP and GTP; that of GTP is in front of end. */
INLINE u32 judge_outer(const struct tunnel *t, const struct arrival *in, struct up *u)
{
	if (UNLIKELY(is_asleep(in)))
		return REASON_ASLEEP;
	if (UNLIKELY(is_illegal4(t->source) || t->source == settings.source))
		return REASON_OUTER_SOURCE;
	u32 length = FROM_BE16(t->length), udp_length = FROM_BE16(t->udp_length);
	u->udp_length = udp_length;
	if (UNLIKELY(length > in->length || udp_length != length - IPV4_LEN || udp_length < UDP_LEN + GTP_LEN))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(header_checksum(t)))
		return REASON_BAD_CHECKSUM;
	const u8 *g = (void *)(t + 1);
	u->teid = U32_AT(g, 4);
	if (UNLIKELY((g[0] & GTP_FLAGS) != GTP_V1 || g[1] != GTP_GPDU))
		return (g[0] & GTP_FLAGS & ~GTP_EXTENSION) == GTP_V1 && g[1] == GTP_GPDU ? REASON_EXTENSION : REASON_NOT_GPDU;
	u->front = DOWN_LEN + (g[0] & GTP_SEQUENCE ? GTP_OPTIONAL_LEN : 0);
	if (UNLIKELY(U16_AT(g, 2) != TO_BE16(udp_length - UDP_LEN - GTP_LEN) || length < u->front + IPV4_LEN))
		return REASON_ODD_LENGTH;
	return 0;
}

/* Where the packet inside begins, behind a header of GTP: 4 octets later with S, whose value is 2. */
INLINE void *inside_of(const u8 *g) { return (void *)g + GTP_LEN + ((g[0] & GTP_SEQUENCE) << 1); }

/* The sum of the header of GTP, at g, whose octets are in front of end. */
INLINE u64 gtp_sum(const u8 *g, u32 front)
{
	u64 sum = (u64)U32_AT(g, 0) + U32_AT(g, 4);
	return front == DOWN_LEN ? sum : sum + U32_AT(g, GTP_LEN);
}

/* Whether the node that a packet came from has combined marks of congestion (RFC 6040 section 4.2). */
INLINE int is_marked(u8 outer, u8 inner)
{
	outer &= ECN;
	return outer && (outer == ECN_CE || outer != (inner & ECN));
}

/* Judges an IPv6 packet inside, by its addresses. */
INLINE u32 judge_up6(void *ctx, const struct ip6 *p, const struct arrival *in, struct up *u)
{
	const struct context *c = u->context;
	if (UNLIKELY(!(c->flags & CONTEXT_IPV6)))
		return REASON_WRONG_FAMILY;
	/* A link-local destination, a group, or none: the router of the link has it, or nobody. */
	if (UNLIKELY(!is_host(p->destination)))
		return REASON_ON_LINK;
	if (UNLIKELY(U64_AT(p->source, 0) != c->prefix))
		return is_inside6(p->source) ? REASON_OTHER_SOURCE : REASON_SPOOFED;
	if (UNLIKELY(is_inside6(p->destination)))
		return REASON_INSIDE;
	struct address6 source = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}};
	struct address6 destination = {{U64_AT(p->destination, 0), U64_AT(p->destination, 8)}};
	struct nexthop6 *hop;
	if (UNLIKELY(find_hop6(ctx, &source, &destination, HOOK_DEVICE(in->hook), &hop) != REASON_TO_IPV6))
		return REASON_NO_NEXT_HOP;
	u->exit = exit6(hop);
	u32 mtu = c->mtu < hop->mtu ? c->mtu : hop->mtu;
	return judge_size(u->inner.size, mtu, 0);
}

/* Its counterpart. */
INLINE u32 judge_up4(void *ctx, const struct ip4 *p, const struct arrival *in, struct up *u)
{
	const struct context *c = u->context;
	if (UNLIKELY(!(c->flags & CONTEXT_IPV4)))
		return REASON_WRONG_FAMILY;
	if (UNLIKELY(is_illegal4(p->destination)))
		return REASON_ILLEGAL_ADDRESS;
	if (UNLIKELY(p->source != c->address))
		return is_inside4(p->source) ? REASON_OTHER_SOURCE : REASON_SPOOFED;
	if (UNLIKELY(is_inside4(p->destination)))
		return REASON_INSIDE;
	if (UNLIKELY(!is_sound4(p)))
		return REASON_INNER_CHECKSUM;
	struct nexthop4 *hop = find_hop4(ctx, p->destination, HOOK_DEVICE(in->hook));
	if (UNLIKELY(!hop))
		return REASON_NO_NEXT_HOP;
	u->exit = exit4(hop);
	u32 mtu = c->mtu < hop->mtu ? c->mtu : hop->mtu;
	return judge_size(u->inner.size, mtu, !(p->fragment & IPV4_DF));
}

/* Judges a G-PDU whose outer headers were judged; p is the packet inside, with 20 octets in front of end. */
INLINE u32 judge_up(void *ctx, const struct tunnel *t, void *p, void *end, const struct arrival *in, struct up *u)
{
	u32 state, reason, teid = u->teid, room = FROM_BE16(t->length) - u->front;
	struct context *c = context_at(bpf_map_lookup_elem(&by_teid, &teid), &state);
	if (UNLIKELY(!c || c->teid != teid))
		return REASON_NO_RECORD;
	u->context = c;
	if (UNLIKELY(t->source != c->node && !(c->flags & CONTEXT_ANY_SOURCE)))
		return REASON_OUTER_SOURCE;
	u8 first = *(u8 *)p >> 4;
	if (first == 6) {
		if (UNLIKELY(p + IPV6_LEN > end))
			return REASON_SHORT_PAYLOAD;
		reason = read6(p, end, room, &u->inner);
		if (LIKELY(!reason))
			reason = judge_up6(ctx, p, in, u);
	} else if (first == 4) {
		reason = read4(p, end, room, &u->inner);
		if (LIKELY(!reason))
			reason = judge_up4(ctx, p, in, u);
	} else {
		reason = REASON_WRONG_FAMILY;
	}
	if (UNLIKELY(reason))
		return reason;
	if (UNLIKELY(u->inner.size != room))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(is_marked(t->tos, u->inner.tos)))
		return REASON_MARKED;
	if (UNLIKELY(is_doubtful(in, &u->inner)))
		return REASON_OFFLOAD;
	u->outer = check_outer(t, u->inner.known, u->inner.sum + gtp_sum((void *)(t + 1), u->front));
	if (UNLIKELY(!has_volume(c, u->inner.size)))
		return REASON_VOLUME;
	return LIKELY(is_same(c, state)) ? 0 : REASON_NO_RECORD;
}

/* Spends and counts a packet that leaves; else why it does not. */
INLINE u32 pass_up(const struct up *u, u64 now)
{
	struct context *c = u->context;
	now -= settings.epoch;
	u32 reason = pass(c, &c->up, 1, u->inner.size, now);
	if (UNLIKELY(reason))
		return reason;
	u32 second = now / 1000000000;
	if (READ_ONCE(c->seen) != second)
		WRITE_ONCE(c->seen, second);
	account(&c->up, u->inner.size);
	return 0;
}

#endif
