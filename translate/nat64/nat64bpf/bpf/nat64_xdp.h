/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A NAT64 on frames: ICMP errors here, all else as any translator does it. */

#ifndef ISTHMUS_NAT64_XDP_H
#define ISTHMUS_NAT64_XDP_H

#include "nat64_icmp.h"
#include "translate_frame.h"

/* The sum of so many bytes from an offset on. */
GLOBAL u32 xdp_sum(struct xdp_md *ctx, u32 offset, u32 length)
{
	return sum_bytes((void *)(long)ctx->data, (void *)(long)ctx->data_end, offset, length);
}

/* Puts new headers of an error into a frame that was grown or cut for them. */
INLINE int xdp_store_error(struct xdp_md *ctx, const struct error *e, u32 length, u16 type)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + length > end)
		return XDP_DROP;
	store_ethernet(data, e->mac0, e->mac1, type);
#pragma unroll
	for (u32 i = 0; i < length / 8; i++)
		U64_AT(data, ETHERNET_LEN + 8 * i) = U64_AT(e->headers, 8 * i);
	if (e->has_tcp_checksum) {
		u16 *field = data + ETHERNET_LEN + length - UDP_LEN + 16;
		if ((void *)(field + 1) > end)
			return XDP_DROP;
		*field = e->tcp_checksum;
	}
	return bpf_redirect(e->ifindex, 0);
}

GLOBAL int xdp_error_to4(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct error *e = new_error();
	if (!e || data + ETHERNET_LEN + IPV6_LEN > end)
		return XDP_PASS;
	u32 prefix = prefix_of(U64_AT(data, ETHERNET_LEN + 24), U64_AT(data, ETHERNET_LEN + 32));
	if (prefix == NO_PREFIX)
		return XDP_PASS;
	struct arrival in = {.now = now, .length = end - data - ETHERNET_LEN, .hook = HOOK_XDP};
	u64 source = U64_AT(data, ETHERNET_LEN + 8);
	u32 sum = xdp_sum(ctx, ETHERNET_LEN + IPV6_LEN, FROM_BE16(U16_AT(data, ETHERNET_LEN + 4)));
	u32 reason = judge_error_to4(ctx, data, end, prefix, sum, &in, e);
	if (reason != REASON_TO4_FORWARDED)
		return xdp_end(ctx, reason, source, now);
	if (is_sampled(now))
		sample_xdp(ctx, now, reason);
	if (in.length != e->size && xdp_trim(ctx, ETHERNET_LEN + e->size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	if (bpf_xdp_adjust_head(ctx, ERROR_GROWTH))
		return XDP_DROP;
	return xdp_store_error(ctx, e, ERROR4_LEN, ETHERTYPE_IPV4);
}

GLOBAL int xdp_error_to6(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct error *e = new_error();
	if (!e || data + ETHERNET_LEN + IPV4_LEN > end)
		return XDP_PASS;
	struct arrival in = {.now = now, .length = end - data - ETHERNET_LEN, .hook = HOOK_XDP};
	be32 source = U32_AT(data, ETHERNET_LEN + 12);
	u32 sum = xdp_sum(ctx, ETHERNET_LEN + IPV4_LEN, FROM_BE16(U16_AT(data, ETHERNET_LEN + 2)) - IPV4_LEN);
	u32 reason = judge_error_to6(ctx, data, end, sum, &in, e);
	if (reason == REASON_NOT_OURS)
		return XDP_PASS;
	if (reason != REASON_TO6_FORWARDED)
		return xdp_end(ctx, reason, source, now);
	if (is_sampled(now))
		sample_xdp(ctx, now, reason);
	if (in.length != e->size && xdp_trim(ctx, ETHERNET_LEN + e->size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	if (bpf_xdp_adjust_head(ctx, -ERROR_GROWTH))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	count(REASON_TO6_FORWARDED, e->size);
	return xdp_store_error(ctx, e, ERROR6_LEN, ETHERTYPE_IPV6);
}

#include "translate_xdp.h"

#endif
