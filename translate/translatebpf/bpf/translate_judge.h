/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What the judges of translators have in common: what they find, and how they look at
 * the form of a packet. Nothing here changes a packet.
 */

#ifndef ISTHMUS_TRANSLATE_JUDGE_H
#define ISTHMUS_TRANSLATE_JUDGE_H

#include "translate_packet.h"

/* A packet to IPv4, as it was judged. */
struct to4 {
	struct nexthop4 *hop;
	struct content content;
	struct ends4 ends;
	u32 size; /* of the IPv6 packet */
};

/* A packet to IPv6. */
struct to6 {
	struct nexthop6 *hop;
	struct content content;
	struct ends6 ends;
	u32 size; /* of the IPv4 packet */
};

/* Whether no daemon has been here for long. */
INLINE int is_asleep(const struct arrival *in) { return in->now >= READ_ONCE(settings.alive_until); }

/* Whether a packet is UDP without a checksum, which the engine computes or drops (RFC 7915 section 4.5). */
INLINE int is_unsummed4(const struct ip4 *p, const struct content *c)
{
	return p->protocol == PROTO_UDP && !c->checksum;
}

/* The lesser of what the settings and a next hop allow. */
INLINE u32 lesser(u32 a, u32 b) { return a < b ? a : b; }

/* The largest packet that may leave to IPv6 whole; see size6 in translate/to6.go. */
INLINE u32 largest6(const struct ip4 *p, u32 mtu)
{
	u32 lowest = settings.lowest_mtu;
	return p->fragment & IPV4_DF || lowest > mtu ? mtu : lowest;
}

/*
 * Why the engine gets what is larger than that: with DF to answer it, and there may be too many
 * of these; without to cut it, as any other traffic (RFC 7915 section 4.1).
 */
INLINE u32 too_big6(const struct ip4 *p) { return p->fragment & IPV4_DF ? REASON_TOO_BIG : REASON_TO_BE_CUT; }

#endif
