/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A NAT64 on skbs: ICMP errors here, all else as any translator does it. */

#ifndef ISTHMUS_NAT64_TC_H
#define ISTHMUS_NAT64_TC_H

#include "nat64_icmp.h"
#include "translate_skb.h"

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
		return tc_end(skb, reason, source, now, HOOK_INGRESS);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);
	if (!tc_trim(skb, ETHERNET_LEN, in.length, e->size) || bpf_skb_change_proto(skb, ETHERTYPE_IPV4, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now, HOOK_INGRESS);
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
		return tc_end(skb, reason, source, now, HOOK_INGRESS);
	if (is_sampled(now))
		sample_skb(skb, now, reason, HOOK_INGRESS);
	if (!tc_trim(skb, ETHERNET_LEN, in.length, e->size) || bpf_skb_change_proto(skb, ETHERTYPE_IPV6, 0))
		return tc_end(skb, REASON_NO_ROOM, 0, now, HOOK_INGRESS);
	if (bpf_skb_adjust_room(skb, IPV6_LEN - IPV4_LEN, ROOM_AT_MAC, 0))
		return TC_DROP;
	count(REASON_TO6_FORWARDED, e->size);
	return tc_store_error(skb, e, ERROR6_LEN, ETHERTYPE_IPV6);
}

#include "translate_tc.h"

#endif
