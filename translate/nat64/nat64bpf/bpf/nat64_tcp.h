/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * TCP (RFC 6146 section 3.5.2.2): what a segment makes of a session that is there, as a
 * table of all states and flags, so that no segment costs a branch. Timeouts, probes and
 * stored SYNs are the engine's.
 */

#ifndef ISTHMUS_NAT64_TCP_H
#define ISTHMUS_NAT64_TCP_H

#include "nat64_tables.h"
#include "translate_packet.h"

/* Where a packet comes from. */
#define SIDE_V6 0
#define SIDE_V4 1

/* What of a step is not the next state: the lifetime begins again. */
#define STEP_STATE 0x0f
#define STEP_REFRESH 0x80

/*
 * The next state of each state, by side and flags: a SYN counts first, then a RST, then a
 * FIN, as in translate/nat64/tcp.go.
 */
#define IS_RST(f) (((f) & (TCP_SYN | TCP_RST)) == TCP_RST)
#define IS_FIN(f) (((f) & (TCP_SYN | TCP_RST | TCP_FIN)) == TCP_FIN)
#define NEXT_V4_INIT(side, f) \
	((side) == SIDE_V6 && ((f) & TCP_SYN) ? SESSION_ESTABLISHED | STEP_REFRESH : SESSION_V4_INIT)
#define NEXT_V6_INIT(side, f) \
	(!((f) & TCP_SYN) ? SESSION_V6_INIT : \
	 (side) == SIDE_V4 ? SESSION_ESTABLISHED | STEP_REFRESH : SESSION_V6_INIT | STEP_REFRESH)
#define NEXT_ESTABLISHED(side, f) \
	(IS_RST(f) ? SESSION_TRANS | STEP_REFRESH : \
	 !IS_FIN(f) ? SESSION_ESTABLISHED | STEP_REFRESH : (side) == SIDE_V4 ? SESSION_V4_FIN : SESSION_V6_FIN)
#define NEXT_V4_FIN(side, f) \
	(IS_RST(f) ? SESSION_TRANS | STEP_REFRESH : \
	 (side) == SIDE_V6 && IS_FIN(f) ? SESSION_BOTH_FIN | STEP_REFRESH : SESSION_V4_FIN | STEP_REFRESH)
#define NEXT_V6_FIN(side, f) \
	(IS_RST(f) ? SESSION_TRANS | STEP_REFRESH : \
	 (side) == SIDE_V4 && IS_FIN(f) ? SESSION_BOTH_FIN | STEP_REFRESH : SESSION_V6_FIN | STEP_REFRESH)
/* Another connection may begin on the same ports (docs/decisions/0011-reopened-connections.md). */
#define NEXT_BOTH_FIN(side, f) \
	((f) != TCP_SYN ? SESSION_BOTH_FIN : \
	 (side) == SIDE_V6 ? SESSION_V6_INIT | STEP_REFRESH : SESSION_V4_INIT | STEP_REFRESH)
#define NEXT_TRANS(side, f) (IS_RST(f) ? SESSION_TRANS : SESSION_ESTABLISHED | STEP_REFRESH)

#define EACH_FLAG(next, side) \
	next(side, 0), next(side, 1), next(side, 2), next(side, 3), next(side, 4), next(side, 5), next(side, 6), next(side, 7)
#define EACH_SEGMENT(state, next) [(state) << 4] = EACH_FLAG(next, SIDE_V6), EACH_FLAG(next, SIDE_V4)

static const u8 tcp_steps[256] = {
	EACH_SEGMENT(SESSION_V4_INIT, NEXT_V4_INIT),
	EACH_SEGMENT(SESSION_V6_INIT, NEXT_V6_INIT),
	EACH_SEGMENT(SESSION_ESTABLISHED, NEXT_ESTABLISHED),
	EACH_SEGMENT(SESSION_V4_FIN, NEXT_V4_FIN),
	EACH_SEGMENT(SESSION_V6_FIN, NEXT_V6_FIN),
	EACH_SEGMENT(SESSION_BOTH_FIN, NEXT_BOTH_FIN),
	EACH_SEGMENT(SESSION_TRANS, NEXT_TRANS),
};

/* What a segment makes of a state: the next state, with STEP_REFRESH or without. */
INLINE u32 tcp_step(u32 state, u32 side, u32 flags)
{
	u32 at = (state << 4 | side << 3 | (flags & 7)) & 0xff;
	HIDE(at);
	return tcp_steps[at & 0xff];
}

#endif
