/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The end of packets that are not forwarded. Each set of programs says before which
 * punts are UNRATIONED: a bit for each reason.
 */

#ifndef ISTHMUS_SETTLE_H
#define ISTHMUS_SETTLE_H

#include "budget.h"
#include "count.h"

/* Whether a reason is one of the punts that a flood must not have too many of. */
INLINE int is_rationed(u32 reason)
{
	return reason >= FIRST_PUNT && reason < FIRST_DROP && !(UNRATIONED >> (reason & 63) & 1);
}

/* The part of a /64, as a word of a packet, that distinguishes networks. */
#ifndef NETWORK_MASK
#define NETWORK_MASK (~0ULL)
#endif

/* A mark of the host in its network that sent a packet; 0 if it is none of IPv6. */
INLINE u64 host_of(const struct ip6 *p, const void *end)
{
	if ((const void *)(p + 1) > end || *(const u8 *)p >> 4 != 6)
		return 0;
	return scatter(U64_AT(p->source, 8)) | 1;
}

/*
 * Settles a packet that is not forwarded, with its IP header at p: punts may be too many.
 * The network is a /64 or an IPv4 address.
 */
INLINE u32 settle(u32 reason, u32 bytes, u64 network, const void *p, const void *end, u64 now)
{
	if (is_rationed(reason)) {
		u64 host = host_of(p, end);
		if (!may_punt(reason, host ? network & NETWORK_MASK : network, host, now))
			reason = REASON_PUNT_LIMIT;
	}
	count(reason, bytes);
	return reason;
}

#endif
