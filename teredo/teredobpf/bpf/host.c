//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The traffic of a Teredo client, at tc. What the host sends into the TUN device is
 * encapsulated there and leaves by an Ethernet device; what comes in there from a
 * peer is decapsulated and enters the host by the TUN device. Segments that TCP has
 * not cut yet stay whole, and checksums that are not finished stay so.
 *
 * Peers are those that the engine has told of; teredo/client/fast.go says when. All
 * other packets, and those that need more than their outer header, pass untouched,
 * to the engine.
 */

#include "teredo_tc.h"

/* A client of this host: one for each Teredo address. */
struct host_client {
	u32 number;
	u32 flags;
	u64 heard; /* last packet from any peer, CLOCK_MONOTONIC in nanoseconds */
	u64 sent;  /* last packet to any peer */
};

/* Only peers that the host has sent to lately may send to it. */
#define CLIENT_ESTABLISHED 1

struct endpoint_key {
	struct address6 peer;
	u32 client; /* number */
	u32 unused;
};

/* A proved peer, and the way to it. */
struct endpoint {
	be32 ip; /* mapping of the peer */
	be16 port;
	be16 own_port;
	be32 own_ip;
	u32 ifindex; /* of the Ethernet device that leads there */
	u32 flags;
	u32 unused;
	u64 heard; /* last packet from and to it, to a second */
	u64 sent;
};

/* A reply to an echo test may still come: the engine takes what is ICMPv6. */
#define ENDPOINT_TESTED 1

/* How old proofs may be, in nanoseconds. */
struct host_limits {
	u64 send;    /* since the peer was heard, to send to it */
	u64 receive; /* since the peer was heard, to receive from it */
	u64 contact; /* since it was sent to, with CLIENT_ESTABLISHED */
	u32 tun;     /* index of the TUN device */
	u32 mtu;     /* largest IPv6 packet */
	u32 id_range; /* values of the outer identification that each core has */
	u32 unused;
};

const volatile struct host_limits limits;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct address6);
	__type(value, struct host_client);
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, struct endpoint_key);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* How many identifications each core has used. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} identifications SEC(".maps");

#define SECOND 1000000000LL

/*
 * How long ago something was. What user space has stamped by the exact clock may
 * lie a little before the time of the coarse one.
 */
INLINE s64 since(const u64 *stamp, u64 now) { return (s64)(now - READ_ONCE(*stamp)); }

/* Ends the way of a packet that is left to the engine. */
NOINLINE int leave(struct __sk_buff *skb, u32 reason, u64 now, u32 hook)
{
	count(reason, skb->len);
	if (is_sampled(now))
		sample_skb(skb, now, reason, hook);
	return TC_PASS;
}

/* Whether the plain way carries what a packet contains; end is behind a transport header. */
INLINE u32 judge_host_content(const struct ip6 *p, void *end, u32 flags)
{
	if (UNLIKELY(!is_summed(p->next)))
		return p->next == PROTO_NONE ? REASON_BUBBLE : REASON_NEXT_HEADER;
	if (UNLIKELY(FROM_BE16(p->length) < UDP_LEN || (void *)(p + 1) + UDP_LEN > end))
		return REASON_SHORT_PAYLOAD;
	if (p->next == PROTO_ICMPV6) {
		u8 type = *(u8 *)(p + 1);
		if (flags & ENDPOINT_TESTED)
			return REASON_BUSY_PEER;
		if (type >= 133 && type <= 137)
			return REASON_NEXT_HEADER;
	}
	return REASON_HOST_ENCAP_FORWARDED;
}

/*
 * Takes so many identifications in a row, one for each datagram that a packet will
 * be cut to: the kernel numbers them from the first.
 */
INLINE u16 identify(u32 segments)
{
	u32 zero = 0, *used = bpf_map_lookup_elem(&identifications, &zero);
	if (!used)
		return 0;
	u32 first = *used;
	if (first + segments > limits.id_range)
		first = 0;
	*used = first + segments;
	return first + limits.id_range * bpf_get_smp_processor_id();
}

/*
 * The outer checksum of a packet. Zero, which is none, where one value would not fit
 * all segments, and where the sender has left the inner checksum to hardware: a NAT
 * on the way that runs on Linux, next to this host or below it, would take the outer
 * one for unfinished too and spoil it.
 */
INLINE u64 outer_sum(const struct ip6 *p, void *end, u32 segment)
{
	return segment || !is_sum_known(p) || is_half_summed(p, end) ? 0 : packet_sum(p);
}

