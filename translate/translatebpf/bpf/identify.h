/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Identifications of IPv4 packets, as translate/ipid makes them of the same memory
 * (docs/decisions/0019-what-nobody-may-foretell.md).
 */

#ifndef ISTHMUS_IDENTIFY_H
#define ISTHMUS_IDENTIFY_H

#include "tables.h"

/* Which counter two addresses have, in the upper 16 bits, and what is added, in the lower. */
INLINE u64 hash_identification(be32 source, be32 destination)
{
	u64 h = ((source | (u64)destination << 32) ^ shared.ids.key[0]) * 0x9e3779b97f4a7c15;
	h = ((h ^ h >> 32) + shared.ids.key[1]) * 0xd6e8feb86659fd93;
	h = ((h ^ h >> 29) + shared.ids.key[2]) * 0x9e3779b97f4a7c15;
	return h ^ h >> 32;
}

/*
 * Takes so many identifications in a row, one for each packet that an skb will be cut to,
 * from one address to another, and returns the first.
 */
INLINE be16 identify(be32 source, be32 destination, u32 packets)
{
	u64 h = hash_identification(source, destination);
	return TO_BE16(h + __sync_fetch_and_add(&shared.ids.next[h >> 48], packets));
}

#endif
