/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Frames of a translator: what a local sender left unfinished is finished before its
 * checksum is brought up to date.
 */

#ifndef ISTHMUS_TRANSLATE_FRAME_H
#define ISTHMUS_TRANSLATE_FRAME_H

#include "translate_judge.h"
#include "frame.h"

/*
 * Whether the checksum field holds the bare pseudo-header: a sender on this machine left
 * the rest to hardware. What came by a real wire and looks so is wrong, and stays so.
 */
INLINE int is_unfinished(const struct arrival *in, const struct content *c, u64 pseudo)
{
	return in->device & DEVICE_PARTIAL && c->transport != TRANSPORT_ICMP && c->checksum == fold(pseudo);
}

/* Writes what is new of the transport at p; returns 0 if it is not there. */
INLINE int store_transport(void *p, void *end, const struct content *c, u8 type, be16 source, be16 destination,
			   be16 checksum)
{
	if (c->transport == TRANSPORT_TCP) {
		if (p + TCP_LEN > end)
			return 0;
		U16_AT(p, 16) = checksum;
	} else {
		if (p + UDP_LEN > end)
			return 0;
		U16_AT(p, c->transport == TRANSPORT_UDP ? 6 : 2) = checksum;
	}
	store_ports(p, c->transport, type, source, destination);
	return 1;
}

#endif