/* The tunnel header; sum is 0 for no checksum. */
INLINE void make_host_tunnel(struct tunnel *t, const struct endpoint *e, u32 size, u16 id, u64 sum)
{
	*t = (struct tunnel){
		.version = 0x45, .length = TO_BE16(size + TUNNEL_LEN), .id = TO_BE16(id),
		.ttl = 64, .protocol = PROTO_UDP,
		.source = e->own_ip, .destination = e->ip,
		.source_port = e->own_port, .destination_port = e->port,
		.udp_length = TO_BE16(size + UDP_LEN),
	};
	t->checksum = header_checksum(t);
	if (sum)
		t->udp_checksum = udp_field(sum + pseudo4(t->source, t->destination, t->udp_length) +
					    t->source_port + t->destination_port + t->udp_length);
}

/* At the egress of the TUN device: packets without an Ethernet header. */
SEC("tc")
int isthmus_egress(struct __sk_buff *skb)
{
	if (skb->protocol != ETHERTYPE_IPV6 || skb->len < IPV6_LEN)
		return TC_PASS;
	u64 now = bpf_ktime_get_coarse_ns();
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ip6 *p = data;
	if ((void *)(p + 1) + TCP_LEN > end) {
		u32 want = IPV6_LEN + TCP_LEN;
		if (bpf_skb_pull_data(skb, skb->len < want ? skb->len : want))
			return leave(skb, REASON_NO_ROOM, now, HOOK_EGRESS);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		p = data;
		if ((void *)(p + 1) > end)
			return TC_PASS;
	}
	u32 size = IPV6_LEN + FROM_BE16(p->length);
	if (UNLIKELY(p->version >> 4 != 6 || size != skb->len))
		return leave(skb, REASON_ODD_LENGTH, now, HOOK_EGRESS);
	struct address6 own = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}};
	struct host_client *c = bpf_map_lookup_elem(&clients, &own);
	if (UNLIKELY(!c))
		return leave(skb, REASON_HOST_DIRECT, now, HOOK_EGRESS);
	struct endpoint_key key = {
		.peer = {{U64_AT(p->destination, 0), U64_AT(p->destination, 8)}}, .client = c->number,
	};
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &key);
	if (UNLIKELY(!e))
		return leave(skb, REASON_HOST_DIRECT, now, HOOK_EGRESS);
	if (UNLIKELY(since(&e->heard, now) >= (s64)limits.send))
		return leave(skb, REASON_EXPIRED_PEER, now, HOOK_EGRESS);
	u32 reason = judge_host_content(p, end, e->flags);
	if (UNLIKELY(reason != REASON_HOST_ENCAP_FORWARDED))
		return leave(skb, reason, now, HOOK_EGRESS);
	u32 segment = segment_of(skb, IPV6_LEN, p->next, (void *)(p + 1), end);
	if (UNLIKELY(segment == NO_SEGMENT))
		return leave(skb, REASON_OFFLOAD, now, HOOK_EGRESS);
	if (UNLIKELY((segment ? segment : size) > limits.mtu))
		return leave(skb, REASON_TOO_BIG, now, HOOK_EGRESS);

	struct tunnel t;
	u32 segments = segment && skb->gso_segs ? skb->gso_segs : 1;
	make_host_tunnel(&t, e, size, identify(segments), outer_sum(p, end, segment));
	u32 ifindex = e->ifindex;
	if (is_sampled(now))
		sample_skb(skb, now, REASON_HOST_ENCAP_FORWARDED, HOOK_EGRESS);
	if (bpf_skb_adjust_room(skb, TUNNEL_LEN, ROOM_AT_MAC, ROOM_FIXED_GSO | ROOM_ENCAP_IPV4 | ROOM_ENCAP_UDP))
		return leave(skb, REASON_NO_ROOM, now, HOOK_EGRESS);
	/* From here on the packet is no longer one that the engine could take. */
	if (bpf_skb_change_head(skb, ETHERNET_LEN, 0) ||
	    bpf_skb_store_bytes(skb, ETHERNET_LEN, &t, sizeof t, 0))
		return TC_DROP;
	if (since(&e->sent, now) >= SECOND)
		WRITE_ONCE(e->sent, now);
	if (READ_ONCE(c->sent) != now)
		WRITE_ONCE(c->sent, now);
	count(REASON_HOST_ENCAP_FORWARDED, size);
	/* The kernel finds the neighbour, asks for it where it must, and confirms it. */
	return bpf_redirect_neigh(ifindex, 0, 0, 0);
}

