/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The pools: which packets are a NAT64's. */

#ifndef ISTHMUS_NAT64_POOL_H
#define ISTHMUS_NAT64_POOL_H

#include "nat64_tables.h"
#include "translate_prefix.h"

/*
 * Whether pool4 has an address, for a transport and a port in the host's order: of this
 * host's own addresses it has those ports alone.
 */
GLOBAL u32 is_in_pool4(be32 address, u32 transport, u32 port)
{
	for (u32 i = 0; i < MAX_POOL4; i++) {
		if (i >= settings.pool4_count)
			break;
		const struct pool4_range *r = &settings.pool4[i];
		if ((address ^ r->address) & r->mask)
			continue;
		if (!(r->flags & POOL4_OWN))
			return 1;
		if (transport >= TRANSPORTS)
			continue;
		u32 which = transport;
		HIDE(which);
		which &= 3; /* for the verifier */
		if (port >= r->first[which] && port <= r->last[which])
			return 1;
	}
	return 0;
}

/* The same for an address alone, all of whose packets are for the translator. */
INLINE u32 is_whole_pool4(be32 address) { return is_in_pool4(address, TRANSPORTS, 0); }

/* Whether an address is in pool4, with whatever ports. */
GLOBAL u32 is_any_pool4(be32 address)
{
	for (u32 i = 0; i < MAX_POOL4; i++) {
		if (i >= settings.pool4_count)
			break;
		if (((address ^ settings.pool4[i].address) & settings.pool4[i].mask) == 0)
			return 1;
	}
	return 0;
}

/*
 * Whether a packet to an IPv4 address is for the translator, by what it carries. An echo
 * request to an address of this host is for the host: its identifier is the sender's, and
 * says nothing about whose it is.
 */
INLINE u32 is_for_pool4(be32 destination, const struct content *c)
{
	if (c->transport == TRANSPORT_ICMP && c->type == ICMP_ECHO)
		return is_whole_pool4(destination);
	return is_in_pool4(destination, c->transport, FROM_BE16(c->destination));
}

#endif
