/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* Counters: one for each reason, of each core. */

#ifndef ISTHMUS_COUNT_H
#define ISTHMUS_COUNT_H

#include "tables.h"

/* Counts a packet and returns how many there were before it, on this core. */
INLINE u64 count(u32 reason, u32 bytes)
{
	struct counter *c = bpf_map_lookup_elem(&counters, &reason);
	if (!c)
		return 0;
	c->bytes += bytes;
	return c->packets++;
}

INLINE u32 verdict_of(u32 reason)
{
	if (reason >= FIRST_DROP)
		return VERDICT_DROP;
	return reason >= FIRST_PUNT ? VERDICT_PUNT : VERDICT_FORWARD;
}

#endif
