/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Types, codes, pointers and MTUs of ICMP errors in the other family (RFC 7915 sections
 * 4.2 and 5.2, figures 3 and 6).
 */

#ifndef ISTHMUS_NAT64_ICMP_TYPES_H
#define ISTHMUS_NAT64_ICMP_TYPES_H

#include "nat64_tables.h"
#include "translate_packet.h"

#define LARGEST_ERROR6 1280 /* RFC 4443 section 2.4 c */

/*
 * The head of an ICMP message: type and code in the lower half, its second word above. 0
 * is none.
 */
#define ICMP_KIND(type, code) ((type) | (u32)(code) << 8)
#define ICMP_HEAD(type, code, word) (ICMP_KIND(type, code) | (u64)(word) << 32)

/* The pointer of a Parameter Problem (RFC 7915 figures 3 and 6); ~0 for none. */
INLINE u32 pointer6(u32 pointer)
{
	if (pointer <= 1)
		return pointer;
	if (pointer <= 3)
		return 4;
	if (pointer == 8)
		return 7;
	if (pointer == 9)
		return 6;
	if (pointer >= 12 && pointer <= 15)
		return 8;
	return pointer >= 16 && pointer <= 19 ? 24 : ~0U;
}

INLINE u32 pointer4(u32 pointer)
{
	if (pointer <= 1)
		return pointer;
	if (pointer == 4 || pointer == 5)
		return 2;
	if (pointer == 6)
		return 9;
	if (pointer == 7)
		return 8;
	if (pointer >= 8 && pointer <= 23)
		return 12;
	return pointer >= 24 && pointer <= 39 ? 16 : ~0U;
}

/*
 * Translates the head of an ICMP error; a router that reports no MTU is the engine's. A
 * function of its own to the verifier, as are all with so many ways.
 */
GLOBAL u64 head_to6(u32 kind, u32 word, u32 mtu4, u32 mtu6)
{
	u32 code = kind >> 8 & 0xff, number;
	switch (kind & 0xff) {
	case ICMP_TIME_EXCEEDED:
		return ICMP_HEAD(ICMP6_TIME_EXCEEDED, code, 0);
	case ICMP_PARAMETER:
		number = pointer6(word & 0xff);
		if ((code != 0 && code != 2) || number == ~0U)
			return 0;
		return ICMP_HEAD(ICMP6_PARAMETER, 0, __builtin_bswap32(number));
	case ICMP_UNREACHABLE:
		break;
	default:
		return 0;
	}
	switch (code) {
	case 0: case 1: case 5: case 6: case 7: case 8: case 11: case 12:
		return ICMP_HEAD(ICMP6_UNREACHABLE, 0, 0);
	case 2:
		return ICMP_HEAD(ICMP6_PARAMETER, 1, __builtin_bswap32(6)); /* Next Header */
	case 3:
		return ICMP_HEAD(ICMP6_UNREACHABLE, 4, 0);
	case 4:
		number = FROM_BE16(word >> 16);
		if (!number)
			return 0;
		number += IPV6_LEN - IPV4_LEN;
		mtu4 += IPV6_LEN - IPV4_LEN;
		number = number > mtu6 ? mtu6 : number;
		number = number > mtu4 ? mtu4 : number;
		number = number < LARGEST_ERROR6 ? LARGEST_ERROR6 : number;
		return ICMP_HEAD(ICMP6_TOO_BIG, 0, __builtin_bswap32(number));
	case 9: case 10: case 13: case 15:
		return ICMP_HEAD(ICMP6_UNREACHABLE, 1, 0);
	}
	return 0;
}

GLOBAL u64 head_to4(u32 kind, u32 word, u32 mtu4, u32 mtu6)
{
	u32 code = kind >> 8 & 0xff, number = __builtin_bswap32(word);
	switch (kind & 0xff) {
	case ICMP6_UNREACHABLE:
		if (code > 4)
			return 0;
		return ICMP_HEAD(ICMP_UNREACHABLE, code == 1 ? 10 : code == 4 ? 3 : 1, 0);
	case ICMP6_TOO_BIG:
		number = number > 1 << 20 ? 1 << 20 : number;
		number = number < 68 + IPV6_LEN - IPV4_LEN ? 68 : number - (IPV6_LEN - IPV4_LEN);
		number = number > mtu4 ? mtu4 : number;
		mtu6 -= IPV6_LEN - IPV4_LEN;
		number = number > mtu6 ? mtu6 : number;
		number = number > 65535 ? 65535 : number;
		return ICMP_HEAD(ICMP_UNREACHABLE, 4, (u32)TO_BE16(number) << 16);
	case ICMP6_TIME_EXCEEDED:
		return ICMP_HEAD(ICMP_TIME_EXCEEDED, code, 0);
	case ICMP6_PARAMETER:
		if (code == 1)
			return ICMP_HEAD(ICMP_UNREACHABLE, 2, 0);
		number = pointer4(number);
		return code || number == ~0U ? 0 : ICMP_HEAD(ICMP_PARAMETER, 0, number);
	}
	return 0;
}

#endif
