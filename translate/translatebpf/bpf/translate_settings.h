/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* What all translators share with the daemon, beside base.h. */

#ifndef ISTHMUS_TRANSLATE_SETTINGS_H
#define ISTHMUS_TRANSLATE_SETTINGS_H

#include "base.h"

/* Transport protocols; with state, each has a BIB, a session table and ports of its own. */
enum transport {
	TRANSPORT_TCP,
	TRANSPORT_UDP,
	TRANSPORT_ICMP,
	TRANSPORTS,
};

#define MAX_POOL6 16

/* A prefix of pool6 (RFC 6052), in words as they are loaded from a packet. */
struct pool6_prefix {
	struct range6 range;
	u32 length; /* 32, 40, 48, 56, 64 or 96 */
	u32 flags;
};

/*
 * Identifications of IPv4 packets. The hash of source and destination says which counter
 * theirs is, by its upper 16 bits, and by its lower ones what is added.
 */
#define IDENTIFICATIONS 65536

struct identifications {
	u64 key[3];
	u64 unused;
	u32 next[IDENTIFICATIONS]; /* atomic */
};

#define POOL6_STRICT 1 /* the well-known one, for global IPv4 addresses only */
#define POOL6_LEAVING 2 /* no longer named: for the sessions that there are */

#endif
