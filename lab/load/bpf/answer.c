//go:build ignore

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// A host that accepts and closes every TCP connection to the discard port, without
// any state: it answers SYN by SYN and ACK, and FIN by FIN and ACK. A second program
// counts those answers where they arrive.

#include "arrivals.h"

#include <linux/pkt_cls.h>

#define PROTOCOL_TCP 6
#define HEADER_TCP4 (ETHERNET + IPV4 + TCP)
#define HEADER_TCP6 (ETHERNET + IPV6 + TCP)

#define FIN 0x01
#define SYN 0x02
#define ACK 0x10

// Kinds of segments that are counted.
enum answer_kind { ANSWER_SYN, ANSWER_FIN, ANSWER_SYN_BACK, ANSWER_FIN_BACK, ANSWER_KINDS };

enum answer_kind *unused_answer_kind __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWER_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} answers SEC(".maps");

static __always_inline void count(__u32 kind)
{
	__u64 *n = bpf_map_lookup_elem(&answers, &kind);

	if (n)
		(*n)++;
}

static __always_inline void swap(__u8 *a, __u8 *b, int n)
{
	for (int i = 0; i < n; i++) {
		__u8 kept = a[i];

		a[i] = b[i];
		b[i] = kept;
	}
}

static __always_inline __u32 add(__u32 sum, const __u8 *b, int n)
{
	for (int i = 0; i < n; i += 2)
		sum += (__u32)b[i] << 8 | b[i + 1];
	return sum;
}

// answer turns a segment to the discard port into its answer. It returns whether
// there is one; drop tells of a segment that needs none.
static __always_inline bool answer(__u8 *data, const __u8 *end, bool *drop)
{
	if (data + HEADER_TCP4 > end || data[12] != ETHER_IPV4 >> 8 || data[13] != (ETHER_IPV4 & 0xff))
		return false;
	__u8 *ip = data + ETHERNET, *tcp = ip + IPV4;
	if (ip[0] != 0x45 || ip[9] != PROTOCOL_TCP || tcp[2] != 0 || tcp[3] != DISCARD)
		return false;
	if (!(tcp[13] & (SYN | FIN))) {
		*drop = true;
		return false;
	}
	count(tcp[13] & SYN ? ANSWER_SYN : ANSWER_FIN);
	swap(data, data + 6, 6);
	swap(ip + 12, ip + 16, 4);
	swap(tcp, tcp + 2, 2);
	tcp[13] = (tcp[13] & (SYN | FIN)) | ACK;
	tcp[16] = tcp[17] = 0;
	__u32 sum = add(add(PROTOCOL_TCP + TCP, ip + 12, 8), tcp, TCP);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	tcp[16] = sum >> 8;
	tcp[17] = sum;
	return true;
}

SEC("tc") int answer_tc(struct __sk_buff *skb)
{
	bool drop = false;

	if ((long)skb->data + HEADER_TCP4 > skb->data_end && skb->len >= HEADER_TCP4)
		bpf_skb_pull_data(skb, HEADER_TCP4);
	if (answer((void *)(long)skb->data, (void *)(long)skb->data_end, &drop))
		return bpf_redirect(skb->ifindex, 0);
	return drop ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("xdp") int answer_xdp(struct xdp_md *ctx)
{
	bool drop = false;

	if (answer((void *)(long)ctx->data, (void *)(long)ctx->data_end, &drop))
		return bpf_redirect(ctx->ingress_ifindex, 0);
	return drop ? XDP_DROP : XDP_PASS;
}

// back counts an answer and reports whether it was one.
static __always_inline bool back(const __u8 *data, const __u8 *end)
{
	if (data + HEADER_TCP6 > end || data[12] != ETHER_IPV6 >> 8 || data[13] != (ETHER_IPV6 & 0xff))
		return false;
	const __u8 *ip = data + ETHERNET, *tcp = ip + IPV6;
	if (ip[6] != PROTOCOL_TCP || tcp[0] != 0 || tcp[1] != DISCARD)
		return false;
	count(tcp[13] & SYN ? ANSWER_SYN_BACK : ANSWER_FIN_BACK);
	arrival();
	return true;
}

SEC("tc") int answered_tc(struct __sk_buff *skb)
{
	if ((long)skb->data + HEADER_TCP6 > skb->data_end && skb->len >= HEADER_TCP6)
		bpf_skb_pull_data(skb, HEADER_TCP6);
	return back((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("xdp") int answered_xdp(struct xdp_md *ctx)
{
	return back((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
