/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The translator on skbs. The headers in front say what translate_xdp.h wants of them, with
 * tc_error_to4 and tc_error_to6.
 */

#ifndef ISTHMUS_TRANSLATE_TC_H
#define ISTHMUS_TRANSLATE_TC_H

#include "translate_skb.h"

/*
 * The ways of each kind of packet are functions of their own: none needs the stack of
 * another.
 */
GLOBAL int tc_to4(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ip6 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) + ICMP_LEN > end)
		return TC_PASS;
	u32 prefix = prefix_of(U64_AT(p->destination, 0), U64_AT(p->destination, 8));
	if (LIKELY(prefix == NO_PREFIX))
		return TC_PASS;
	struct arrival in = {
		.now = now, .length = skb->len - ETHERNET_LEN,
		.segment = segment_of(skb, IPV6_LEN, p->next, (void *)(p + 1), end), .hook = HOOK_INGRESS,
	};
	struct to4 out = {};
	u32 reason = in.segment == NO_SEGMENT ? REASON_OFFLOAD : judge_to4(skb, p, end, prefix, &in, &out);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return tc_end(skb, reason, U64_AT(p->source, 0), now, HOOK_INGRESS);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);

	struct content *c = &out.content;
	struct changes by = changes4(p->source, p->destination, c, out.size - IPV6_LEN, &out.ends);
	/* The kernel takes the first 20 bytes off the sum; the rest makes way for a header whose sum is 0. */
	u32 old = gone((u64)p->source[3] + sum6(p->destination));
	u8 tos = tos_of(traffic_class_of(p)), ttl = p->hops - 1;
	if (UNLIKELY(!tc_trim(skb, ETHERNET_LEN, in.length, out.size)) || bpf_skb_change_proto(skb, ETHERTYPE_IPV4, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now, HOOK_INGRESS);
	if (!tc_checksum(skb, IPV4_LEN, c->transport, by, old))
		return TC_DROP;
	u32 segment = in.segment ? in.segment : out.size;
	struct header4 h;
	count(REASON_TO4_FORWARDED, out.size);
	make_header4(&h, tos, out.size - (IPV6_LEN - IPV4_LEN),
		     identify(out.ends.source, out.ends.destination, segments_of(skb, &in, out.size)),
		     segment > LARGEST_UNCUT + IPV6_LEN - IPV4_LEN ? IPV4_DF : 0, ttl, protocol4(c->transport), out.ends.source, out.ends.destination);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN + UDP_LEN > end)
		return TC_DROP;
	store_ethernet(data, out.hop->mac0, out.hop->mac1, ETHERTYPE_IPV4);
	store_header4(data + ETHERNET_LEN, &h);
	store_ports(data + ETHERNET_LEN + IPV4_LEN, c->transport, query4(c->type), out.ends.source_port,
		    out.ends.destination_port);
	return bpf_redirect(out.hop->ifindex, 0);
}

GLOBAL int tc_to6(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ip4 *p = data + ETHERNET_LEN;
	if ((void *)(p + 1) + ICMP_LEN > end)
		return TC_PASS;
	struct arrival in = {
		.now = now, .length = skb->len - ETHERNET_LEN,
		.segment = segment_of(skb, IPV4_LEN, p->protocol, (void *)(p + 1), end), .hook = HOOK_INGRESS,
	};
	if (UNLIKELY(p->version != 0x45 || p->fragment & IPV4_FRAGMENT)) {
		if (!is_translated4(p->destination) || p->version >> 4 != 4)
			return TC_PASS;
		return tc_end(skb, p->version == 0x45 ? REASON_FRAGMENT : REASON_IP_OPTIONS, p->source, now, HOOK_INGRESS);
	}
	struct to6 out = {};
	struct content *c = &out.content;
	u32 reason = read_content4(p, end, c);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED)) {
		if (!is_translated4(p->destination))
			return TC_PASS;
		return tc_end(skb, reason, p->source, now, HOOK_INGRESS);
	}
	if (LIKELY(!takes4(p->destination, &out)))
		return TC_PASS;
	reason = in.segment == NO_SEGMENT ? REASON_OFFLOAD : judge_to6(skb, p, &in, &out);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return tc_end(skb, reason, p->source, now, HOOK_INGRESS);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);

	u32 length = out.size - IPV4_LEN;
	struct changes by = changes6(p->source, p->destination, c, length, &out.ends);
	u64 first = first6(class_of(p->tos), length, protocol6(c->transport), p->ttl - 1);
	if (UNLIKELY(!tc_trim(skb, ETHERNET_LEN, in.length, out.size)) || bpf_skb_change_proto(skb, ETHERTYPE_IPV6, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now, HOOK_INGRESS);
	u32 added = fold((u32)first + (first >> 32) + sum_address6(&out.ends.source) + sum_address6(&out.ends.destination));
	if (!tc_checksum(skb, IPV6_LEN, c->transport, by, added))
		return TC_DROP;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + IPV6_LEN + UDP_LEN > end)
		return TC_DROP;
	store_ethernet(data, out.hop->mac0, out.hop->mac1, ETHERTYPE_IPV6);
	store_header6(data + ETHERNET_LEN, first, &out.ends);
	store_ports(data + ETHERNET_LEN + IPV6_LEN, c->transport, query6(c->type), out.ends.source_port,
		    out.ends.destination_port);
	count(REASON_TO6_FORWARDED, out.size);
	return bpf_redirect(out.hop->ifindex, 0);
}

/* What becomes of an skb. */
INLINE int tc_translate(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	if (skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present || device_at(ifindex)->ifindex != ifindex)
		return TC_PASS;
	u32 header = skb->protocol == ETHERTYPE_IPV6 ? IPV6_LEN : IPV4_LEN;
	if (UNLIKELY(!tc_pull(skb, ETHERNET_LEN + header + TCP_LEN)))
		return TC_PASS;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u64 now = bpf_ktime_get_coarse_ns();
	if (skb->protocol == ETHERTYPE_IPV6) {
		if (data + ETHERNET_LEN + IPV6_LEN + ICMP_LEN > end)
			return TC_PASS;
		return UNLIKELY(is_error6(data + ETHERNET_LEN)) ? tc_error_to4(skb, now) : tc_to4(skb, now);
	}
	if (skb->protocol != ETHERTYPE_IPV4 || data + ETHERNET_LEN + IPV4_LEN + ICMP_LEN > end)
		return TC_PASS;
	return UNLIKELY(is_error4(data + ETHERNET_LEN)) ? tc_error_to6(skb, now) : tc_to6(skb, now);
}

#endif
