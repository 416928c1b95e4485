/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The tables of a NAT64's state: looking records up, entering them in an index, taking
 * free ones, locks. nat64_layout.h says how all of it lies.
 */

#ifndef ISTHMUS_NAT64_TABLE_H
#define ISTHMUS_NAT64_TABLE_H

#include "nat64_tables.h"

/*
 * Who meets whom, in the words in which it lies in a session: each side of it is the key
 * of one index.
 */
struct tuple {
	u64 host[2];   /* X' */
	u64 addresses; /* T, Z */
	u64 ports;     /* x, t, z, transport, prefix of pool6 */
};

#define TUPLE_PORTS(x, t, z, transport, prefix) \
	((u64)(x) | (u64)(t) << 16 | (u64)(z) << 32 | (u64)(transport) << 48 | (u64)(prefix) << 56)
#define PORTS_KEY6 0xffffffff0000ffffULL /* what of it the IPv6 side sees */
#define PORTS_KEY4 0x00ffffffffff0000ULL
#define PORTS_BINDING6 0x00ff00000000ffffULL
#define PORTS_BINDING4 0x00ff0000ffff0000ULL

INLINE u32 transport_of(const struct tuple *t) { return t->ports >> 48 & 0xff; }

/* Hashes. */

INLINE u64 stir(u64 h)
{
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15;
	return h ^ h >> 29;
}

INLINE u64 hash_host(const u64 *host)
{
	return head.seed[0] + head.seed[1] * (u32)host[0] + head.seed[2] * (host[0] >> 32) +
	       head.seed[3] * (u32)host[1] + head.seed[4] * (host[1] >> 32);
}

INLINE u64 hash_session6(const struct tuple *t)
{
	u64 ports = (t->ports & 0xffff) | (t->ports >> 16 & 0xffff0000);
	return stir(hash_host(t->host) + head.seed[5] * (t->addresses >> 32) + head.seed[6] * ports +
		    head.seed[7] * (t->ports >> 48));
}

INLINE u64 hash_session4(const struct tuple *t)
{
	return stir(head.seed[0] + head.seed[1] * (u32)t->addresses + head.seed[2] * (t->addresses >> 32) +
		    head.seed[3] * (u32)(t->ports >> 16) + head.seed[4] * transport_of(t));
}

INLINE u64 hash_binding6(const struct tuple *t)
{
	return stir(hash_host(t->host) + head.seed[5] * ((t->ports & 0xffff) | (u64)transport_of(t) << 16));
}

INLINE u64 hash_binding4(const struct tuple *t)
{
	return stir(head.seed[0] + head.seed[1] * (u32)t->addresses +
		    head.seed[2] * ((t->ports >> 16 & 0xffff) | (u64)transport_of(t) << 16));
}

INLINE u64 hash_subscriber(const struct tuple *t) { return stir(hash_host(t->host)); }

/* Indexes. */

INLINE u32 home_of(u64 hash, u32 buckets) { return (hash >> 32) * buckets >> 32; }

INLINE u32 other_of(u64 hash, u32 buckets)
{
	u32 other = (u64)(u32)((u32)hash * 0x85ebca6b) * buckets >> 32;
	if (other == home_of(hash, buckets))
		other = other + 1 < buckets ? other + 1 : 0;
	return other;
}

/* All ones if the upper half of a slot is the tag, else zero; without a branch. */
INLINE u64 tag_mask(u64 slot, u32 tag)
{
	u64 differ = (slot >> 32 ^ tag) - 1;
	HIDE(differ); /* or the compiler makes a branch of it */
	return (s64)differ >> 63;
}

/*
 * The number of the record (its index + 1) that a bucket seems to hold for a hash, 0 for
 * none. Where it lies is random, so there is no branch on it (see peers.h). Two slots of
 * one tag give nonsense, which the comparison of keys finds.
 */
INLINE u32 number_in(const struct index_bucket *b, u32 tag)
{
	u64 number = 0;
#pragma unroll
	for (int i = 0; i < INDEX_SLOTS; i++) {
		u64 slot = READ_ONCE(b->slot[i]);
		number |= slot & tag_mask(slot, tag);
	}
	return number;
}

/* Whether a record is the one of a key. */

/* What a session's record holds of the tuple. */
INLINE struct tuple tuple_of(const struct session *s)
{
	const u64 *w = (const u64 *)s;
	return (struct tuple){
		.host = {READ_ONCE(w[1]), READ_ONCE(w[2])}, .addresses = READ_ONCE(w[3]), .ports = READ_ONCE(w[4]),
	};
}

