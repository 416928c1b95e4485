/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Taking free records, and giving them back. Functions that take one return its number, or
 * 0 where they have found none.
 */

#ifndef ISTHMUS_NAT64_RECORDS_H
#define ISTHMUS_NAT64_RECORDS_H

#include "nat64_table.h"

#define SCAN_WORDS 64

/*
 * Takes a free record, near the one that this core took last: a cursor of its own keeps
 * cores apart. The daemon looks through all of a table that seems full here. A word is
 * chosen and looked at in a function of its own, or the verifier would follow each way
 * through all of them.
 */
#define TAKE_RECORD(name, map, cursor, records) \
	GLOBAL u32 name##_in(u32 at) \
	{ \
		u32 words = ((records) + 63) / 64; \
		at = at < words ? at : at % words; \
		u64 *word = bpf_map_lookup_elem(&map, &at); \
		u64 free = word ? ~READ_ONCE(*word) : 0; \
		if (!word || !free) \
			return 0; \
		u32 bit = lowest_bit(free), index = at * 64 + bit; \
		return index < (records) && take_bit(word, bit) ? index + 1 : 0; \
	} \
	GLOBAL u32 name(void) \
	{ \
		u32 zero = 0; \
		struct nat64_cursor *c = bpf_map_lookup_elem(&cursors, &zero); \
		if (!c) \
			return 0; \
		for (u32 i = 0; i < SCAN_WORDS; i++) { \
			u32 number = name##_in(c->cursor + i); \
			if (number) { \
				c->cursor = (number - 1) / 64; \
				return number; \
			} \
		} \
		c->cursor += SCAN_WORDS; \
		return 0; \
	}

TAKE_RECORD(take_session, sessions_used, session, head.sessions)
TAKE_RECORD(take_binding, bindings_used, binding, head.bindings)

/*
 * Anybody can send what makes a session from the IPv4 side: the last quarter of the records
 * is for what clients open (RFC 6888 REQ-4).
 */
TAKE_RECORD(take_session4, sessions_used, session4, head.sessions - head.sessions / 4)

GLOBAL int give_session(u32 number)
{
	u32 index = number - 1, at = index / 64;
	u64 *word = bpf_map_lookup_elem(&sessions_used, &at);
	if (word)
		clear_bit(word, index);
	return 0;
}

GLOBAL int give_binding(u32 number)
{
	u32 index = number - 1, at = index / 64;
	u64 *word = bpf_map_lookup_elem(&bindings_used, &at);
	if (word)
		clear_bit(word, index);
	return 0;
}

#endif
