/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The node on frames. A frame has lost all that an skb knows: what a local sender left
 * unfinished is finished here.
 */

#ifndef ISTHMUS_GGSN_XDP_H
#define ISTHMUS_GGSN_XDP_H

#include "ggsn_down.h"
#include "ggsn_up.h"
#include "tunnel_xdp.h"

/* Whether a frame lies in parts, of which the first alone can be read. */
INLINE int is_in_parts(struct xdp_md *ctx, const struct arrival *in)
{
	return bpf_xdp_get_buff_len(ctx) != in->length + ETHERNET_LEN;
}

/* Finishes the checksum of a packet at an offset of the frame if its sender has not; 0 if that cannot be. */
INLINE int xdp_complete(struct xdp_md *ctx, u32 unfinished, u32 offset, const struct inner *i)
{
	return LIKELY(!unfinished) || xdp_finish(ctx, offset + i->header, i->size - i->header, i->next);
}

/* A datagram of IPv4; the node's are judged, all others pass. */
GLOBAL int xdp_up(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct tunnel *t = data + ETHERNET_LEN;
	u8 *g = (void *)(t + 1);
	if ((void *)g + GTP_LEN > end)
		return XDP_PASS;
	if (UNLIKELY(t->version != 0x45 || t->fragment & IPV4_FRAGMENT)) {
		u32 odd = judge_odd(t, end);
		return odd == REASON_NOT_OURS ? XDP_PASS : xdp_end(ctx, odd, t->source, now);
	}
	if (!is_ours(t))
		return XDP_PASS;
	struct arrival in = {
		.now = now, .length = end - data - ETHERNET_LEN,
		.device = device_at(ctx->ingress_ifindex)->flags, .hook = HOOK_XDP,
	};
	struct up u = {};
	be32 node = t->source;
	u32 unfinished = 0, reason = is_in_parts(ctx, &in) ? REASON_OFFLOAD : judge_outer(t, &in, &u);
	if (LIKELY(!reason)) {
		void *p = inside_of(g);
		HIDE(p); /* the verifier wants the second comparison, too */
		if (UNLIKELY((void *)g + GTP_LEN + GTP_OPTIONAL_LEN + IPV4_LEN > end || p + IPV4_LEN > end)) {
			reason = REASON_SHORT_PAYLOAD;
		} else {
			reason = judge_up(ctx, t, p, end, &in, &u);
			unfinished = !reason && is_unfinished(&in, &u.inner, p, end);
		}
	}
	/* A wire brings no checksum that is to be finished. */
	if (UNLIKELY(!reason && (u.outer == SUM_OPEN || (u.outer == SUM_HALF && !(in.device & DEVICE_PARTIAL))))) {
		if (u.udp_length > SUM_MAX)
			reason = REASON_OFFLOAD;
		else if (!xdp_sum(ctx, u.udp_length))
			reason = REASON_BAD_CHECKSUM;
	}
	if (UNLIKELY(!reason && unfinished && is_unfinishable(&u.inner)))
		reason = REASON_OFFLOAD;
	u64 source = source_of(&u, node);
	if (LIKELY(!reason))
		reason = pass_up(&u, now);
	if (UNLIKELY(reason))
		return xdp_end(ctx, reason, source, now);
	if (is_sampled(now))
		sample_xdp(ctx, now, REASON_UP_FORWARDED);
	if (!xdp_complete(ctx, unfinished, ETHERNET_LEN + u.front, &u.inner))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	if (UNLIKELY(in.length != u.inner.size + u.front) && xdp_trim(ctx, ETHERNET_LEN + u.front + u.inner.size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	if (bpf_xdp_adjust_head(ctx, u.front))
		return xdp_end(ctx, REASON_NO_ROOM, 0, now);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end)
		return XDP_DROP;
	store_ethernet(data, u.exit.mac0, u.exit.mac1, u.inner.six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4);
	take_hop(data + ETHERNET_LEN, u.inner.six);
	count(REASON_UP_FORWARDED, u.inner.size);
	return bpf_redirect(u.exit.ifindex, 0);
}

/* Sends a packet that was judged to its node. */
INLINE int xdp_send_down(struct xdp_md *ctx, struct arrival *in, struct down *d, u64 source, u32 unfinished)
{
	u32 reason = UNLIKELY(unfinished && is_unfinishable(&d->inner)) ? REASON_OFFLOAD : pass_down(d, in->now);
	if (UNLIKELY(reason))
		return xdp_end(ctx, reason, source, in->now);
	if (is_sampled(in->now))
		sample_xdp(ctx, in->now, REASON_DOWN_FORWARDED);
	if (!xdp_complete(ctx, unfinished, ETHERNET_LEN, &d->inner))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in->now);
	if (UNLIKELY(in->length != d->inner.size) && xdp_trim(ctx, ETHERNET_LEN + d->inner.size))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in->now);
	struct tunnel_words w;
	struct gtp_words g;
	make_down(&w, &g, d, 1);
	if (bpf_xdp_adjust_head(ctx, -DOWN_LEN))
		return xdp_end(ctx, REASON_NO_ROOM, 0, in->now);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + DOWN_LEN + IPV4_LEN > end)
		return XDP_DROP;
	store_tunnel(data, &w);
	U32_AT(data, ETHERNET_LEN + TUNNEL_LEN) = g.first;
	U32_AT(data, ETHERNET_LEN + TUNNEL_LEN + 4) = g.teid;
	take_hop(data + ETHERNET_LEN + DOWN_LEN, d->inner.six);
	return bpf_redirect(d->exit.ifindex, 0);
}