INLINE int is_same6(const struct tuple *a, const struct tuple *b)
{
	return ((a->host[0] ^ b->host[0]) | (a->host[1] ^ b->host[1]) | (a->addresses ^ b->addresses) >> 32 |
		((a->ports ^ b->ports) & PORTS_KEY6)) == 0;
}

INLINE int is_same4(const struct tuple *a, const struct tuple *b)
{
	return ((a->addresses ^ b->addresses) | ((a->ports ^ b->ports) & PORTS_KEY4)) == 0;
}

INLINE int is_used(const struct session *s) { return READ_ONCE(s->word) >> SESSION_STATE_SHIFT & 0xff; }

INLINE int is_session6(const struct session *s, const struct tuple *t)
{
	struct tuple held = tuple_of(s);
	return is_used(s) && is_same6(&held, t);
}

INLINE int is_session4(const struct session *s, const struct tuple *t)
{
	struct tuple held = tuple_of(s);
	return is_used(s) && is_same4(&held, t);
}

#define BINDING_STATE 0xffU
#define BINDING_TRANSPORT_SHIFT 8
#define BINDING_GENERATION_SHIFT 16

INLINE u64 binding_ports(const struct binding *b)
{
	return TUPLE_PORTS(READ_ONCE(b->port6), READ_ONCE(b->pool_port), 0, READ_ONCE(b->word) >> BINDING_TRANSPORT_SHIFT & 0xff, 0);
}

INLINE int is_binding6(const struct binding *b, const struct tuple *t)
{
	const u64 *w = (const u64 *)b;
	return (READ_ONCE(b->word) & BINDING_STATE) != BINDING_FREE &&
	       ((READ_ONCE(w[0]) ^ t->host[0]) | (READ_ONCE(w[1]) ^ t->host[1]) |
		((binding_ports(b) ^ t->ports) & PORTS_BINDING6)) == 0;
}

INLINE int is_binding4(const struct binding *b, const struct tuple *t)
{
	return (READ_ONCE(b->word) & BINDING_STATE) != BINDING_FREE && READ_ONCE(b->pool) == (u32)t->addresses &&
	       ((binding_ports(b) ^ t->ports) & PORTS_BINDING4) == 0;
}

/* The host of the tuple is cut to the prefix already. */
INLINE int is_subscriber(const struct subscriber *s, const struct tuple *t)
{
	return READ_ONCE(s->word) & 0xff &&
	       ((READ_ONCE(s->prefix[0]) ^ t->host[0]) | (READ_ONCE(s->prefix[1]) ^ t->host[1])) == 0;
}

/*
 * Looks into each slot of both buckets, in one function: no more than 512 bytes of stack
 * are for all functions that call each other, 32 at least for each. It is for those who have the
 * lock, and for entries that lie in their other bucket or beside one of the same tag.
 */
#define SEARCH(name, index, records, record, is_one, buckets) \
	GLOBAL u32 name(const struct tuple *t, u64 hash) \
	{ \
		u32 bucket = home_of(hash, head.buckets); \
		for (u32 round = 0; round < 2; round++) { \
			struct index_bucket *b = bpf_map_lookup_elem(&index, &bucket); \
			if (!b || !t) \
				return 0; \
			for (u32 i = 0; i < INDEX_SLOTS; i++) { \
				u64 slot = READ_ONCE(b->slot[i]); \
				u32 number = (u32)slot, at = number - 1; \
				if (slot >> 32 != (u32)hash || !number) \
					continue; \
				record *r = bpf_map_lookup_elem(&records, &at); \
				if (r && is_one(r, t)) \
					return number; \
			} \
			LOAD_BARRIER(); /* an entry moves from a slot after spilled is raised */ \
			if (!READ_ONCE(b->spilled)) \
				return 0; \
			bucket = other_of(hash, head.buckets); \
		} \
		return 0; \
	}

SEARCH(search_session6, sessions6, sessions, struct session, is_session6, session_buckets)
SEARCH(search_session4, sessions4, sessions, struct session, is_session4, session_buckets)
SEARCH(search_binding6, bindings6, bindings, struct binding, is_binding6, binding_buckets)
SEARCH(search_binding4, bindings4, bindings, struct binding, is_binding4, binding_buckets)
SEARCH(search_subscriber, subscribers6, subscribers, struct subscriber, is_subscriber, subscriber_buckets)

/*
 * Enters a record in an index; the lock that prevents two entries of one key is held. An
 * entry in its other bucket is counted at home before it can be there.
 */
