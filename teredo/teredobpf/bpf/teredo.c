//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The programs of a relay: native XDP, and tc at ingress; and those of a relay for
 * its host alone, at the egress of the TUN device and at ingress. See teredo.h for
 * what they decide; here is how each hook takes a header off and puts one on.
 */

#include "teredo_xdp.h"
#include "teredo_tc.h"

SEC("xdp.frags")
int isthmus_xdp(struct xdp_md *ctx)
{
	return xdp_relay(ctx);
}

SEC("tc")
int isthmus_ingress(struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present)
		return TC_PASS;
	if (skb->protocol == ETHERTYPE_IPV6)
		return tc_encap(skb, HOOK_INGRESS);
	if (skb->protocol == ETHERTYPE_IPV4)
		return tc_decap(skb, HOOK_INGRESS);
	return TC_PASS;
}

SEC("tc")
int isthmus_egress(struct __sk_buff *skb)
{
	return skb->protocol == ETHERTYPE_IPV6 ? tc_encap(skb, HOOK_EGRESS) : TC_PASS;
}

SEC("tc")
int isthmus_host_ingress(struct __sk_buff *skb)
{
	if (skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present || skb->protocol != ETHERTYPE_IPV4)
		return TC_PASS;
	return tc_decap(skb, HOOK_HOST_INGRESS);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
