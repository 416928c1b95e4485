/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* Contexts: how they are found, and what a packet spends and counts. */

#ifndef ISTHMUS_GGSN_CONTEXT_H
#define ISTHMUS_GGSN_CONTEXT_H

#include "ggsn_tables.h"
#include "parse.h"

/* The record of a number that an index has; 0 if it is not to be used. */
INLINE struct context *context_at(const u32 *number, u32 *state)
{
	if (!number)
		return 0;
	u32 at = *number;
	struct context *c = bpf_map_lookup_elem(&contexts, &at);
	if (!c)
		return 0;
	*state = READ_ONCE(c->state);
	LOAD_BARRIER();
	return *state & 1 ? c : 0;
}

/* Whether what was read of a record is of one and the same context. */
INLINE int is_same(const struct context *c, u32 state)
{
	LOAD_BARRIER();
	return READ_ONCE(c->state) == state;
}

/* Whether terminals have an address, or it is behind one. */
INLINE int is_inside4(be32 address)
{
	struct inside4 key = {32, address};
	return !!bpf_map_lookup_elem(&insides4, &key);
}

/* The same of the upper half of an IPv6 address, in words as they are loaded. */
INLINE int is_inside6(const u32 *address)
{
	struct inside6 key = {64, {address[0], address[1]}};
	return !!bpf_map_lookup_elem(&insides6, &key);
}

/* How far ahead of a rate a context may be, and the octets that pass in any case; see policer.go. */
#define POLICED_AHEAD 200000000ULL
#define POLICED_MTU 1500
#define COST_NOTHING (~0ULL)
#define SPEND_TRIES 4

/* Whether a packet may pass that comes at a time. */
INLINE int is_open(u64 arrival, u64 cost, u64 now)
{
	u64 one = cost * POLICED_MTU >> 16;
	u64 slack = (2 * one > POLICED_AHEAD ? 2 * one : POLICED_AHEAD) - one;
	return !cost || (cost != COST_NOTHING && arrival <= now + slack);
}

/* Spends the octets of a packet: 0, or why it does not pass. */
INLINE u32 spend(struct rate *r, u32 octets, u64 now)
{
	u64 cost = READ_ONCE(r->cost);
	if (LIKELY(!cost))
		return 0;
#pragma unroll
	for (int i = 0; i < SPEND_TRIES; i++) {
		u64 old = READ_ONCE(r->arrival);
		if (!is_open(old, cost, now))
			return REASON_OVER_RATE;
		u64 next = (old > now ? old : now) + (cost * octets >> 16);
		if (LIKELY(__sync_val_compare_and_swap(&r->arrival, old, next) == old))
			return 0;
	}
	return REASON_CONTENDED;
}

/*
 * Spends a packet's octets of a way of a context, and of the rate that it shares with others of its
 * terminal: 0, or why the packet does not pass. now is since the engine's epoch.
 */
INLINE u32 pass(struct context *c, struct way *w, u32 upward, u32 octets, u64 now)
{
	u32 number = READ_ONCE(c->aggregate);
	struct rate *all = 0;
	if (number) {
		struct aggregate *a = bpf_map_lookup_elem(&aggregates, &number);
		if (!a)
			return REASON_NO_RECORD;
		all = upward ? &a->up : &a->down;
	}
	u32 reason = 0;
	if (all && !is_open(READ_ONCE(all->arrival), READ_ONCE(all->cost), now))
		reason = REASON_OVER_RATE;
	if (!reason)
		reason = spend(&w->rate, octets, now);
	if (!reason && all)
		spend(all, octets, now); /* what is spent of one is not given back for the other */
	if (UNLIKELY(reason == REASON_OVER_RATE))
		__sync_fetch_and_add(&w->over, 1);
	return reason;
}

/* Whether a packet fits what is left of a charging record: the one that fills it is the engine's. */
INLINE int has_volume(const struct context *c, u32 octets)
{
	u64 left = READ_ONCE(c->left);
	return left == ~0ULL || READ_ONCE(c->up.octets) + READ_ONCE(c->down.octets) + octets < left;
}

/* Counts a packet for its context. */
INLINE void account(struct way *w, u32 octets)
{
	__sync_fetch_and_add(&w->packets, 1);
	__sync_fetch_and_add(&w->octets, octets);
}

#endif
