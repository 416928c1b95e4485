/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Skbs of a translator: what a local sender left to hardware, cutting into segments and
 * checksums, stays left. A header that the kernel has changed is written to the end, or
 * the packet is dropped.
 */

#ifndef ISTHMUS_TRANSLATE_SKB_H
#define ISTHMUS_TRANSLATE_SKB_H

#include "translate_judge.h"
#include "trace.h"

/* Ends the way of an skb that is not forwarded. */
GLOBAL int tc_end(struct __sk_buff *skb, u32 reason, u64 source, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	reason = settle(reason, skb->len - ETHERNET_LEN, source, data + ETHERNET_LEN, end, now);
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

/* How many packets an skb of that size will be cut to. */
INLINE u32 segments_of(const struct __sk_buff *skb, const struct arrival *in, u32 size)
{
	u32 each = skb->gso_size;
	if (LIKELY(!each) || size <= in->segment)
		return 1;
	return 1 + (size - in->segment + each - 1) / each;
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

#endif
