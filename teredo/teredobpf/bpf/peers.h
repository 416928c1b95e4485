/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The table of trusted peers, written by the engine; teredo/peer/layout.go says how
 * it lies and how it is read while another writes.
 */

#ifndef ISTHMUS_PEERS_H
#define ISTHMUS_PEERS_H

#include "teredo_tables.h"
#include "parse.h"

/* A peer as it was found. */
struct peer {
	struct slot *slot;
	u32 state;
};

enum found {
	FOUND_NOT,
	FOUND_YES,
	FOUND_UNSURE, /* written at this moment: ask again, or somebody else */
};

INLINE u64 peer_hash(u32 tag, const u32 *k)
{
	u64 h = settings.peer_seed[0] + settings.peer_seed[1] * k[0] + settings.peer_seed[2] * k[1] +
		settings.peer_seed[3] * k[2] + settings.peer_seed[4] * tag;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15;
	return h ^ h >> 29;
}

/* 0 if x is 0, else 1, without a branch: the compiler must not see through it. */
INLINE u64 is_set(u64 x)
{
	u64 negative = x;
	__asm__ volatile("%0 = -%0" : "+r"(negative));
	return (x | negative) >> 63;
}

#define KEY_MASK ((u64)(STATE_USED | STATE_TAG) << 32 | 0xffffffff)

/*
 * Which slot of a bucket seems to hold a key; SLOTS_PER_BUCKET if none does. Where a
 * peer lies is random, so branches on it would be foreseen wrongly, and only when
 * memory has answered: nothing of the packet could be done meanwhile.
 */
INLINE u32 slot_of(const struct bucket *b, u64 k01, u64 k2s)
{
	u64 before = 1, slot = 0;
#pragma unroll
	for (int i = 0; i < SLOTS_PER_BUCKET; i++) {
		const struct slot *s = &b->slots[i];
		before &= is_set((READ_ONCE(s->k01) ^ k01) | ((READ_ONCE(s->k2s) ^ k2s) & KEY_MASK));
		slot += before;
	}
	return slot;
}

/* Looks into one bucket. */
INLINE int find_in(u32 index, u64 k01, u64 k2s, struct peer *p)
{
	struct bucket *b = bpf_map_lookup_elem(&peers, &index);
	if (UNLIKELY(!b))
		return FOUND_NOT;
	u32 at = slot_of(b, k01, k2s);
	if (at >= SLOTS_PER_BUCKET)
		return FOUND_NOT;
	struct slot *s = &b->slots[at];
	/* One load for the last word of the key and the state, which was written after it. */
	u64 seen = READ_ONCE(s->k2s);
	LOAD_BARRIER();
	u64 key = READ_ONCE(s->k01);
	LOAD_BARRIER();
	if (UNLIKELY((seen ^ k2s) & KEY_MASK || key != k01 || (READ_ONCE(s->k2s) ^ seen) >> 32 & ~STATE_STAMP))
		return FOUND_UNSURE;
	p->slot = s;
	p->state = seen >> 32;
	return FOUND_YES;
}

/*
 * Looks a peer up by its tag and the last twelve bytes of its address. The first
 * bucket is seen twice: a peer that moves there from the second is not missed.
 */
INLINE int find_peer(u32 tag, const u32 *k, struct peer *p)
{
	*p = (struct peer){}; /* or a verifier may see what the compiler moved about */
	u64 h = peer_hash(tag, k);
	u64 k01 = (u64)k[1] << 32 | k[0];
	u64 k2s = (u64)(STATE_USED | tag << STATE_TAG_SHIFT) << 32 | k[2];
	u32 first = (u32)h & fixed.bucket_mask;
	int found = find_in(first, k01, k2s, p);
	if (LIKELY(found != FOUND_NOT))
		return found;
	found = find_in((u32)(h >> 32) & fixed.bucket_mask, k01, k2s, p);
	if (found != FOUND_NOT)
		return found;
	return find_in(first, k01, k2s, p);
}

/* How long ago a peer was heard, in units of a stamp. */
INLINE u32 age_of(const struct peer *p, u64 now)
{
	u32 age = ((u32)(now >> STAMP_SHIFT) - p->state) & STATE_STAMP;
	return age > STATE_STAMP + 1 - STAMP_SKEW ? 0 : age;
}

/*
 * Records that a peer was heard, once a second at most. If the state has changed
 * since, another was here with the same news, or the peer is gone.
 */
INLINE void touch(const struct peer *p, u32 age, u64 now)
{
	if (age < STAMP_EVERY)
		return;
	u32 *state = (u32 *)&p->slot->k2s + 1;
	(void)__sync_val_compare_and_swap(state, p->state,
		(p->state & ~STATE_STAMP) | ((u32)(now >> STAMP_SHIFT) & STATE_STAMP));
}

/*
 * The mapping of a peer whose mapping is not in its address. The state is compared
 * after the mapping was read: before an entry can be used again the writer has
 * changed the state of the peer that it belonged to.
 */
INLINE int foreign_mapping(const struct peer *p, const struct address6 *key, struct mapping *m)
{
	struct mapping *found = bpf_map_lookup_elem(&foreign, key);
	if (!found)
		return FOUND_UNSURE;
	*(u64 *)m = READ_ONCE(*(u64 *)found);
	LOAD_BARRIER();
	if (((u32)(READ_ONCE(p->slot->k2s) >> 32) ^ p->state) & ~STATE_STAMP)
		return FOUND_UNSURE;
	return FOUND_YES;
}

/* Whether a client may be under test; no never errs. */
INLINE int may_be_tested(const struct address6 *a)
{
	u64 h = (a->word[0] ^ settings.filter_seed[0]) * 0x9e3779b97f4a7c15;
	h ^= h >> 32;
	h = (h + (a->word[1] ^ settings.filter_seed[1])) * 0xd6e8feb86659fd93;
	return READ_ONCE(shared.under_test[h >> 48]) != 0;
}

#endif
