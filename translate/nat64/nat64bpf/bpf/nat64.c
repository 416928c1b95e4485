//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The programs of a NAT64: native XDP, tc at ingress, and what brings packets to the
 * host's own addresses to the engine. nat64_judge.h says what becomes of a packet; here
 * is how each hook makes an IPv4 packet of an IPv6 one, and back.
 */

#include "nat64_xdp.h"
#include "nat64_tc.h"
#include "nat64_steer.h"

SEC("xdp.frags")
int isthmus_nat64_xdp(struct xdp_md *ctx)
{
	return xdp_translate(ctx);
}

SEC("tc")
int isthmus_nat64_ingress(struct __sk_buff *skb)
{
	return tc_translate(skb);
}

SEC("tc")
int isthmus_nat64_steer(struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present || skb->protocol != ETHERTYPE_IPV4)
		return TC_PASS;
	return tc_steer(skb);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
