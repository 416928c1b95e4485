/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Frames, at XDP. A frame has lost all that an skb knows: what a local sender left
 * unfinished is finished here. Each set of programs includes settle.h in front.
 */

#ifndef ISTHMUS_FRAME_H
#define ISTHMUS_FRAME_H

#include "arrival.h"
#include "checksum.h"
#include "settle.h"
#include "trace.h"

/* Ends the way of a frame that is not forwarded. */
GLOBAL int xdp_end(struct xdp_md *ctx, u32 reason, u64 source, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	reason = settle(reason, frame_length(ctx) - ETHERNET_LEN, source, data + ETHERNET_LEN, end, now);
	if (is_sampled(now))
		sample_xdp(ctx, now, reason);
	return verdict_of(reason) == VERDICT_DROP ? XDP_DROP : XDP_PASS;
}

/* Cuts what stands behind the packet: padding, mostly. Frames in parts are rare. */
GLOBAL int xdp_trim(struct xdp_md *ctx, u32 length)
{
	return bpf_xdp_adjust_tail(ctx, (int)(length - bpf_xdp_get_buff_len(ctx)));
}

/* Finishes the checksum of the transport at an offset of the frame. */
GLOBAL int xdp_finish(struct xdp_md *ctx, u32 offset, u32 length, u32 next)
{
	return finish_checksum((void *)(long)ctx->data, (void *)(long)ctx->data_end, offset, length, next);
}

#endif
