/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A stateless translator on frames: ICMP errors are the engine's. */

#ifndef ISTHMUS_SIIT_XDP_H
#define ISTHMUS_SIIT_XDP_H

#include "siit_judge.h"
#include "translate_frame.h"

INLINE int xdp_error_to4(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV6_LEN > end ||
	    prefix_of(U64_AT(data, ETHERNET_LEN + 24), U64_AT(data, ETHERNET_LEN + 32)) == NO_PREFIX)
		return XDP_PASS;
	return xdp_end(ctx, REASON_ICMP_ERROR, U64_AT(data, ETHERNET_LEN + 8), now);
}

INLINE int xdp_error_to6(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end || !is_translated4(U32_AT(data, ETHERNET_LEN + 16)))
		return XDP_PASS;
	return xdp_end(ctx, REASON_ICMP_ERROR, U32_AT(data, ETHERNET_LEN + 12), now);
}

#include "translate_xdp.h"

#endif
