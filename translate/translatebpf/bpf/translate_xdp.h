/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The translator on frames. What it does with ICMP errors, and who is on the other side
 * of a packet, say the headers in front: xdp_error_to4, xdp_error_to6; prefix_of,
 * is_translated4, takes4; judge_to4, judge_to6.
 */

#ifndef ISTHMUS_TRANSLATE_XDP_H
#define ISTHMUS_TRANSLATE_XDP_H

#include "translate_frame.h"

/*
 * The ways of each kind of packet are functions of their own: none needs the stack of
 * another.
 */
GLOBAL int xdp_to4(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ip6 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) + ICMP_LEN > end)
		return XDP_PASS;
	u32 prefix = prefix_of(U64_AT(p->destination, 0), U64_AT(p->destination, 8));
	if (LIKELY(prefix == NO_PREFIX))
		return XDP_PASS;
	struct arrival in = {
		.now = now, .length = end - data - ETHERNET_LEN,
		.device = device_at(ctx->ingress_ifindex)->flags, .hook = HOOK_XDP,
	};
	struct to4 out = {};
	u32 reason = judge_to4(ctx, p, end, prefix, &in, &out);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return xdp_end(ctx, reason, U64_AT(p->source, 0), in.now);
	if (is_sampled(in.now))
		sample_xdp(ctx, in.now, reason);
	struct content *c = &out.content;
	if (UNLIKELY(is_unfinished(&in, c, pseudo6(p)))) {
		if (!xdp_finish(ctx, ETHERNET_LEN + IPV6_LEN, out.size - IPV6_LEN, protocol4(c->transport)))
			return xdp_end(ctx, REASON_OFFLOAD, 0, in.now);
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		p = data + ETHERNET_LEN;
		u16 *field = (void *)(p + 1) + checksum_at(c->transport);
		if ((void *)(p + 1) > end || (void *)(field + 1) > end)
			return XDP_DROP;
		c->checksum = *field;
	}
	if (UNLIKELY(in.length != out.size)) {
		if (xdp_trim(ctx, ETHERNET_LEN + out.size))
			return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		p = data + ETHERNET_LEN;
		if ((void *)(p + 1) > end)
			return XDP_DROP;
	}

	u32 size = out.size - (IPV6_LEN - IPV4_LEN);
	struct changes by = changes4(p->source, p->destination, c, out.size - IPV6_LEN, &out.ends);
	be16 checksum = new_checksum(c, by);
	struct header4 h;
	count(REASON_TO4_FORWARDED, out.size);
	make_header4(&h, tos_of(traffic_class_of(p)), size, identify(out.ends.source, out.ends.destination, 1),
		     size > LARGEST_UNCUT ? IPV4_DF : 0, p->hops - 1, protocol4(c->transport), out.ends.source,
		     out.ends.destination);
	if (bpf_xdp_adjust_head(ctx, IPV6_LEN - IPV4_LEN))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end)
		return XDP_DROP;
	store_ethernet(data, out.hop->mac0, out.hop->mac1, ETHERTYPE_IPV4);
	store_header4(data + ETHERNET_LEN, &h);
	if (!store_transport(data + ETHERNET_LEN + IPV4_LEN, end, c, query4(c->type), out.ends.source_port,
			     out.ends.destination_port, checksum))
		return XDP_DROP;
	return bpf_redirect(out.hop->ifindex, 0);
}

GLOBAL int xdp_to6(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ip4 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) + ICMP_LEN > end)
		return XDP_PASS;
	struct arrival in = {
		.now = now, .length = end - data - ETHERNET_LEN,
		.device = device_at(ctx->ingress_ifindex)->flags, .hook = HOOK_XDP,
	};
	if (UNLIKELY(p->version != 0x45 || p->fragment & IPV4_FRAGMENT)) {
		if (!is_translated4(p->destination) || p->version >> 4 != 4)
			return XDP_PASS;
		return xdp_end(ctx, p->version == 0x45 ? REASON_FRAGMENT : REASON_IP_OPTIONS, p->source, in.now);
	}
	struct to6 out = {};
	struct content *c = &out.content;
	u32 reason = read_content4(p, end, c);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED)) {
		if (!is_translated4(p->destination))
			return XDP_PASS;
		return xdp_end(ctx, reason, p->source, in.now);
	}
	if (LIKELY(!takes4(p->destination, &out)))
		return XDP_PASS;
	reason = judge_to6(ctx, p, &in, &out);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return xdp_end(ctx, reason, p->source, in.now);
	if (is_sampled(in.now))
		sample_xdp(ctx, in.now, reason);
	u64 pseudo = (u64)p->source + p->destination + TO_BE16(out.size - IPV4_LEN) + (p->protocol << 8);
	if (UNLIKELY(is_unfinished(&in, c, pseudo))) {
		if (!xdp_finish(ctx, ETHERNET_LEN + IPV4_LEN, out.size - IPV4_LEN, protocol4(c->transport)))
			return xdp_end(ctx, REASON_OFFLOAD, 0, in.now);
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		p = data + ETHERNET_LEN;
		u16 *field = (void *)(p + 1) + checksum_at(c->transport);
		if ((void *)(p + 1) > end || (void *)(field + 1) > end)
			return XDP_DROP;
		c->checksum = *field;
	}
	if (UNLIKELY(in.length != out.size)) {
		if (xdp_trim(ctx, ETHERNET_LEN + out.size))
			return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		p = data + ETHERNET_LEN;
		if ((void *)(p + 1) > end)
			return XDP_DROP;
	}

	u32 length = out.size - IPV4_LEN;
	struct changes by = changes6(p->source, p->destination, c, length, &out.ends);
	be16 checksum = new_checksum(c, by);
	u64 first = first6(class_of(p->tos), length, protocol6(c->transport), p->ttl - 1);
	if (bpf_xdp_adjust_head(ctx, -(IPV6_LEN - IPV4_LEN)))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV6_LEN > end)
		return XDP_DROP;
	store_ethernet(data, out.hop->mac0, out.hop->mac1, ETHERTYPE_IPV6);
	store_header6(data + ETHERNET_LEN, first, &out.ends);
	if (!store_transport(data + ETHERNET_LEN + IPV6_LEN, end, c, query6(c->type), out.ends.source_port,
			     out.ends.destination_port, checksum))
		return XDP_DROP;
	count(REASON_TO6_FORWARDED, out.size);
	return bpf_redirect(out.hop->ifindex, 0);
}

/* What becomes of a frame. */
INLINE int xdp_translate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN + ICMP_LEN > end)
		return XDP_PASS;
	u32 ifindex = ctx->ingress_ifindex;
	struct device *d = device_at(ifindex);
	if (UNLIKELY(d->ifindex != ifindex || !is_for(d, data)))
		return XDP_PASS;
	u16 type = U16_AT(data, 12);
	u64 now = bpf_ktime_get_coarse_ns();
	if (type == ETHERTYPE_IPV4)
		return UNLIKELY(is_error4(data + ETHERNET_LEN)) ? xdp_error_to6(ctx, now) : xdp_to6(ctx, now);
	if (type != ETHERTYPE_IPV6 || data + ETHERNET_LEN + IPV6_LEN + ICMP_LEN > end)
		return XDP_PASS;
	return UNLIKELY(is_error6(data + ETHERNET_LEN)) ? xdp_error_to4(ctx, now) : xdp_to4(ctx, now);
}

#endif
