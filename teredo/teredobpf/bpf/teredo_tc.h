/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The relay on skbs: what a local sender left to hardware, cutting into segments and
 * checksums, stays left.
 */

#ifndef ISTHMUS_TEREDO_TC_H
#define ISTHMUS_TEREDO_TC_H

#include "teredo.h"
#include "tunnel_tc.h"

/*
 * Leaves an skb of a proved peer to the engine for an offload that the fast path does
 * not keep. It is not counted against the budget of punts: a fast sender, or the card,
 * would spend that at once.
 */
GLOBAL int tc_leave(struct __sk_buff *skb, u64 now, u32 hook)
{
	count(REASON_OFFLOAD, skb->len - front_of(hook));
	if (is_sampled(now))
		sample_skb(skb, now, REASON_OFFLOAD, hook);
	return TC_PASS;
}

INLINE int tc_encap(struct __sk_buff *skb, u32 hook)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	const u32 front = front_of(hook);
	struct ip6 *p = data + front;
	if ((void *)(p + 1) + TCP_LEN > end) {
		/* Headers may lie apart. A packet shorter than this is whole now. */
		u32 want = front + IPV6_LEN + TCP_LEN;
		if (bpf_skb_pull_data(skb, skb->len < want ? skb->len : want))
			return TC_PASS;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		p = data + front;
		if ((void *)(p + 1) > end)
			return TC_PASS;
	}
	u32 tag = tag_of(p->destination[0]);
	if (LIKELY(tag == NO_TAG))
		return TC_PASS;
	u32 ifindex = skb->ifindex;
	struct device *d = device_at(ifindex);
	if (UNLIKELY(d->ifindex != ifindex && hook != HOOK_EGRESS))
		return TC_PASS;

	struct arrival in = {
		.now = bpf_ktime_get_coarse_ns(), .length = skb->len - front,
		.segment = segment_of(skb, IPV6_LEN, p->next, (void *)(p + 1), end), .device = hook == HOOK_EGRESS ? 0 : d->flags, .hook = hook,
	};
	struct encap e;
	u32 reason = in.segment == NO_SEGMENT ? REASON_OFFLOAD : judge_encap(skb, p, end, tag, &in, &e);
	if (UNLIKELY(reason != REASON_ENCAP_FORWARDED))
		return tc_end(skb, reason, U64_AT(p->source, 0), in.now, hook);
	/*
	 * Behind a veth may be a client in user space: no one would cut segments and finish
	 * checksums that lie inside its datagrams.
	 */
	u32 unfinished = is_unfinished(&in, p, end);
	if (hook != HOOK_EGRESS && (in.segment || unfinished) && e.hop->flags & DEVICE_PARTIAL &&
	    !(settings.flags & FLAG_UNFINISHED))
		return tc_leave(skb, in.now, hook);
	if (is_sampled(in.now))
		sample_skb(skb, in.now, reason, hook);

	u32 cost = hop_cost();
	/*
	 * One checksum cannot be that of all segments. And where the inner one is not
	 * finished, a NAT on the same machine would take the outer one for unfinished too,
	 * and spoil it.
	 */
	u64 sum = e.summed && !in.segment && !unfinished ? leaving_sum(p, cost) : 0;
	u8 hops = p->hops - cost;
	if (!tc_trim(skb, front, in.length, e.size))
		return tc_end(skb, REASON_NO_ROOM, 0, in.now, hook);
	u64 room = ROOM_FIXED_GSO | ROOM_ENCAP_IPV4 | ROOM_ENCAP_UDP;
	if (bpf_skb_adjust_room(skb, TUNNEL_LEN, ROOM_AT_MAC, room))
		return tc_end(skb, REASON_NO_ROOM, 0, in.now, hook);
	if (hook == HOOK_EGRESS && bpf_skb_change_head(skb, ETHERNET_LEN, 0))
		return TC_DROP; /* no longer a packet that the engine could take */
	struct tunnel_words w;
	struct outer o = outer_of(&e);
	make_tunnel(&w, &o, count(REASON_ENCAP_FORWARDED, e.size), sum);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + TUNNEL_LEN + 8 > end)
		return TC_DROP;
	store_tunnel(data, &w);
	*(u8 *)(data + ETHERNET_LEN + TUNNEL_LEN + 7) = hops;
	return bpf_redirect(e.hop->ifindex, 0);
}

/*
 * Takes the tunnel header off. extra bytes are taken too and put back empty: so far the
 * start of the outer UDP checksum must go for an skb to forget that it was not finished.
 */
INLINE int tc_unwrap(struct __sk_buff *skb, u32 extra)
{
	if (tc_unwrap6(skb, TUNNEL_LEN + extra))
		return -1;
	return extra ? bpf_skb_adjust_room(skb, extra, ROOM_AT_MAC, ROOM_FIXED_GSO) : 0;
}

