/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What becomes of a packet from or for a terminal: the part that is the same for every hook. It
 * follows gprs/ggsn/uplink.go and downlink.go; what it does not fully handle it punts, and it
 * drops only what the engine would drop. Nothing here changes a packet.
 *
 * Packets among terminals are the engine's: where addresses of terminals are, the daemon says. Those to
 * the node itself are found by the routes.
 */

#ifndef ISTHMUS_GGSN_JUDGE_H
#define ISTHMUS_GGSN_JUDGE_H

#include "ggsn_context.h"
#include "arrival.h"
#include "count.h"
#include "tunnel.h"

/* Where packets to IPv6 hosts go, for nexthop.h; addresses are judged before. */
INLINE u32 judge_destination(const struct address6 *a)
{
	return a ? REASON_TO_IPV6 : REASON_ILLEGAL_ADDRESS;
}

#include "nexthop.h"

#define GTP_PORT TO_BE16(2152)
#define GTP_LEN 8
#define GTP_OPTIONAL_LEN 4   /* sequence number, N-PDU number, type of the first extension header */
#define GTP_FLAGS 0xf5       /* version, protocol type, E and PN; S is what it may be, and so is the spare bit */
#define GTP_V1 0x30          /* version 1, protocol type 1 (TS 29.281 section 5.1) */
#define GTP_SEQUENCE 2       /* S */
#define GTP_EXTENSION 5      /* E, PN */
#define GTP_GPDU 255

#define ECN 3                /* the field in a TOS octet */
#define ECN_CE 3
#define TCP_FLAGS 13         /* where they are */
#define TCP_FLAG_SYN 2
#define ICMP_REDIRECT 5
#define ICMP6_REDIRECT 137

/* Extension headers of IPv6 behind which a transport may be (RFC 8200 section 4, and others). */
#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_AUTHENTICATION 51
#define NEXT_DESTINATION 60
#define NEXT_MOBILITY 135
#define NEXT_HIP 139
#define NEXT_SHIM6 140

/* Packets that are nobody's here: they pass, and are not counted. */
#define REASON_NOT_OURS 0xff

/* The header in front of a packet for a terminal. */
#define DOWN_LEN (TUNNEL_LEN + GTP_LEN)

/*
 * Whether no daemon has been here for long, or the clock of packets is not yet at the engine's epoch, which may lie
 * in front of the start of the machine.
 */
INLINE int is_asleep(const struct arrival *in)
{
	return in->now >= READ_ONCE(settings.alive_until) || (s64)(in->now - READ_ONCE(settings.epoch)) < 0;
}

/* A packet inside, of either family, as it was judged. */
struct inner {
	u32 size;
	u32 header; /* octets of its IP header */
	u8 six;
	u8 next;    /* transport protocol; PROTO_NONE for what has none that is looked at */
	u8 tos;
	u8 known;   /* whether sum is known */
	u64 sum;    /* of the whole packet */
	u64 pseudo; /* of the pseudo-header */
};

/* Where it leaves. */
struct exit {
	u64 mac0;
	u32 mac1;
	u32 ifindex;
	u32 mtu;
	u32 flags; /* of the device */
};

INLINE struct exit exit4(const struct nexthop4 *h)
{
	return (struct exit){h->mac0, h->mac1, h->ifindex, h->mtu, h->flags};
}

INLINE struct exit exit6(const struct nexthop6 *h)
{
	return (struct exit){h->mac0, h->mac1, h->ifindex, h->mtu, h->flags};
}

/* Judges what stands behind an IP header at p: whether the engine wants to see it. */
INLINE u32 judge_transport(const struct inner *i, const u8 *p, void *end, u32 redirect)
{
	u32 length = i->size - i->header;
	if (i->next == PROTO_NONE)
		return 0;
	if (i->next == PROTO_TCP) {
		if (UNLIKELY(length < TCP_LEN || (void *)p + TCP_LEN > end))
			return REASON_SHORT_PAYLOAD;
		return UNLIKELY(p[TCP_FLAGS] & TCP_FLAG_SYN) ? REASON_TCP_SYN : 0;
	}
	if (UNLIKELY(length < UDP_LEN || (void *)p + UDP_LEN > end))
		return REASON_SHORT_PAYLOAD;
	return UNLIKELY(i->next != PROTO_UDP && p[0] == redirect) ? REASON_REDIRECT : 0;
}

/* Whether the checksum of UDP at p covers all of so many octets. */
INLINE int is_udp_summed(const u8 *p, u32 length)
{
	u32 tail = U32_AT(p, 4);
	return (u16)tail == TO_BE16(length) && tail >> 16;
}

/* Whether something known may be behind an extension header. */
INLINE int is_extension(u8 next)
{
	switch (next) {
	case NEXT_HOP_BY_HOP:
	case NEXT_ROUTING:
	case NEXT_FRAGMENT:
	case NEXT_AUTHENTICATION:
	case NEXT_DESTINATION:
	case NEXT_MOBILITY:
	case NEXT_HIP:
	case NEXT_SHIM6:
		return 1;
	}
	return 0;
}

