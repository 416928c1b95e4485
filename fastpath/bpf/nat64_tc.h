/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The translator on skbs: what a local sender left to hardware, cutting into segments and
 * checksums, stays left. A header that the kernel has changed is written to the end, or
 * the packet is dropped.
 */

#ifndef ISTHMUS_NAT64_TC_H
#define ISTHMUS_NAT64_TC_H

#include "nat64_icmp.h"

/* Ends the way of an skb that is not forwarded. */
GLOBAL int tc_end(struct __sk_buff *skb, u32 reason, u64 source, u64 now)
{
	reason = settle(reason, skb->len - ETHERNET_LEN, source, now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);
	return verdict_of(reason) == VERDICT_DROP ? TC_DROP : TC_PASS;
}

#define NO_SEGMENT (~0U)

/*
 * The largest packet that an skb will be cut to, with its IP header of so many bytes; 0
 * when it is whole, NO_SEGMENT when it is not TCP, whose cuts may lie in other skbs, out
 * of reach. tcp is in front of end.
 */
INLINE u32 segment_of(const struct __sk_buff *skb, u32 header, u8 protocol, const u8 *tcp, void *end)
{
	if (LIKELY(!skb->gso_size))
		return 0;
	if (protocol != PROTO_TCP || (void *)tcp + TCP_LEN > end)
		return NO_SEGMENT;
	return header + (tcp[12] >> 4) * 4 + skb->gso_size;
}

/* Makes an skb as long as its header says; 0 if that cannot be. */
INLINE int tc_trim(struct __sk_buff *skb, u32 length, u32 size)
{
	return LIKELY(length == size) || bpf_skb_change_tail(skb, ETHERNET_LEN + size, 0) == 0;
}

/*
 * Brings the checksum of the transport behind a new header of so many bytes up to date.
 * What an skb knows of the sum of its bytes gains those of the header.
 */
INLINE int tc_checksum(struct __sk_buff *skb, u32 header, u32 transport, struct changes by, u32 header_sum)
{
	u32 at = ETHERNET_LEN + header + checksum_at(transport);
	u64 flags = transport == TRANSPORT_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	if (bpf_l4_csum_replace(skb, at, 0, by.pseudo, flags | BPF_F_PSEUDO_HDR))
		return 0;
	if (by.own && bpf_l4_csum_replace(skb, at, 0, by.own, flags))
		return 0;
	bpf_csum_update(skb, header_sum);
	return 1;
}

/* Whether there are so many bytes in one piece; it may move the packet. */
INLINE int tc_pull(struct __sk_buff *skb, u32 want)
{
	if (LIKELY((void *)(long)skb->data + want <= (void *)(long)skb->data_end))
		return 1;
	return bpf_skb_pull_data(skb, skb->len < want ? skb->len : want) == 0;
}

/* The sum of so many bytes from an offset on. */
GLOBAL u32 tc_sum(struct __sk_buff *skb, u32 offset, u32 length)
{
	return sum_bytes((void *)(long)skb->data, (void *)(long)skb->data_end, offset, length);
}

/* Puts new headers of an error into an skb that was grown or cut for them. */
INLINE int tc_store_error(struct __sk_buff *skb, const struct error *e, u32 length, u16 type)
{
	if (bpf_skb_store_bytes(skb, ETHERNET_LEN, e->headers, length, BPF_F_RECOMPUTE_CSUM))
		return TC_DROP;
	be16 checksum = e->tcp_checksum;
	if (e->has_tcp_checksum &&
	    bpf_skb_store_bytes(skb, ETHERNET_LEN + length - UDP_LEN + 16, &checksum, 2, BPF_F_RECOMPUTE_CSUM))
		return TC_DROP;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN > end)
		return TC_DROP;
	store_ethernet(data, e->mac0, e->mac1, type);
	return bpf_redirect(e->ifindex, 0);
}

