/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Skbs of a translator. A header that the kernel has changed is written to the end, or the
 * packet is dropped.
 */

#ifndef ISTHMUS_TRANSLATE_SKB_H
#define ISTHMUS_TRANSLATE_SKB_H

#include "translate_judge.h"
#include "skb.h"

/* How many packets an skb of that size will be cut to. */
INLINE u32 segments_of(const struct __sk_buff *skb, const struct arrival *in, u32 size)
{
	u32 each = skb->gso_size;
	if (LIKELY(!each) || size <= in->segment)
		return 1;
	return 1 + (size - in->segment + each - 1) / each;
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
