/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Frames of a translator. A frame has lost all that an skb knows: what a local sender
 * left unfinished is finished here, before its checksum is brought up to date.
 */

#ifndef ISTHMUS_TRANSLATE_FRAME_H
#define ISTHMUS_TRANSLATE_FRAME_H

#include "translate_judge.h"
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

/* Cuts what stands behind the packet: padding, mostly. */
GLOBAL int xdp_trim(struct xdp_md *ctx, u32 length)
{
	return bpf_xdp_adjust_tail(ctx, (int)(length - bpf_xdp_get_buff_len(ctx)));
}

/* Finishes the checksum of the transport at an offset of the frame. */
GLOBAL int xdp_finish(struct xdp_md *ctx, u32 offset, u32 length, u32 next)
{
	return finish_checksum((void *)(long)ctx->data, (void *)(long)ctx->data_end, offset, length, next);
}

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
