/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* SipHash-2-4: what it makes of one word does not follow from what it makes of others. */

#ifndef ISTHMUS_SIPHASH_H
#define ISTHMUS_SIPHASH_H

#include "types.h"

#define SIP_LENGTH ((u64)sizeof(u64) << 56) /* the last block of a message of one word */
#define SIP_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

#define SIP_ROUND(a, b, c, d) \
	do { \
		a += b; \
		b = SIP_ROTATE(b, 13) ^ a; \
		a = SIP_ROTATE(a, 32); \
		c += d; \
		d = SIP_ROTATE(d, 16) ^ c; \
		a += d; \
		d = SIP_ROTATE(d, 21) ^ a; \
		c += b; \
		b = SIP_ROTATE(b, 17) ^ c; \
		c = SIP_ROTATE(c, 32); \
	} while (0)

#define SIP_BLOCK(a, b, c, d, word) \
	do { \
		d ^= word; \
		SIP_ROUND(a, b, c, d); \
		SIP_ROUND(a, b, c, d); \
		a ^= word; \
	} while (0)

INLINE u64 siphash(const u64 *key, u64 word)
{
	u64 a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d;
	u64 c = key[0] ^ 0x6c7967656e657261, d = key[1] ^ 0x7465646279746573;
	SIP_BLOCK(a, b, c, d, word);
	SIP_BLOCK(a, b, c, d, SIP_LENGTH);
	c ^= 0xff;
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		SIP_ROUND(a, b, c, d);
	return a ^ b ^ c ^ d;
}

#endif
