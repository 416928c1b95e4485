/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Tunnels by UDP over IPv4: the header that goes in front of a packet, and how far the
 * checksum of one that came can be checked. Each set of programs has core_bits in fixed:
 * the bits of an outer identification that tell cores apart.
 */

#ifndef ISTHMUS_TUNNEL_H
#define ISTHMUS_TUNNEL_H

#include "checksum.h"

/* Where a datagram goes, and how. */
struct outer {
	u64 mac0;
	u32 mac1;
	be32 source;
	be32 destination;
	be16 source_port;
	be16 destination_port;
	u32 payload; /* octets behind the UDP header */
	u8 tos;
	u8 ttl;
};

/* Its headers, in words as they are stored. */
struct tunnel_words {
	u64 mac0;
	u32 mac1;
	u16 type;
	u64 ip0; /* version to fragment offset */
	u64 ip1; /* time to live to source */
	u64 ip2; /* destination and ports */
	u32 udp; /* length and checksum */
};

/* Makes them; n tells datagrams of one core apart, sum is that of the payload, 0 for no checksum. */
INLINE void make_tunnel(struct tunnel_words *w, const struct outer *o, u64 n, u64 sum)
{
	u32 id = ((u32)n << fixed.core_bits | (fixed.core_bits ? bpf_get_smp_processor_id() : 0)) & 0xffff;
	be16 length = TO_BE16(o->payload + TUNNEL_LEN), udp_length = TO_BE16(o->payload + UDP_LEN);
	u32 first = 0x45 | o->tos << 8, life = o->ttl | PROTO_UDP << 8;
	u64 header = (u64)first + length + id + life + o->source + o->destination;

	w->mac0 = o->mac0;
	w->mac1 = o->mac1;
	w->type = ETHERTYPE_IPV4;
	w->ip0 = first | (u64)length << 16 | (u64)id << 32;
	w->ip1 = life | (u64)(u16)~fold(header) << 16 | (u64)o->source << 32;
	w->ip2 = o->destination | (u64)o->source_port << 32 | (u64)o->destination_port << 48;
	be16 checksum = 0;
	if (sum)
		checksum = udp_field(sum + pseudo4(o->source, o->destination, udp_length) + o->source_port +
				     o->destination_port + udp_length);
	w->udp = udp_length | (u32)checksum << 16;
}

/* Stores headers; so many bytes at data are in front of the end. */
INLINE void store_tunnel(void *data, const struct tunnel_words *w)
{
	store_ethernet(data, w->mac0, w->mac1, w->type);
	U64_AT(data, 14) = w->ip0;
	U64_AT(data, 22) = w->ip1;
	U64_AT(data, 30) = w->ip2;
	U32_AT(data, 38) = w->udp;
}

/* How far the outer UDP checksum of a datagram was checked. */
enum outer_sum {
	SUM_GOOD, /* or absent */
	SUM_HALF, /* the sender never finished it: a local one */
	SUM_OPEN, /* only the sum of all bytes can tell */
};

/*
 * Checks it as far as the headers allow; payload is the sum of what the datagram carries, and
 * counts only if it is known.
 */
INLINE u32 check_outer(const struct tunnel *t, u32 known, u64 payload)
{
	if (!t->udp_checksum)
		return SUM_GOOD;
	u64 pseudo = pseudo4(t->source, t->destination, t->udp_length);
	u64 sum = pseudo + U32_AT(t, 20) + U32_AT(t, 24);
	if (LIKELY(known && fold(sum + payload) == 0xffff))
		return SUM_GOOD;
	return t->udp_checksum == fold(pseudo) ? SUM_HALF : SUM_OPEN;
}

/* Checks it the long way; 0 if it is wrong, or not all bytes are in front of end. */
INLINE int is_outer_good(void *data, void *end, u32 udp_length)
{
	struct tunnel *t = data + ETHERNET_LEN;
	if ((void *)(t + 1) > end)
		return 0;
	u64 pseudo = pseudo4(t->source, t->destination, t->udp_length);
	u32 sum = sum_bytes(data, end, ETHERNET_LEN + IPV4_LEN, udp_length);
	return sum != SUM_OUTSIDE && fold(pseudo + sum) == 0xffff;
}

#endif
