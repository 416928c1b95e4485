//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The programs of a stateless translator (SIIT): native XDP, and tc at ingress.
 * siit_judge.h says what becomes of a packet; how each hook makes an IPv4 packet of an
 * IPv6 one, and back, is the same for all translators.
 */

#include "siit_xdp.h"
#include "siit_tc.h"

SEC("xdp.frags")
int isthmus_siit_xdp(struct xdp_md *ctx)
{
	return xdp_translate(ctx);
}

SEC("tc")
int isthmus_siit_ingress(struct __sk_buff *skb)
{
	return tc_translate(skb);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