GLOBAL int tc_error_to4(struct __sk_buff *skb, u64 now)
{
	if (skb->gso_size || !tc_pull(skb, ETHERNET_LEN + LARGEST_ERROR4 + ERROR_GROWTH))
		return TC_PASS;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct error *e = new_error();
	if (!e || data + ETHERNET_LEN + IPV6_LEN > end)
		return TC_PASS;
	u32 prefix = prefix_of(U64_AT(data, ETHERNET_LEN + 24), U64_AT(data, ETHERNET_LEN + 32));
	if (prefix == NO_PREFIX)
		return TC_PASS;
	struct arrival in = {.now = now, .length = skb->len - ETHERNET_LEN, .hook = HOOK_INGRESS};
	u64 source = U64_AT(data, ETHERNET_LEN + 8);
	u32 sum = tc_sum(skb, ETHERNET_LEN + IPV6_LEN, FROM_BE16(U16_AT(data, ETHERNET_LEN + 4)));
	u32 reason = judge_error_to4(skb, data, end, prefix, sum, &in, e);
	if (reason != REASON_TO4_FORWARDED)
		return tc_end(skb, reason, source, now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);
	if (!tc_trim(skb, in.length, e->size) || bpf_skb_change_proto(skb, ETHERTYPE_IPV4, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now);
	if (bpf_skb_adjust_room(skb, IPV4_LEN - IPV6_LEN, ROOM_AT_MAC, 0))
		return TC_DROP;
	return tc_store_error(skb, e, ERROR4_LEN, ETHERTYPE_IPV4);
}

GLOBAL int tc_error_to6(struct __sk_buff *skb, u64 now)
{
	if (skb->gso_size || !tc_pull(skb, ETHERNET_LEN + LARGEST_ERROR6))
		return TC_PASS;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct error *e = new_error();
	if (!e || data + ETHERNET_LEN + IPV4_LEN > end)
		return TC_PASS;
	struct arrival in = {.now = now, .length = skb->len - ETHERNET_LEN, .hook = HOOK_INGRESS};
	be32 source = U32_AT(data, ETHERNET_LEN + 12);
	u32 sum = tc_sum(skb, ETHERNET_LEN + IPV4_LEN, FROM_BE16(U16_AT(data, ETHERNET_LEN + 2)) - IPV4_LEN);
	u32 reason = judge_error_to6(skb, data, end, sum, &in, e);
	if (reason == REASON_NOT_OURS)
		return TC_PASS;
	if (reason != REASON_TO6_FORWARDED)
		return tc_end(skb, reason, source, now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);
	if (!tc_trim(skb, in.length, e->size) || bpf_skb_change_proto(skb, ETHERTYPE_IPV6, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now);
	if (bpf_skb_adjust_room(skb, IPV6_LEN - IPV4_LEN, ROOM_AT_MAC, 0))
		return TC_DROP;
	count(REASON_TO6_FORWARDED, e->size);
	return tc_store_error(skb, e, ERROR6_LEN, ETHERTYPE_IPV6);
}

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
		return tc_end(skb, reason, U64_AT(p->source, 0), now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);

	struct content *c = &out.content;
	struct changes by = changes4(p->source, p->destination, c, out.size - IPV6_LEN, &out.ends);
	/* The kernel takes the first 20 bytes off the sum; the rest makes way for a header whose sum is 0. */
	u32 old = gone((u64)p->source[3] + sum6(p->destination));
	u8 tos = tos_of(traffic_class_of(p)), ttl = p->hops - 1;
	if (UNLIKELY(!tc_trim(skb, in.length, out.size)) || bpf_skb_change_proto(skb, ETHERTYPE_IPV4, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now);
	if (!tc_checksum(skb, IPV4_LEN, c->transport, by, old))
		return TC_DROP;
	u32 segment = in.segment ? in.segment : out.size;
	struct header4 h;
	make_header4(&h, tos, out.size - (IPV6_LEN - IPV4_LEN), make_id(count(REASON_TO4_FORWARDED, out.size)),
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
		if (!is_whole_pool4(p->destination) || p->version >> 4 != 4)
			return TC_PASS;
		return tc_end(skb, p->version == 0x45 ? REASON_FRAGMENT : REASON_IP_OPTIONS, p->source, now);
	}
	struct to6 out = {};
	struct content *c = &out.content;
	u32 reason = read_content4(p, end, c);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED)) {
		if (!is_whole_pool4(p->destination))
			return TC_PASS;
		return tc_end(skb, reason, p->source, now);
	}
	if (LIKELY(!is_for_pool4(p->destination, c)))
		return TC_PASS;
	reason = in.segment == NO_SEGMENT ? REASON_OFFLOAD : judge_to6(skb, p, &in, &out);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return tc_end(skb, reason, p->source, now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);

	u32 length = out.size - IPV4_LEN;
	struct changes by = changes6(p->source, p->destination, c, length, &out.ends);
	u64 first = first6(class_of(p->tos), length, protocol6(c->transport), p->ttl - 1);
	if (UNLIKELY(!tc_trim(skb, in.length, out.size)) || bpf_skb_change_proto(skb, ETHERTYPE_IPV6, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now);
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
INLINE int tc_nat64(struct __sk_buff *skb)
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
