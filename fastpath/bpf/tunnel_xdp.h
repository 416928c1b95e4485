/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* Tunnels on frames. */

#ifndef ISTHMUS_TUNNEL_XDP_H
#define ISTHMUS_TUNNEL_XDP_H

#include "frame.h"
#include "tunnel.h"

/* Checks the outer checksum the long way. */
GLOBAL int xdp_sum(struct xdp_md *ctx, u32 udp_length)
{
	return is_outer_good((void *)(long)ctx->data, (void *)(long)ctx->data_end, udp_length);
}

#endif
