/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* A stateless translator on skbs: ICMP errors are the engine's. */

#ifndef ISTHMUS_SIIT_TC_H
#define ISTHMUS_SIIT_TC_H

#include "siit_judge.h"
#include "translate_skb.h"

INLINE int tc_error_to4(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + IPV6_LEN > end ||
	    prefix_of(U64_AT(data, ETHERNET_LEN + 24), U64_AT(data, ETHERNET_LEN + 32)) == NO_PREFIX)
		return TC_PASS;
	return tc_end(skb, REASON_ICMP_ERROR, U64_AT(data, ETHERNET_LEN + 8), now, HOOK_INGRESS);
}

INLINE int tc_error_to6(struct __sk_buff *skb, u64 now)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + ETHERNET_LEN + IPV4_LEN > end || !is_translated4(U32_AT(data, ETHERNET_LEN + 16)))
		return TC_PASS;
	return tc_end(skb, REASON_ICMP_ERROR, U32_AT(data, ETHERNET_LEN + 12), now, HOOK_INGRESS);
}

#include "translate_tc.h"

#endif