/*
 * Leaves datagrams that came merged in one skb to the engine, whose socket takes them
 * so.
 */
GLOBAL int tc_merged(struct __sk_buff *skb, u64 now, u32 hook)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tunnel *t = data + ETHERNET_LEN;
	struct ip6 *p = (void *)(t + 1);
	if ((void *)(p + 1) > end)
		return TC_PASS;
	struct arrival in = {.now = now, .hook = hook};
	struct decap d = {};
	if (judge_peer(t, p, &in, &d) != REASON_DECAP_FORWARDED)
		return tc_end(skb, REASON_OFFLOAD, t->source, now, hook);
	return tc_leave(skb, now, hook);
}

INLINE int tc_decap(struct __sk_buff *skb, u32 hook)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tunnel *t = data + ETHERNET_LEN;
	if ((void *)(t + 1) > end) {
		if (bpf_skb_pull_data(skb, ETHERNET_LEN + TUNNEL_LEN))
			return TC_PASS;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		t = data + ETHERNET_LEN;
		if ((void *)(t + 1) > end)
			return TC_PASS;
	}
	u32 ifindex = skb->ifindex;
	struct device *device = device_at(ifindex);
	if (UNLIKELY(t->version != 0x45 || t->fragment & TO_BE16(0x3fff))) {
		u32 odd = judge_odd(t, end);
		if (odd == REASON_NOT_OURS || device->ifindex != ifindex)
			return TC_PASS;
		return tc_end(skb, odd, t->source, bpf_ktime_get_coarse_ns(), hook);
	}
	if (!is_ours(t) || device->ifindex != ifindex)
		return TC_PASS;

	struct arrival in = {
		.now = bpf_ktime_get_coarse_ns(), .length = skb->len - ETHERNET_LEN,
		.device = device->flags, .hook = hook,
	};
	struct decap d = {};
	u32 reason = judge_outer(t, &in, &d);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return tc_end(skb, reason, t->source, in.now, hook);
	struct ip6 *p = (void *)(t + 1);
	if ((void *)(p + 1) + TCP_LEN > end) {
		u32 want = ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN + TCP_LEN;
		if (bpf_skb_pull_data(skb, skb->len < want ? skb->len : want))
			return tc_end(skb, REASON_NO_ROOM, 0, in.now, hook);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		t = data + ETHERNET_LEN;
		p = (void *)(t + 1);
		if ((void *)(p + 1) > end)
			return TC_PASS;
	}
	if (UNLIKELY(skb->gso_size) && FROM_BE16(p->length) + IPV6_LEN + UDP_LEN != d.udp_length)
		return tc_merged(skb, in.now, hook);
	in.segment = segment_of(skb, IPV6_LEN, p->next, (void *)(p + 1), end);
	if (in.segment == NO_SEGMENT || (in.segment && !fixed.decap_flag))
		reason = REASON_OFFLOAD;
	else
		reason = judge_decap(skb, t, end, &in, &d);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return tc_end(skb, reason, t->source, in.now, hook);
	if (UNLIKELY(in.segment && hook != HOOK_HOST_INGRESS && !(d.hop->flags & DEVICE_WHOLE)))
		return tc_end(skb, REASON_OFFLOAD, t->source, in.now, hook);
	u64 first = U64_AT(p, 0);
	if (UNLIKELY(d.outer == SUM_OPEN)) {
		if (d.udp_length > SUM_MAX)
			return tc_end(skb, REASON_OFFLOAD, t->source, in.now, hook);
		if (!tc_sum(skb, d.udp_length))
			return tc_end(skb, REASON_BAD_CHECKSUM, 0, in.now, hook);
	}
	if (is_sampled(in.now))
		sample_skb(skb, in.now, reason, hook);
	if (!tc_trim(skb, ETHERNET_LEN, in.length, TUNNEL_LEN + d.size))
		return tc_end(skb, REASON_NO_ROOM, 0, in.now, hook);
	if (tc_unwrap(skb, UNLIKELY(d.outer == SUM_HALF) ? 8 : 0))
		return tc_end(skb, REASON_NO_ROOM, 0, in.now, hook);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + 8 > end)
		return TC_DROP;
	U64_AT(data, ETHERNET_LEN) = first - ((u64)hop_cost() << 56);
	touch(&d.peer, d.age, in.now);
	count(REASON_DECAP_FORWARDED, d.size + TUNNEL_LEN);
	if (hook == HOOK_HOST_INGRESS)
		return bpf_redirect(settings.tun, BPF_F_INGRESS);
	store_ethernet(data, d.hop->mac0, d.hop->mac1, ETHERTYPE_IPV6);
	return bpf_redirect(d.hop->ifindex, 0);
}

#endif
