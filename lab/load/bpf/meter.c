//go:build ignore

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// The two ends of a measured way. A program at the sender's device stamps test
// packets that carry a sequence number; one at the receiver's device stamps them
// again, counts all test packets, and drops them before any host answers.

#include "arrivals.h"

#include <linux/pkt_cls.h>

// STAMPS is how many packets can be on record at once.
#define STAMPS 65536

// MARK is the marker "isthmus!", as it lies in memory.
#define MARK 0x2173756d68747369ULL

// FRAGMENT is the fragment header of IPv6 (RFC 8200 section 4.5).
#define FRAGMENT 44

// TAG is the length of marker and sequence number.
#define TAG 16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STAMPS);
	__type(key, __u32);
	__type(value, __u64);
} departed SEC(".maps"), arrived SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASSES);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

// echo finds the header of an ICMP message of that type that carries the marker: its
// eight bytes are followed by the tag as those of UDP are.
static __always_inline const __u8 *echo(const __u8 *icmp, const __u8 *end, __u8 type)
{
	if (icmp + UDP + TAG > end || icmp[0] != type)
		return NULL;
	return *(const __u64 *)(icmp + UDP) == MARK ? icmp : NULL;
}

// Types of echo requests, which are what leaves, and replies, which are what arrives:
// a host must see the requests of others.
#define REQUEST4 8
#define REPLY4 0
#define REQUEST6 128
#define REPLY6 129

// is_discard reports whether a datagram goes to the port of test packets, or comes from it:
// behind a translator that is whence they come.
static __always_inline bool is_discard(const __u8 *udp)
{
	return (!udp[0] && udp[1] == DISCARD) || (!udp[2] && udp[3] == DISCARD);
}

// test_packet4 finds it in an IPv4 packet that is no tunnel.
static __always_inline const __u8 *test_packet4(const __u8 *ip, const __u8 *end, bool leaves)
{
	if (ip[9] == PROTOCOL_ICMP)
		return echo(ip + IPV4, end, leaves ? REQUEST4 : REPLY4);
	const __u8 *udp = ip + IPV4;
	if (ip[9] != PROTOCOL_UDP || udp + UDP > end || !is_discard(udp))
		return NULL;
	return udp;
}

// test_packet finds the header in front of the data of a test packet that leaves or
// arrives, in a tunnel or not.
static __always_inline const __u8 *test_packet(const __u8 *data, const __u8 *end, bool leaves)
{
	const __u8 *ip = data + ETHERNET;

	if (ip + IPV4 + UDP > end)
		return NULL;
	__u16 type = (__u16)data[12] << 8 | data[13];
	if (type == ETHER_IPV4) {
		if (ip[0] != 0x45)
			return NULL;
		const __u8 *plain = test_packet4(ip, end, leaves);
		if (plain)
			return plain;
		if (ip[9] != PROTOCOL_UDP)
			return NULL;
		ip += OUTER;
		if (ip + GTPU <= end && ip[0] >> 4 == 3 && ip[1] == GPDU)
			ip += ip[0] & 7 ? GTPU + GTPU_MORE : GTPU;
	} else if (type != ETHER_IPV6) {
		return NULL;
	}
	if (ip + IPV6 + UDP > end || ip[0] >> 4 != 6)
		return NULL;
	const __u8 *udp = ip + IPV6;
	if (ip[6] == PROTOCOL_ICMPV6)
		return echo(udp, end, leaves ? REQUEST6 : REPLY6);
	// The first fragment of an echo: some translators cut those that would fit.
	if (ip[6] == FRAGMENT && udp[0] == PROTOCOL_ICMPV6 && udp[2] == 0 && udp[3] == 1)
		return echo(udp + 8, end, leaves ? REQUEST6 : REPLY6);
	if (ip[6] != PROTOCOL_UDP || !is_discard(udp))
		return NULL;
	return udp;
}

// stamp notes the time of a packet that has a sequence number.
static __always_inline void stamp(const __u8 *udp, const __u8 *end, void *stamps)
{
	const __u8 *tag = udp + UDP;

	if (tag + TAG > end || *(const __u64 *)tag != MARK)
		return;
	__u32 at = ((__u32)tag[14] << 8 | tag[15]) % STAMPS;
	__u64 *time = bpf_map_lookup_elem(stamps, &at);
	if (time)
		*time = bpf_ktime_get_ns();
}

// arrive stamps and counts a test packet; it returns whether it was one.
static __always_inline bool arrive(const __u8 *data, const __u8 *end)
{
	const __u8 *udp = test_packet(data, end, false);

	if (!udp)
		return false;
	stamp(udp, end, &arrived);
	arrival();
	__u32 class = ((__u32)udp[1] - DISCARD) % CLASSES; // of an echo and behind a translator: any
	__u64 *n = bpf_map_lookup_elem(&counts, &class);
	if (n)
		(*n)++;
	return true;
}

SEC("xdp") int meter_arrive_xdp(struct xdp_md *ctx)
{
	return arrive((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

// linear makes the headers and the sequence number readable.
static __always_inline void linear(struct __sk_buff *skb)
{
	__u32 want = HEADER_GPDU + GTPU_MORE + TAG;

	if (skb->len < want)
		want = skb->len;
	if ((long)skb->data + want > skb->data_end)
		bpf_skb_pull_data(skb, want);
}

SEC("tc") int meter_arrive_tc(struct __sk_buff *skb)
{
	linear(skb);
	return arrive((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc") int meter_depart(struct __sk_buff *skb)
{
	linear(skb);
	const __u8 *end = (void *)(long)skb->data_end;
	const __u8 *udp = test_packet((void *)(long)skb->data, end, true);
	if (udp)
		stamp(udp, end, &departed);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
