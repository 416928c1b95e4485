/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The relay on frames. A frame has lost all that an skb knows: what a local sender
 * left unfinished is finished here.
 */

#ifndef ISTHMUS_TEREDO_XDP_H
#define ISTHMUS_TEREDO_XDP_H

#include "teredo.h"
#include "tunnel_xdp.h"

INLINE int xdp_encap(struct xdp_md *ctx, void *data, void *end)
{
	struct ip6 *p = data + ETHERNET_LEN;
	u32 tag = tag_of(p->destination[0]);
	if (LIKELY(tag == NO_TAG))
		return XDP_PASS;
	u32 ifindex = ctx->ingress_ifindex;
	struct device *d = device_at(ifindex);
	if (UNLIKELY(d->ifindex != ifindex || !is_for(d, data)))
		return XDP_PASS;

	struct arrival in = {
		.now = bpf_ktime_get_coarse_ns(), .length = end - data - ETHERNET_LEN,
		.device = d->flags, .hook = HOOK_XDP,
	};
	struct encap e;
	u32 reason = judge_encap(ctx, p, end, tag, &in, &e);
	if (UNLIKELY(reason != REASON_ENCAP_FORWARDED))
		return xdp_end(ctx, reason, U64_AT(p->source, 0), in.now);
	if (is_sampled(in.now))
		sample_xdp(ctx, in.now, reason);
	/* Padding would look like trailers (RFC 6081 section 4). */
	if (UNLIKELY(in.length != e.size) && xdp_trim(ctx, ETHERNET_LEN + e.size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return XDP_PASS;
	if (UNLIKELY(is_unfinished(&in, p, end)) &&
	    !xdp_finish(ctx, ETHERNET_LEN + IPV6_LEN, e.size - IPV6_LEN, p->next))
		return xdp_end(ctx, REASON_OFFLOAD, 0, in.now);

	u32 cost = hop_cost();
	struct tunnel_words w;
	u64 n = count(REASON_ENCAP_FORWARDED, e.size);
	struct outer o = outer_of(&e);
	make_tunnel(&w, &o, n, e.summed ? leaving_sum(p, cost) : 0);
	ifindex = e.hop->ifindex;
	if (bpf_xdp_adjust_head(ctx, -TUNNEL_LEN))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN > end)
		return XDP_DROP;
	store_tunnel(data, &w);
	p = data + ETHERNET_LEN + TUNNEL_LEN;
	p->hops -= cost;
	return bpf_redirect(ifindex, 0);
}

INLINE int xdp_decap(struct xdp_md *ctx, void *data, void *end)
{
	struct tunnel *t = data + ETHERNET_LEN;
	u32 ifindex = ctx->ingress_ifindex;
	struct device *device = device_at(ifindex);
	if (UNLIKELY(t->version != 0x45 || t->fragment & TO_BE16(0x3fff))) {
		u32 odd = judge_odd(t, end);
		if (odd == REASON_NOT_OURS)
			return XDP_PASS;
		if (device->ifindex != ifindex || !is_for(device, data))
			return XDP_PASS;
		return xdp_end(ctx, odd, t->source, bpf_ktime_get_coarse_ns());
	}
	if (!is_ours(t))
		return XDP_PASS;
	if (UNLIKELY(device->ifindex != ifindex || !is_for(device, data)))
		return XDP_PASS;

	struct arrival in = {
		.now = bpf_ktime_get_coarse_ns(), .length = end - data - ETHERNET_LEN,
		.device = device->flags, .hook = HOOK_XDP,
	};
	struct decap d;
	struct ip6 *p = (void *)(t + 1);
	u32 reason = judge_outer(t, &in, &d);
	if (LIKELY(reason == REASON_DECAP_FORWARDED)) {
		if (UNLIKELY((void *)(p + 1) > end))
			reason = REASON_ODD_LENGTH;
		else
			reason = judge_decap(ctx, t, end, &in, &d);
	}
	if (UNLIKELY(reason == REASON_DECAP_FORWARDED && d.outer == SUM_OPEN)) {
		if (d.udp_length > SUM_MAX)
			reason = REASON_OFFLOAD;
		else if (!xdp_sum(ctx, d.udp_length))
			reason = REASON_BAD_CHECKSUM;
	}
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return xdp_end(ctx, reason, t->source, in.now);
	if (is_sampled(in.now))
		sample_xdp(ctx, in.now, reason);
	if (UNLIKELY(is_unfinished(&in, p, end)) &&
	    !xdp_finish(ctx, ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN, d.size - IPV6_LEN, p->next))
		return xdp_end(ctx, REASON_OFFLOAD, 0, in.now);
	if (UNLIKELY(in.length != d.size + TUNNEL_LEN) && xdp_trim(ctx, ETHERNET_LEN + TUNNEL_LEN + d.size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
	if (bpf_xdp_adjust_head(ctx, TUNNEL_LEN))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in.now);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return XDP_DROP;
	store_ethernet(data, d.hop->mac0, d.hop->mac1, ETHERTYPE_IPV6);
	p->hops -= hop_cost();
	touch(&d.peer, d.age, in.now);
	count(REASON_DECAP_FORWARDED, d.size + TUNNEL_LEN);
	return bpf_redirect(d.hop->ifindex, 0);
}

/* What becomes of a frame. */
INLINE int xdp_relay(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV6_LEN > end)
		return XDP_PASS;
	struct ethernet *e = data;
	if (e->type == ETHERTYPE_IPV6)
		return xdp_encap(ctx, data, end);
	if (e->type == ETHERTYPE_IPV4)
		return xdp_decap(ctx, data, end);
	return XDP_PASS;
}

#endif
