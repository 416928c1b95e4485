//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

#include "siit_tables.h"

SEC("xdp.frags")
int isthmus_siit_xdp(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_PASS;
}

SEC("tc")
int isthmus_siit_ingress(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
