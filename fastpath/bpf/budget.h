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

/* A hash that no one outside can foresee; its upper half is the better one. */
INLINE u64 scatter(u64 x)
{
	x = (x ^ settings.hop_seed) * 0x9e3779b97f4a7c15;
	return (x ^ x >> 32) * 0xd6e8feb86659fd93;
}

/* What a window has spent. */
INLINE u32 spent(const u64 *w, u32 window)
{
	u64 now = READ_ONCE(*w);
	return (u32)(now >> 32) == window ? (u32)now : 0;
}

/* The window of a source. */
INLINE u64 *share_of(u64 source) { return &shared.windows.source[scatter(source) >> 32 & (PUNT_SOURCES - 1)]; }

/*
 * Whether a punt fits the budget of a host's network. A host is sure of an eighth of it;
 * who has had that leaves a quarter to others. What a host has had is counted only where
 * its network had it to give: hosts that are made up in one network take nothing from
 * those of another. A network of one host, of which nothing more is known, has host 0.
 */
INLINE int may_source(u32 reason, u64 network, u64 host, u32 window)
{
	u32 limit = settings.punt_source;
	if (!limit)
		return 1;
	/* Scattered first, or who chooses his network could choose another's share of another reason. */
	u64 place = scatter(network) + reason;
	u64 *all = share_of(place);
	if (!host)
		return take(all, window, limit);
	u64 *own = share_of(place + host);
	u32 rest = spent(own, window) < limit / 8 ? 0 : limit / 4;
	return spent(all, window) + rest < limit && take(own, window, 0xffffffff) && take(all, window, limit);
}

/*
 * Whether a punt fits the budget. The share of the source comes first: a source
 * that has spent it takes nothing from others.
 */
INLINE int may_punt(u32 reason, u64 network, u64 host, u64 now)
{
	u32 window = now >> WINDOW_SHIFT;
	HIDE(reason); /* or its mask is left out, as its range is known */
	return may_source(reason, network, host, window) &&
	       take(&shared.windows.total[reason & 63], window, settings.punt_total);
}

#endif
