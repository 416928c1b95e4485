/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Packets to addresses of pool4 that are the host's own never reach the TUN device by
 * routes: the host would take them for its own. What is the translator's among them, and
 * was not translated before, is put into the TUN device here, with a hop taken, as the
 * kernel takes one of what it routes there. All else is the host's.
 */

#ifndef ISTHMUS_NAT64_STEER_H
#define ISTHMUS_NAT64_STEER_H

#include "nat64_flow.h"
#include "nat64_pool.h"

/* A packet in fragments, of which the first one was the translator's. */
struct fragmented {
	be32 source;
	be32 destination;
	be16 id;
	u16 protocol;
};

#define FRAGMENT_LIFE 30000000000ULL /* ns; longer than any of them waits */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fragmented);
	__type(value, u64); /* when the first one came, CLOCK_MONOTONIC */
} fragments SEC(".maps");

/* Whether pool4 has ports of an own address for a protocol, the transport of which it is. */
INLINE u32 transport_of_protocol(u8 protocol)
{
	if (protocol == PROTO_TCP)
		return TRANSPORT_TCP;
	if (protocol == PROTO_UDP)
		return TRANSPORT_UDP;
	return protocol == PROTO_ICMP ? TRANSPORT_ICMP : TRANSPORTS;
}

/* How long an IPv4 header is; 0 if that cannot be. */
INLINE u32 length4(u8 version)
{
	u32 length = (version & 0xf) * 4;
	return version >> 4 == 4 && length >= IPV4_LEN ? length : 0;
}

/* What a steered packet begins with, in one piece. */
struct start {
	u8 version;
	u8 tos;
	be16 length;
	be16 id;
	be16 fragment;
	u8 ttl;
	u8 protocol;
	be16 checksum;
	be32 source;
	be32 destination;
};

/* Whether a client is bound to a port, or an identifier, of the pool. */
NOINLINE u32 is_bound_port(be32 address, u32 transport, be16 port)
{
	struct tuple t = tuple4(transport, address, port, 0, 0);
	return search_binding4(&t, hash_binding4(&t)) != 0;
}

/*
 * Whether a port of an own address is the translator's. An identifier of ICMP is when it is
 * bound: the host's own pings have any, since nothing keeps them out of a range.
 */
NOINLINE u32 is_steered_port(be32 address, u32 transport, be16 port)
{
	if (!is_in_pool4(address, transport, FROM_BE16(port)))
		return 0;
	return transport != TRANSPORT_ICMP || is_bound_port(address, transport, port);
}

/* A port, or an identifier, of a transport; 0 is none. */
INLINE u32 port_of(u32 transport, be16 port) { return transport < TRANSPORTS ? (transport + 1) << 16 | port : 0; }

/*
 * Whether the operator has bound an identifier. Requests to that one are for a client (RFC
 * 6146 section 3.5.3); who pings the host itself may have chosen any other by chance.
 */
NOINLINE u32 is_static_query(be32 address, be16 id)
{
	if (!is_in_pool4(address, TRANSPORT_ICMP, FROM_BE16(id)))
		return 0;
	struct tuple t = tuple4(TRANSPORT_ICMP, address, id, 0, 0);
	u32 index = search_binding4(&t, hash_binding4(&t)) - 1;
	struct binding *b = bpf_map_lookup_elem(&bindings, &index); /* none if there is no binding */
	return b && (READ_ONCE(b->word) & 0xff) == BINDING_STATIC;
}

/*
 * Which port of an own address an ICMP message at an offset is about: that of an echo reply,
 * of a request to what the operator has bound, or of the packet from there that an error
 * quotes.
 */
NOINLINE u32 port_of_icmp(struct __sk_buff *skb, u32 offset, be32 destination)
{
	u16 head[4];
	if (bpf_skb_load_bytes(skb, offset, head, sizeof head))
		return 0;
	u8 type = head[0];
	if (type == ICMP_ECHO_REPLY)
		return port_of(TRANSPORT_ICMP, head[2]);
	if (type == ICMP_ECHO)
		return is_static_query(destination, head[2]) ? port_of(TRANSPORT_ICMP, head[2]) : 0;
	if (type != ICMP_UNREACHABLE && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETER)
		return 0;
	struct start inner;
	offset += ICMP_LEN;
	if (bpf_skb_load_bytes(skb, offset, &inner, sizeof inner))
		return 0;
	u32 length = length4(inner.version), transport = transport_of_protocol(inner.protocol);
	if (!length || inner.source != destination || inner.fragment & TO_BE16(0x1fff))
		return 0;
	if (bpf_skb_load_bytes(skb, offset + length, head, sizeof head))
		return 0;
	return port_of(transport, head[transport == TRANSPORT_ICMP ? 2 : 0]);
}

/* The same of what stands behind the header of a packet or of a first fragment. */
NOINLINE u32 port_of_content(struct __sk_buff *skb, u32 offset, u32 protocol, be32 destination)
{
	u16 ports[2];
	if (protocol == PROTO_ICMP)
		return port_of_icmp(skb, offset, destination);
	if ((protocol != PROTO_TCP && protocol != PROTO_UDP) || bpf_skb_load_bytes(skb, offset, ports, sizeof ports))
		return 0;
	return port_of(transport_of_protocol(protocol), ports[1]);
}

/* Whether a packet is the translator's, and one that the host would take. */
INLINE u32 is_steered(struct __sk_buff *skb, const struct start *p, u64 now)
{
	u32 header = length4(p->version);
	if (!header || !is_any_pool4(p->destination) || is_whole_pool4(p->destination))
		return 0;
	struct fragmented key = {
		.source = p->source, .destination = p->destination, .id = p->id, .protocol = p->protocol,
	};
	if (UNLIKELY(p->fragment & TO_BE16(0x1fff))) {
		u64 *first = bpf_map_lookup_elem(&fragments, &key);
		return first && now - *first < FRAGMENT_LIFE;
	}
	u32 port = port_of_content(skb, ETHERNET_LEN + header, p->protocol, p->destination);
	u32 transport = (port >> 16) - 1;
	if (!port || !is_steered_port(p->destination, transport, port))
		return 0;
	/*
	 * The rest follows where somebody has the port. Else the packet is refused, and must not
	 * push others out of the map: anybody can forge it.
	 */
	if (UNLIKELY(p->fragment & IPV4_FRAGMENT) && is_bound_port(p->destination, transport, port))
		bpf_map_update_elem(&fragments, &key, &now, BPF_ANY);
	return 1;
}

INLINE int tc_steer(struct __sk_buff *skb)
{
	struct start p;
	u64 now = bpf_ktime_get_coarse_ns();
	if (bpf_skb_load_bytes(skb, ETHERNET_LEN, &p, sizeof p) || now >= READ_ONCE(settings.alive_until) || !p.ttl)
		return TC_PASS;
	if (LIKELY(!is_steered(skb, &p, now)))
		return TC_PASS;
	/* The time to live is the first octet of its word; a wrong checksum stays wrong. */
	be16 was = p.ttl | p.protocol << 8, is = was - 1;
	be16 checksum = adjust(p.checksum, (u64)gone(was) + is);
	u32 word = is | (u32)checksum << 16;
	if (bpf_skb_store_bytes(skb, ETHERNET_LEN + 8, &word, sizeof word, 0))
		return TC_DROP;
	return bpf_redirect(settings.tun, 0);
}

#endif
