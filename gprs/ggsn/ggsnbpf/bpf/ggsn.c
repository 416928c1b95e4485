//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The programs of a GGSN: native XDP, and tc at ingress. ggsn_up.h and ggsn_down.h say what
 * becomes of a packet; here is how each hook takes a header off and puts one on.
 */

#include "ggsn_xdp.h"
#include "ggsn_tc.h"

SEC("xdp.frags")
int isthmus_ggsn_xdp(struct xdp_md *ctx)
{
	return xdp_ggsn(ctx);
}

SEC("tc")
int isthmus_ggsn_ingress(struct __sk_buff *skb)
{
	return tc_ggsn(skb);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
