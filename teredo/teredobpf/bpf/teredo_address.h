/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* Addresses: whose they are, and what may be sent to them. */

#ifndef ISTHMUS_TEREDO_ADDRESS_H
#define ISTHMUS_TEREDO_ADDRESS_H

#include "teredo_tables.h"
#include "parse.h"

#define NO_TAG 0xff

/*
 * The tag of an address that has not the first prefix. A function of its own to the
 * verifier, which would otherwise follow each turn of the loop to the end.
 */
GLOBAL u32 other_tag_of(u32 first)
{
	for (u32 i = 1; i < MAX_PREFIXES; i++) {
		if (i >= settings.prefixes)
			break;
		if (settings.by_tag[i] == first)
			return i;
	}
	return NO_TAG;
}

/* The tag of an address, by its first word: which Teredo prefix it has. */
INLINE u32 tag_of(be32 first)
{
	u32 n = settings.prefixes;
	if (first == settings.prefix)
		return n ? 0 : NO_TAG;
	return LIKELY(n <= 1) ? NO_TAG : other_tag_of(first);
}

/* Whether an IPv4 address is one of our own. */
INLINE int is_own(be32 address)
{
	return address && settings.own[(u32)(address * settings.own_factor) >> 24] == address;
}

/* Whether clients may send to an address, in two words as they are loaded. */
GLOBAL u32 is_served(u64 high, u64 low)
{
	for (u32 i = 0; i < MAX_SERVE; i++) {
		if (i >= settings.serves)
			break;
		const struct range6 *r = &settings.serve[i];
		if ((((high ^ r->address[0]) & r->mask[0]) | ((low ^ r->address[1]) & r->mask[1])) == 0)
			return 1;
	}
	return 0;
}

/* Why clients may not send there; REASON_DECAP_FORWARDED if they may. */
INLINE u32 judge_destination(const struct address6 *a)
{
	const u32 *words = (const u32 *)a;
	if (!is_host(words))
		return REASON_BAD_DESTINATION;
	if (tag_of(words[0]) != NO_TAG)
		return REASON_TEREDO_TO_TEREDO;
	if (is_served(a->word[0], a->word[1]))
		return REASON_DECAP_FORWARDED;
	return settings.flags & FLAG_SERVE_MORE ? REASON_SERVE_LIST : REASON_NOT_SERVED;
}

/* Protocols that pass though the outer checksum must do without theirs. */
INLINE int is_unsummed(u8 next)
{
	return next == PROTO_SCTP || next == PROTO_ESP;
}

#endif
