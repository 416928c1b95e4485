/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A packet as it came, whatever the hook. */

#ifndef ISTHMUS_ARRIVAL_H
#define ISTHMUS_ARRIVAL_H

#include "types.h"

struct arrival {
	u64 now;
	u32 length;  /* from the outer IP header to the end of the frame */
	u32 segment; /* the largest packet that it will be cut to; 0: it is not */
	u32 device;  /* flags of the device where it came in */
	u32 hook;
};

#endif
