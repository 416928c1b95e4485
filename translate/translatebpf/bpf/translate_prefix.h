/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The prefixes of pool6: IPv4 addresses in IPv6 ones (RFC 6052). */

#ifndef ISTHMUS_TRANSLATE_PREFIX_H
#define ISTHMUS_TRANSLATE_PREFIX_H

#include "translate_packet.h"

#define NO_PREFIX 0xff

INLINE int is_in_range6(const struct range6 *r, u64 high, u64 low)
{
	return (((high ^ r->address[0]) & r->mask[0]) | ((low ^ r->address[1]) & r->mask[1])) == 0;
}

/*
 * The number of the longest prefix of pool6 that an address has. A function of its own to
 * the verifier, which would otherwise follow each turn of the loop to the end.
 */
GLOBAL u32 longest_prefix_of(u64 high, u64 low)
{
	u32 best = NO_PREFIX, length = 0;
	for (u32 i = 0; i < MAX_POOL6; i++) {
		const struct pool6_prefix *p = &settings.pool6[i];
		if (i >= settings.pool6_count)
			break;
		if (p->length > length && is_in_range6(&p->range, high, low)) {
			best = i;
			length = p->length;
		}
	}
	return best;
}

/* The number of the prefix of pool6 that an address has. */
INLINE u32 prefix_of(u64 high, u64 low)
{
	u32 n = settings.pool6_count;
	if (LIKELY(n == 1))
		return is_in_range6(&settings.pool6[0].range, high, low) ? 0 : NO_PREFIX;
	return n ? longest_prefix_of(high, low) : NO_PREFIX;
}

/*
 * Where the four octets lie: behind the prefix, but for octet 8, which is passed over.
 * In words as they are loaded from a packet.
 */
INLINE be32 extract(u32 prefix, u64 high, u64 low)
{
	u32 length = settings.pool6[prefix % MAX_POOL6].length;
	if (LIKELY(length == 96))
		return low >> 32;
	u64 front = length < 64 ? high >> (length & 63) : 0;
	return front | low >> 8 << ((64 - length) & 63);
}

/* The IPv6 form of an IPv4 address. */
INLINE void embed(u32 prefix, be32 address, struct address6 *out)
{
	const struct pool6_prefix *p = &settings.pool6[prefix % MAX_POOL6];
	u32 length = p->length;
	u64 a = address, high = p->range.address[0], low = p->range.address[1];
	if (LIKELY(length == 96)) {
		low |= a << 32;
	} else {
		if (length < 64)
			high |= a << (length & 63);
		low |= a >> ((64 - length) & 63) << 8;
	}
	out->word[0] = high;
	out->word[1] = low;
}

/*
 * Whether an address is one of those that are not global (internal/special), given
 * that its first octet may be.
 */
GLOBAL u32 is_special4(be32 address)
{
	u32 a = __builtin_bswap32(address);
	switch (a >> 24) {
	case 100:
		return a >> 22 == (100 << 2 | 1);
	case 169:
		return a >> 16 == (169 << 8 | 254);
	case 172:
		return a >> 20 == (172 << 4 | 1);
	case 192:
		return a >> 8 == (192 << 16) || a >> 8 == (192 << 16 | 2) || a >> 8 == (192 << 16 | 88 << 8 | 99) ||
		       a >> 16 == (192 << 8 | 168);
	case 198:
		return a >> 17 == (198 << 7 | 9) || a >> 8 == (198 << 16 | 51 << 8 | 100);
	case 203:
		return a >> 8 == (203 << 16 | 113);
	}
	return 1;
}

#define OCTET(x) (1ULL << ((x) & 63))

/* Whether the well-known prefix must not represent an address (RFC 6052 section 3.1). */
INLINE int is_non_global4(be32 address)
{
	u32 first = address & 0xff;
	u64 some = first < 64 ? OCTET(0) | OCTET(10) : first < 128 ? OCTET(100) | OCTET(127) :
		first < 192 ? OCTET(169) | OCTET(172) : ~0ULL << (224 & 63) | OCTET(192) | OCTET(198) | OCTET(203);
	return UNLIKELY(some >> (first & 63) & 1) && is_special4(address);
}

/* Whether the fast path carries packets from or to an IPv4 host by a prefix. */
INLINE u32 judge_peer4(be32 address, u32 prefix)
{
	if (UNLIKELY(is_illegal4(address)))
		return REASON_ILLEGAL_ADDRESS;
	if (settings.pool6[prefix % MAX_POOL6].flags & POOL6_STRICT && is_non_global4(address))
		return REASON_NON_GLOBAL;
	return 0;
}

#endif
