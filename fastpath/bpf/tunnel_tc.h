/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Tunnels on skbs. Each set of programs has decap_flag in fixed: whether the kernel knows
 * ROOM_DECAP_IPV6.
 */

#ifndef ISTHMUS_TUNNEL_TC_H
#define ISTHMUS_TUNNEL_TC_H

#include "skb.h"
#include "tunnel.h"

/* Checks the outer checksum the long way. */
GLOBAL int tc_sum(struct __sk_buff *skb, u32 udp_length)
{
	if (bpf_skb_pull_data(skb, skb->len))
		return 0;
	return is_outer_good((void *)(long)skb->data, (void *)(long)skb->data_end, udp_length);
}

/*
 * Takes so many bytes of tunnel off an IPv6 packet. Kernels that cannot take IPv4 off IPv6
 * make the outer header an IPv6 one first.
 */
INLINE int tc_unwrap6(struct __sk_buff *skb, u32 length)
{
	s32 off = -(s32)length;
	if (fixed.decap_flag)
		return bpf_skb_adjust_room(skb, off, ROOM_AT_MAC, ROOM_FIXED_GSO | ROOM_DECAP_IPV6);
	if (bpf_skb_change_proto(skb, ETHERTYPE_IPV6, 0))
		return -1;
	return bpf_skb_adjust_room(skb, off - (IPV6_LEN - IPV4_LEN), ROOM_AT_MAC, ROOM_FIXED_GSO);
}

#endif
