/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The end of packets that are not forwarded. Each set of programs says before which
 * punts are UNRATIONED: a bit for each reason.
 */

#ifndef ISTHMUS_SETTLE_H
#define ISTHMUS_SETTLE_H

#include "budget.h"
#include "count.h"

/* Whether a reason is one of the punts that a flood must not have too many of. */
INLINE int is_rationed(u32 reason)
{
	return reason >= FIRST_PUNT && reason < FIRST_DROP && !(UNRATIONED >> (reason & 63) & 1);
}

/*
 * Settles a packet that is not forwarded: punts may be too many. The source is a /64
 * or an IPv4 address.
 */
INLINE u32 settle(u32 reason, u32 bytes, u64 source, u64 now)
{
	if (is_rationed(reason) && !may_punt(reason, source, now))
		reason = REASON_PUNT_LIMIT;
	count(reason, bytes);
	return reason;
}

#endif