GLOBAL int xdp_down6(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ip6 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return XDP_PASS;
	struct arrival in = {
		.now = now, .length = end - data - ETHERNET_LEN,
		.device = device_at(ctx->ingress_ifindex)->flags, .hook = HOOK_XDP,
	};
	struct down d = {};
	u32 reason = judge_down6(ctx, p, end, &in, &d);
	if (UNLIKELY(reason != REASON_NOT_OURS && is_in_parts(ctx, &in)))
		reason = REASON_OFFLOAD;
	if (LIKELY(reason == REASON_NOT_OURS))
		return XDP_PASS;
	u64 source = U64_AT(p->source, 0);
	if (UNLIKELY(reason))
		return xdp_end(ctx, reason, source, now);
	return xdp_send_down(ctx, &in, &d, source, is_unfinished(&in, &d.inner, p, end));
}

GLOBAL int xdp_down4(struct xdp_md *ctx, u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ip4 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return XDP_PASS;
	struct arrival in = {
		.now = now, .length = end - data - ETHERNET_LEN,
		.device = device_at(ctx->ingress_ifindex)->flags, .hook = HOOK_XDP,
	};
	struct down d = {};
	u32 reason = judge_down4(ctx, p, end, &in, &d);
	if (UNLIKELY(reason != REASON_NOT_OURS && is_in_parts(ctx, &in)))
		reason = REASON_OFFLOAD;
	if (LIKELY(reason == REASON_NOT_OURS))
		return XDP_PASS;
	u32 source = p->source;
	if (UNLIKELY(reason))
		return xdp_end(ctx, reason, source, now);
	return xdp_send_down(ctx, &in, &d, source, is_unfinished(&in, &d.inner, p, end));
}

/* What becomes of a frame. */
INLINE int xdp_ggsn(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end)
		return XDP_PASS;
	u32 ifindex = ctx->ingress_ifindex;
	struct device *d = device_at(ifindex);
	if (UNLIKELY(d->ifindex != ifindex || !is_for(d, data)))
		return XDP_PASS;
	u16 type = U16_AT(data, 12);
	u64 now = bpf_ktime_get_coarse_ns();
	if (type == ETHERTYPE_IPV6)
		return xdp_down6(ctx, now);
	if (type != ETHERTYPE_IPV4)
		return XDP_PASS;
	return U32_AT(data, ETHERNET_LEN + 16) == settings.source ? xdp_up(ctx, now) : xdp_down4(ctx, now);
}

#endif