/* Reads an IPv6 packet, whose header is in front of end, with room for so many octets. */
INLINE u32 read6(const struct ip6 *p, void *end, u32 room, struct inner *i)
{
	i->six = 1;
	i->header = IPV6_LEN;
	i->size = IPV6_LEN + FROM_BE16(p->length);
	if (UNLIKELY(i->size > room))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(is_extension(p->next)))
		return REASON_IP_OPTIONS;
	i->tos = p->version << 4 | p->flow[0] >> 4;
	i->next = is_summed(p->next) ? p->next : PROTO_NONE;
	u32 reason = judge_transport(i, (void *)(p + 1), end, ICMP6_REDIRECT);
	if (UNLIKELY(reason))
		return reason;
	i->known = i->next != PROTO_NONE && is_sum_known(p);
	i->sum = packet_sum(p);
	i->pseudo = pseudo6(p);
	return UNLIKELY(p->hops <= 1) ? REASON_HOP_LIMIT : 0;
}

/* Reads an IPv4 packet, whose header is in front of end, with room for so many octets. */
INLINE u32 read4(const struct ip4 *p, void *end, u32 room, struct inner *i)
{
	i->six = 0;
	i->header = IPV4_LEN;
	i->size = FROM_BE16(p->length);
	if (UNLIKELY(p->version != 0x45))
		return REASON_IP_OPTIONS;
	if (UNLIKELY(i->size > room || i->size < IPV4_LEN))
		return REASON_ODD_LENGTH;
	i->tos = p->tos;
	int is_read = !(p->fragment & IPV4_FRAGMENT) &&
		      (p->protocol == PROTO_TCP || p->protocol == PROTO_UDP || p->protocol == PROTO_ICMP);
	i->next = is_read ? p->protocol : PROTO_NONE;
	if (UNLIKELY((p->fragment & IPV4_FRAGMENT) == IPV4_MF && p->protocol != PROTO_UDP))
		return REASON_FIRST_FRAGMENT;
	const u8 *transport = (void *)(p + 1);
	u32 reason = judge_transport(i, transport, end, ICMP_REDIRECT);
	if (UNLIKELY(reason))
		return reason;
	u32 length = i->size - IPV4_LEN;
	i->pseudo = (u64)p->source + p->destination + TO_BE16(length) + (p->protocol << 8);
	/* What a right checksum makes of the transport; a right header is 0, and is 0xffff in its place. */
	i->sum = 0xffff;
	if (p->protocol != PROTO_ICMP && fold(i->pseudo) != 0xffff)
		i->sum -= fold(i->pseudo);
	i->known = is_read && (p->protocol != PROTO_UDP || is_udp_summed(transport, length)) && is_sound4(p);
	return UNLIKELY(p->ttl <= 1) ? REASON_HOP_LIMIT : 0;
}

/* Why the engine gets a packet that is larger than that: to answer it, or to cut it. */
INLINE u32 judge_size(u32 size, u32 mtu, int may_cut)
{
	if (LIKELY(size <= mtu))
		return 0;
	return may_cut ? REASON_TO_BE_CUT : REASON_TOO_BIG;
}

/* Whether a sender on this machine has left the transport checksum, at p, to hardware. */
INLINE int is_unfinished(const struct arrival *in, const struct inner *i, const void *p, void *end)
{
	if (LIKELY(!(in->device & DEVICE_PARTIAL)) || (i->next != PROTO_TCP && i->next != PROTO_UDP))
		return 0;
	const u16 *field = p + i->header + checksum_place(i->next);
	return (void *)(field + 1) <= end && *field == fold(i->pseudo);
}

/* Whether its checksum could not be finished on a frame. */
INLINE int is_unfinishable(const struct inner *i) { return i->size - i->header > SUM_MAX; }

/* Whether what is inside may have a checksum that is left to hardware, and that no frame tells of. */
INLINE int is_doubtful(const struct arrival *in, const struct inner *i)
{
	return in->hook == HOOK_XDP && in->device & DEVICE_PARTIAL && i->next == PROTO_NONE;
}

/*
 * Punts that are as many as the host's set-up makes them, or that are traffic like any other: the
 * engine must get all of them, as without a fast path.
 */
#define RATIONED_PUNTS ((u64)1 << REASON_OUTER_SOURCE | (u64)1 << REASON_SPOOFED | (u64)1 << REASON_INNER_CHECKSUM | (u64)1 << REASON_WRONG_FAMILY | \
			(u64)1 << REASON_ILLEGAL_ADDRESS | (u64)1 << REASON_REDIRECT | (u64)1 << REASON_HOP_LIMIT | \
			(u64)1 << REASON_TOO_BIG | (u64)1 << REASON_SHORT_PAYLOAD | (u64)1 << REASON_ODD_LENGTH)
#define UNRATIONED (~RATIONED_PUNTS)

#include "settle.h"

#endif
