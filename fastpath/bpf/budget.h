/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The budget of punts: a flood of what the fast path does not take must not starve
 * the engine. Windows are short, so that what fits is spread over each second, and
 * counted without locks: what two cores do at the turn of a window may be lost.
 */

#ifndef ISTHMUS_BUDGET_H
#define ISTHMUS_BUDGET_H

#include "tables.h"

/* Takes one from a window; 0 when it is spent. No limit is 0. */
INLINE int take(u64 *w, u32 window, u32 limit)
{
	if (!limit)
		return 1;
	u64 old = READ_ONCE(*w);
	if ((u32)(old >> 32) != window &&
	    __sync_val_compare_and_swap(w, old, (u64)window << 32 | 1) == old)
		return 1;
	return (u32)__sync_fetch_and_add(w, 1) < limit;
}

/* A hash that nobody outside can foresee; its upper half is the better one. */
INLINE u64 scatter(u64 x)
{
	x = (x ^ settings.hop_seed) * 0x9e3779b97f4a7c15;
	return (x ^ x >> 32) * 0xd6e8feb86659fd93;
}

/*
 * Whether a punt fits the budget. The share of the source comes first: a source
 * that has spent it takes nothing from others.
 */
INLINE int may_punt(u32 reason, u64 source, u64 now)
{
	u32 window = now >> WINDOW_SHIFT;
	u32 share = scatter(source + reason) >> 32 & (PUNT_SOURCES - 1);
	HIDE(reason); /* or its mask is left out, as its range is known */
	return take(&shared.windows.source[share], window, settings.punt_source) &&
	       take(&shared.windows.total[reason & 63], window, settings.punt_total);
}

#endif
