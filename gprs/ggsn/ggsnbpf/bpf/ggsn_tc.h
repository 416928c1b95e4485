/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The node on skbs: what a local sender left to hardware stays left. */

#ifndef ISTHMUS_GGSN_TC_H
#define ISTHMUS_GGSN_TC_H

#include "ggsn_down.h"
#include "ggsn_up.h"
#include "tunnel_tc.h"

/* Takes so many bytes of tunnel off a packet. */
INLINE int tc_unwrap(struct __sk_buff *skb, u32 front, u32 six)
{
	if (six)
		return tc_unwrap6(skb, front);
	return bpf_skb_adjust_room(skb, -(s32)front, ROOM_AT_MAC, ROOM_FIXED_GSO);
}

/* A datagram of IPv4; the node's are judged, all others pass. */
GLOBAL int tc_up(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tunnel *t = data + ETHERNET_LEN;
	u8 *g = (void *)(t + 1);
	if ((void *)g + GTP_LEN > end)
		return TC_PASS;
	if (UNLIKELY(t->version != 0x45 || t->fragment & IPV4_FRAGMENT)) {
		u32 odd = judge_odd(t, end);
		return odd == REASON_NOT_OURS ? TC_PASS : tc_end(skb, odd, t->source, now, HOOK_INGRESS);
	}
	if (!is_ours(t))
		return TC_PASS;
	struct arrival in = {
		.now = now, .length = skb->len - ETHERNET_LEN,
		.device = device_at(skb->ifindex)->flags, .hook = HOOK_INGRESS,
	};
	struct up u = {};
	be32 node = t->source;
	/* Datagrams that came merged the engine's socket takes so. */
	u32 reason = UNLIKELY(skb->gso_size) ? REASON_OFFLOAD : judge_outer(t, &in, &u);
	if (LIKELY(!reason)) {
		void *p = inside_of(g);
		HIDE(p); /* the verifier wants the second comparison, too */
		if (UNLIKELY((void *)g + GTP_LEN + GTP_OPTIONAL_LEN + IPV4_LEN > end || p + IPV4_LEN > end))
			reason = REASON_SHORT_PAYLOAD;
		else
			reason = judge_up(skb, t, p, end, &in, &u);
	}
	if (UNLIKELY(!reason && u.outer == SUM_OPEN)) {
		if (u.udp_length > SUM_MAX)
			reason = REASON_OFFLOAD;
		else if (!tc_sum(skb, u.udp_length))
			reason = REASON_BAD_CHECKSUM;
	}
	u64 source = source_of(&u, node);
	if (LIKELY(!reason))
		reason = pass_up(&u, now);
	if (UNLIKELY(reason))
		return tc_end(skb, reason, source, now, HOOK_INGRESS);
	if (is_sampled(now))
		sample_skb(skb, now, REASON_UP_FORWARDED, HOOK_INGRESS);
	if (!tc_trim(skb, ETHERNET_LEN, in.length, u.front + u.inner.size) || tc_unwrap(skb, u.front, u.inner.six))
		return tc_end(skb, REASON_NO_ROOM, 0, now, HOOK_INGRESS);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end)
		return TC_DROP;
	store_ethernet(data, u.exit.mac0, u.exit.mac1, u.inner.six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4);
	take_hop(data + ETHERNET_LEN, u.inner.six);
	count(REASON_UP_FORWARDED, u.inner.size);
	return bpf_redirect(u.exit.ifindex, 0);
}

/* Sends a packet that was judged to its node. */
INLINE int tc_send_down(struct __sk_buff *skb, struct arrival *in, struct down *d, u64 source, u32 unfinished)
{
	/* Behind a veth may be a node in user space: no one would finish what lies inside its datagrams. */
	u32 reason = UNLIKELY(unfinished && d->exit.flags & DEVICE_PARTIAL) ? REASON_OFFLOAD : pass_down(d, in->now);
	if (UNLIKELY(reason))
		return tc_end(skb, reason, source, in->now, HOOK_INGRESS);
	if (is_sampled(in->now))
		sample_skb(skb, in->now, REASON_DOWN_FORWARDED, HOOK_INGRESS);
	u64 room = ROOM_FIXED_GSO | ROOM_ENCAP_IPV4 | ROOM_ENCAP_UDP;
	if (!tc_trim(skb, ETHERNET_LEN, in->length, d->inner.size) ||
	    bpf_skb_adjust_room(skb, DOWN_LEN, ROOM_AT_MAC, room))
		return tc_end(skb, REASON_NO_ROOM, 0, in->now, HOOK_INGRESS);
	struct tunnel_words w;
	struct gtp_words g;
	make_down(&w, &g, d, !unfinished);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + DOWN_LEN + IPV4_LEN > end)
		return TC_DROP;
	store_tunnel(data, &w);
	U32_AT(data, ETHERNET_LEN + TUNNEL_LEN) = g.first;
	U32_AT(data, ETHERNET_LEN + TUNNEL_LEN + 4) = g.teid;
	take_hop(data + ETHERNET_LEN + DOWN_LEN, d->inner.six);
	return bpf_redirect(d->exit.ifindex, 0);
}

GLOBAL int tc_down6(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ip6 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return TC_PASS;
	struct arrival in = {
		.now = now, .length = skb->len - ETHERNET_LEN, .segment = skb->gso_size,
		.device = device_at(skb->ifindex)->flags, .hook = HOOK_INGRESS,
	};
	struct down d = {};
	u32 reason = judge_down6(skb, p, end, &in, &d);
	if (LIKELY(reason == REASON_NOT_OURS))
		return TC_PASS;
	u64 source = U64_AT(p->source, 0);
	if (UNLIKELY(reason))
		return tc_end(skb, reason, source, now, HOOK_INGRESS);
	return tc_send_down(skb, &in, &d, source, is_unfinished(&in, &d.inner, p, end));
}

GLOBAL int tc_down4(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ip4 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) > end)
		return TC_PASS;
	struct arrival in = {
		.now = now, .length = skb->len - ETHERNET_LEN, .segment = skb->gso_size,
		.device = device_at(skb->ifindex)->flags, .hook = HOOK_INGRESS,
	};
	struct down d = {};
	u32 reason = judge_down4(skb, p, end, &in, &d);
	if (LIKELY(reason == REASON_NOT_OURS))
		return TC_PASS;
	u32 source = p->source;
	if (UNLIKELY(reason))
		return tc_end(skb, reason, source, now, HOOK_INGRESS);
	return tc_send_down(skb, &in, &d, source, is_unfinished(&in, &d.inner, p, end));
}

#define HEADERS_LEN (ETHERNET_LEN + DOWN_LEN + GTP_OPTIONAL_LEN + IPV6_LEN + TCP_LEN)

/* What becomes of an skb. */
INLINE int tc_ggsn(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	if (skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present || device_at(ifindex)->ifindex != ifindex)
		return TC_PASS;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + HEADERS_LEN > end) {
		/* Headers may lie apart. A packet shorter than this is whole now. */
		if (bpf_skb_pull_data(skb, skb->len < HEADERS_LEN ? skb->len : HEADERS_LEN))
			return TC_PASS;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	u64 now = bpf_ktime_get_coarse_ns();
	if (skb->protocol == ETHERTYPE_IPV6)
		return tc_down6(skb, now);
	if (skb->protocol != ETHERTYPE_IPV4 || data + ETHERNET_LEN + IPV4_LEN > end)
		return TC_PASS;
	return U32_AT(data, ETHERNET_LEN + 16) == settings.source ? tc_up(skb, now) : tc_down4(skb, now);
}

#endif