/* Judges a packet to a client of this host. */
INLINE u32 judge_host_decap(const struct tunnel *t, const struct ip6 *p, void *end, struct host_client *c,
			    struct endpoint *e, u64 now)
{
	if (UNLIKELY(!e))
		return REASON_UNKNOWN_PEER;
	if (UNLIKELY(e->ip != t->source || e->port != t->source_port || e->own_ip != t->destination ||
		     e->own_port != t->destination_port))
		return REASON_FOREIGN_MOVED;
	if (UNLIKELY(since(&e->heard, now) >= (s64)limits.receive))
		return REASON_EXPIRED_PEER;
	if (UNLIKELY(c->flags & CLIENT_ESTABLISHED && since(&e->sent, now) >= (s64)limits.contact))
		return REASON_UNKNOWN_PEER;
	return judge_host_content(p, end, e->flags);
}

/* At the ingress of Ethernet devices. */
SEC("tc")
int isthmus_host_ingress(struct __sk_buff *skb)
{
	const u32 want = ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN + UDP_LEN;
	if (skb->protocol != ETHERTYPE_IPV4 || skb->pkt_type != PACKET_FOR_HOST || skb->vlan_present || skb->len < want)
		return TC_PASS;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (data + want > end) {
		if (bpf_skb_pull_data(skb, want))
			return TC_PASS;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		if (data + want > end)
			return TC_PASS;
	}
	struct tunnel *t = data + ETHERNET_LEN;
	struct ip6 *p = (void *)(t + 1);
	if (t->version != 0x45 || t->protocol != PROTO_UDP || t->fragment & TO_BE16(0x3fff) || p->version >> 4 != 6)
		return TC_PASS;
	struct address6 own = {{U64_AT(p->destination, 0), U64_AT(p->destination, 8)}};
	struct host_client *c = bpf_map_lookup_elem(&clients, &own);
	if (!c)
		return TC_PASS;

	u64 now = bpf_ktime_get_coarse_ns();
	u32 size = IPV6_LEN + FROM_BE16(p->length);
	/* Several datagrams in one skb, merged on the way in, look like this too. */
	if (UNLIKELY(FROM_BE16(t->length) != size + TUNNEL_LEN || FROM_BE16(t->udp_length) != size + UDP_LEN ||
		     skb->len != ETHERNET_LEN + TUNNEL_LEN + size))
		return leave(skb, REASON_ODD_LENGTH, now, HOOK_HOST_INGRESS);
	struct endpoint_key key = {
		.peer = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}}, .client = c->number,
	};
	struct endpoint *e = bpf_map_lookup_elem(&endpoints, &key);
	u32 reason = judge_host_decap(t, p, end, c, e, now);
	if (UNLIKELY(reason != REASON_HOST_ENCAP_FORWARDED || !e))
		return leave(skb, reason, now, HOOK_HOST_INGRESS);
	if (UNLIKELY(skb->gso_size && (p->next != PROTO_TCP || !fixed.decap_flag)))
		return leave(skb, REASON_OFFLOAD, now, HOOK_HOST_INGRESS);

	if (is_sampled(now))
		sample_skb(skb, now, REASON_HOST_DECAP_FORWARDED, HOOK_HOST_INGRESS);
	/*
	 * The outer checksum is not looked at: the host checks the inner one, which
	 * covers all that is delivered, and the outer addresses are those of the peer.
	 * One that a sender on this machine has not finished must be forgotten, though.
	 */
	u32 is_half = t->udp_checksum == fold(pseudo4(t->source, t->destination, t->udp_length));
	u64 first = U64_AT(p, 0);
	if (tc_unwrap(skb, is_half ? sizeof first : 0))
		return leave(skb, REASON_NO_ROOM, now, HOOK_HOST_INGRESS);
	if (is_half && bpf_skb_store_bytes(skb, ETHERNET_LEN, &first, sizeof first, 0))
		return TC_DROP;
	if (since(&e->heard, now) >= SECOND)
		WRITE_ONCE(e->heard, now);
	if (READ_ONCE(c->heard) != now)
		WRITE_ONCE(c->heard, now);
	count(REASON_HOST_DECAP_FORWARDED, size + TUNNEL_LEN);
	return bpf_redirect(limits.tun, BPF_F_INGRESS);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
