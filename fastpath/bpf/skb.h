/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Skbs, at tc: what a local sender left to hardware, cutting into segments and checksums,
 * stays left. Each set of programs includes settle.h in front.
 */

#ifndef ISTHMUS_SKB_H
#define ISTHMUS_SKB_H

#include "arrival.h"
#include "settle.h"
#include "trace.h"

/* What stands before the IP header at a hook: a TUN device has no Ethernet header. */
INLINE u32 front_of(u32 hook) { return hook == HOOK_EGRESS ? 0 : ETHERNET_LEN; }

/* Ends the way of an skb that is not forwarded. */
GLOBAL int tc_end(struct __sk_buff *skb, u32 reason, u64 source, u64 now, u32 hook)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	reason = settle(reason, skb->len - front_of(hook), source, data + front_of(hook), end, now);
	if (is_sampled(now))
		sample_skb(skb, now, reason, hook);
	return verdict_of(reason) == VERDICT_DROP ? TC_DROP : TC_PASS;
}

#define NO_SEGMENT (~0U)

/*
 * The largest packet that an skb will be cut to, with its IP header of so many bytes; 0
 * when it is whole, NO_SEGMENT when it is not TCP, whose cuts may lie in other skbs, out
 * of reach, and would not survive a tunnel. tcp is in front of end.
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
INLINE int tc_trim(struct __sk_buff *skb, u32 front, u32 length, u32 size)
{
	return LIKELY(length == size) || bpf_skb_change_tail(skb, front + size, 0) == 0;
}

#endif