#define ENTER(name, index, buckets) \
	INLINE int name##_into(u32 bucket, u64 slot) \
	{ \
		struct index_bucket *b = bpf_map_lookup_elem(&index, &bucket); \
		if (!b) \
			return 0; \
		for (u32 i = 0; i < INDEX_SLOTS; i++) \
			if (!READ_ONCE(b->slot[i]) && __sync_val_compare_and_swap(&b->slot[i], 0, slot) == 0) \
				return 1; \
		return 0; \
	} \
	GLOBAL int name(u32 number, u64 hash) \
	{ \
		u64 slot = (u64)(u32)hash << 32 | number; \
		u32 home = home_of(hash, head.buckets); \
		if (name##_into(home, slot)) \
			return 1; \
		struct index_bucket *b = bpf_map_lookup_elem(&index, &home); \
		if (!b) \
			return 0; \
		__sync_fetch_and_add(&b->spilled, 1); \
		if (name##_into(other_of(hash, head.buckets), slot)) \
			return 1; \
		__sync_fetch_and_add(&b->spilled, -1); \
		return 0; \
	}

ENTER(enter_session6, sessions6, session_buckets)
ENTER(enter_session4, sessions4, session_buckets)
ENTER(enter_binding6, bindings6, binding_buckets)
ENTER(enter_binding4, bindings4, binding_buckets)

/* Takes an entry back that was made a moment ago. */
#define LEAVE(name, index, buckets) \
	INLINE int name##_from(u32 bucket, u64 slot) \
	{ \
		struct index_bucket *b = bpf_map_lookup_elem(&index, &bucket); \
		if (!b) \
			return 0; \
		for (u32 i = 0; i < INDEX_SLOTS; i++) \
			if (READ_ONCE(b->slot[i]) == slot && __sync_val_compare_and_swap(&b->slot[i], slot, 0) == slot) \
				return 1; \
		return 0; \
	} \
	GLOBAL int name(u32 number, u64 hash) \
	{ \
		u64 slot = (u64)(u32)hash << 32 | number; \
		u32 home = home_of(hash, head.buckets); \
		if (name##_from(home, slot)) \
			return 1; \
		struct index_bucket *b = bpf_map_lookup_elem(&index, &home); \
		if (!b || !name##_from(other_of(hash, head.buckets), slot)) \
			return 0; \
		__sync_fetch_and_add(&b->spilled, -1); \
		return 1; \
	}

LEAVE(leave_session6, sessions6, session_buckets)
LEAVE(leave_binding6, bindings6, binding_buckets)

/* Bitmaps. */

/*
 * By the upper six bits of a power of two times this number, which all differ, which
 * power it is: clang has no instruction for that, and its own table breaks it.
 */
#define BIT_FACTOR 0x03f79d71b4cb0a89ULL
static const u8 bit_numbers[64] = {
	0, 1, 48, 2, 57, 49, 28, 3, 61, 58, 50, 42, 38, 29, 17, 4,
	62, 55, 59, 36, 53, 51, 43, 22, 45, 39, 33, 30, 24, 18, 12, 5,
	63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21, 44, 32, 23, 11,
	46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9, 13, 8, 7, 6,
};

/* The number of the lowest bit that is set; there is one. */
INLINE u32 lowest_bit(u64 x)
{
	u64 at = (x & -x) * BIT_FACTOR >> 58;
	HIDE(at); /* or it makes another table */
	return bit_numbers[at & 63];
}

/* Sets a bit; 0 if it was set. */
INLINE int take_bit(u64 *word, u32 bit)
{
	u64 mask = (u64)1 << (bit & 63);
	return !(__sync_fetch_and_or(word, mask) & mask);
}

INLINE void clear_bit(u64 *word, u32 bit) { __sync_fetch_and_and(word, ~((u64)1 << (bit & 63))); }

/* Notes that a session has changed, for the daemon. */
GLOBAL int mark_dirty(u32 index)
{
	u32 at = index / 64;
	u64 *word = bpf_map_lookup_elem(&sessions_dirty, &at);
	if (word)
		__sync_fetch_and_or(word, (u64)1 << (index & 63));
	return 0;
}

/* Locks. */

#define LOCK_TRIES 32

/* Takes a lock, unless it is held for long: there is no waiting here. */
NOINLINE int take_lock(u32 *lock)
{
	if (!lock)
		return 0;
	for (u32 i = 0; i < LOCK_TRIES; i++)
		if (__sync_val_compare_and_swap(lock, 0, 1) == 0)
			return 1;
	return 0;
}

/* Gives it back, behind all that was written under it. */
INLINE void give_lock(u32 *lock) { PUBLISH(*lock, 0); }

#endif
