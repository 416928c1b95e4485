/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Packets of a translator: how they are read, and what a translated one looks like
 * (RFC 7915, as package translate does it). Who its new source and destination are, is
 * the business of a mapping stage in front: of a NAT64 nat64_judge.h finds that in
 * sessions, of a stateless translator siit_judge.h in mappings and prefixes. Nothing here
 * changes a packet. The tables of the set of programs are included before.
 */

#ifndef ISTHMUS_TRANSLATE_PACKET_H
#define ISTHMUS_TRANSLATE_PACKET_H

#include "translate_settings.h"
#include "arrival.h"
#include "checksum.h"
#include "count.h"
#include "parse.h"
#include "identify.h"

#define LARGEST_UNCUT 1260 /* up to this size an IPv4 packet leaves without DF */

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4

/* ICMP types (RFC 792, RFC 4443). */
#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER 12
#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAMETER 4
#define ICMP6_ECHO 128
#define ICMP6_ECHO_REPLY 129

#define ICMP_LEN 8

/* What stands behind an IP header. */
struct content {
	u16 transport;      /* enum transport */
	u8 flags;           /* of TCP; of a query that is a request TCP_SYN: it opens a flow */
	u8 type;            /* of ICMP, in the family that the packet came in */
	be16 source;        /* ports; the identifier of an ICMP query is both */
	be16 destination;
	be16 checksum;
	u16 code;           /* of ICMP */
};

/* Whom a packet becomes: the answer of the mapping stage. */
struct ends4 {
	be32 source;
	be32 destination;
	be16 source_port; /* or identifier */
	be16 destination_port;
};

struct ends6 {
	struct address6 source;
	struct address6 destination;
	be16 source_port;
	be16 destination_port;
};

/* The IPv6 counterpart: of ::/64 it has only what is unspecified, loopback or IPv4's. */
INLINE int is_illegal6(const u32 *a)
{
	return UNLIKELY(!is_host(a)) && ((a[0] | a[1]) != 0 || !a[2] || a[2] == TO_BE32(0xffff));
}

/* The sum of the words of an IPv6 address. */
INLINE u64 sum6(const u32 *a) { return (u64)a[0] + a[1] + a[2] + a[3]; }

INLINE u64 sum_address6(const struct address6 *a)
{
	return (a->word[0] >> 32) + (u32)a->word[0] + (a->word[1] >> 32) + (u32)a->word[1];
}

/* What a sum of words that went adds to a checksum's complement (RFC 1624 equation 3). */
INLINE u16 gone(u64 sum) { return ~fold(sum); }

/* The checksum field that was, when words with the folded change come into its sum. */
INLINE be16 adjust(be16 checksum, u64 change) { return ~fold((u64)(u16)~checksum + change); }

/* The place of the checksum in a transport header. */
INLINE u32 checksum_at(u32 transport)
{
	if (transport == TRANSPORT_TCP)
		return 16;
	return transport == TRANSPORT_UDP ? 6 : 2;
}

/* The protocol numbers of a transport. */
INLINE u8 protocol4(u32 transport)
{
	if (transport == TRANSPORT_TCP)
		return PROTO_TCP;
	return transport == TRANSPORT_UDP ? PROTO_UDP : PROTO_ICMP;
}

INLINE u8 protocol6(u32 transport)
{
	u8 protocol = protocol4(transport);
	return protocol == PROTO_ICMP ? PROTO_ICMPV6 : protocol;
}

/* The type of an echo or its reply in the other family. */
INLINE u8 query4(u8 type) { return type == ICMP6_ECHO ? ICMP_ECHO : ICMP_ECHO_REPLY; }
INLINE u8 query6(u8 type) { return type == ICMP_ECHO ? ICMP6_ECHO : ICMP6_ECHO_REPLY; }

/*
 * Sets the transport, in a way that the verifier does not remember: or it would follow all
 * that comes for each transport again.
 */
INLINE void set_transport(struct content *c, u32 transport)
{
	HIDE(transport);
	c->transport = transport;
}

/* Reads TCP or UDP at p, of so many bytes in the packet. */
INLINE int read_ports(const void *p, void *end, u32 length, u8 protocol, struct content *c)
{
	u32 ports = U32_AT(p, 0);
	c->source = ports;
	c->destination = ports >> 16;
	if (protocol == PROTO_UDP) {
		set_transport(c, TRANSPORT_UDP);
		c->checksum = U16_AT(p, 6);
		return 1;
	}
	if (length < TCP_LEN || p + TCP_LEN > end)
		return 0;
	set_transport(c, TRANSPORT_TCP);
	c->flags = *(u8 *)(p + 13);
	c->checksum = U16_AT(p, 16);
	return 1;
}

/* Reads an ICMP message at p. */
INLINE void read_icmp(const void *p, struct content *c)
{
	u32 head = U32_AT(p, 0);
	set_transport(c, TRANSPORT_ICMP);
	c->type = head;
	c->code = head >> 8 & 0xff;
	c->checksum = head >> 16;
	c->source = c->destination = U16_AT(p, 4);
	c->flags = c->type == ICMP_ECHO || c->type == ICMP6_ECHO ? TCP_SYN : 0;
}

/* Whether a plain packet with 8 bytes behind its header is an ICMP error of the known types. */
INLINE int is_error6(const struct ip6 *p)
{
	u8 type = *(u8 *)(p + 1);
	return p->next == PROTO_ICMPV6 && type && type <= ICMP6_PARAMETER;
}

INLINE int is_error4(const struct ip4 *p)
{
	u8 type = *(u8 *)(p + 1);
	return p->protocol == PROTO_ICMP && p->version == 0x45 && !(p->fragment & IPV4_FRAGMENT) &&
	       (type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER);
}

/* Reads what an IPv6 packet carries: 8 bytes behind its header are in front of end. */
INLINE u32 read_content6(const struct ip6 *p, void *end, struct content *c)
{
	u32 length = FROM_BE16(p->length);
	if (UNLIKELY(length < UDP_LEN))
		return REASON_SHORT_PAYLOAD;
	if (LIKELY(p->next == PROTO_TCP || p->next == PROTO_UDP))
		return read_ports(p + 1, end, length, p->next, c) ? REASON_TO4_FORWARDED : REASON_SHORT_PAYLOAD;
	if (p->next != PROTO_ICMPV6)
		return REASON_NEXT_HEADER;
	read_icmp(p + 1, c);
	return LIKELY(c->type == ICMP6_ECHO || c->type == ICMP6_ECHO_REPLY) ? REASON_TO4_FORWARDED : REASON_ICMP_TYPE;
}

/* The same of an IPv4 packet without options. */
INLINE u32 read_content4(const struct ip4 *p, void *end, struct content *c)
{
	u32 size = FROM_BE16(p->length), length = size - IPV4_LEN;
	if (UNLIKELY(size < IPV4_LEN + UDP_LEN))
		return REASON_SHORT_PAYLOAD;
	if (LIKELY(p->protocol == PROTO_TCP || p->protocol == PROTO_UDP))
		return read_ports(p + 1, end, length, p->protocol, c) ? REASON_TO6_FORWARDED : REASON_SHORT_PAYLOAD;
	if (p->protocol != PROTO_ICMP)
		return REASON_NEXT_HEADER;
	read_icmp(p + 1, c);
	return LIKELY(c->type == ICMP_ECHO || c->type == ICMP_ECHO_REPLY) ? REASON_TO6_FORWARDED : REASON_ICMP_TYPE;
}

/*
 * What comes into the sum that the checksum of a transport covers: by its
 * pseudo-header, and by its own words. They are apart since an skb whose checksum is
 * not finished holds the first alone.
 */
struct changes {
	u32 pseudo;
	u32 own;
};

/* The words in which a query has its type, in the order of memory, and its code aside. */
INLINE u64 query_words(u8 type, be16 id) { return (u64)type + id; }

/* A packet goes to IPv4: addresses are those of the IPv6 one. */
INLINE struct changes changes4(const u32 *source, const u32 *destination, const struct content *c, u32 length,
			       const struct ends4 *to)
{
	u64 was = sum6(source) + sum6(destination);
	struct changes out;
	if (c->transport == TRANSPORT_ICMP) {
		out.pseudo = gone(was + TO_BE16(length) + (PROTO_ICMPV6 << 8));
		out.own = fold((u64)gone(query_words(c->type, c->source)) +
			       query_words(query4(c->type), to->source_port));
		return out;
	}
	out.pseudo = fold((u64)gone(was) + to->source + to->destination);
	out.own = fold((u64)gone((u64)c->source + c->destination) + to->source_port + to->destination_port);
	return out;
}

/* A packet goes to IPv6: addresses are those of the IPv4 one. */
INLINE struct changes changes6(be32 source, be32 destination, const struct content *c, u32 length,
			       const struct ends6 *to)
{
	u64 is = sum_address6(&to->source) + sum_address6(&to->destination);
	struct changes out;
	if (c->transport == TRANSPORT_ICMP) {
		out.pseudo = fold(is + TO_BE16(length) + (PROTO_ICMPV6 << 8));
		out.own = fold((u64)gone(query_words(c->type, c->source)) +
			       query_words(query6(c->type), to->source_port));
		return out;
	}
	out.pseudo = fold(gone((u64)source + destination) + is);
	out.own = fold((u64)gone((u64)c->source + c->destination) + to->source_port + to->destination_port);
	return out;
}

/* The new checksum of a transport; UDP without one stays without. */
INLINE be16 new_checksum(const struct content *c, struct changes by)
{
	if (c->transport == TRANSPORT_UDP && !c->checksum)
		return 0;
	be16 checksum = adjust(c->checksum, (u64)by.pseudo + by.own);
	return c->transport == TRANSPORT_UDP && !checksum ? 0xffff : checksum;
}

/* Writes ports, or type and identifier, at p; 8 bytes are in front of the end. */
INLINE void store_ports(void *p, u32 transport, u8 type, be16 source, be16 destination)
{
	if (transport == TRANSPORT_ICMP) {
		*(u8 *)p = type;
		U16_AT(p, 4) = source;
	} else {
		U32_AT(p, 0) = source | (u32)destination << 16;
	}
}

/* The header of an IPv4 packet, in words as they are stored. */
struct header4 {
	u64 first;  /* version to fragment offset */
	u64 second; /* time to live to source */
	be32 destination;
};

/* Makes a header without options; df is IPV4_DF or 0. */
INLINE void make_header4(struct header4 *h, u8 tos, u32 length, be16 id, be16 df, u8 ttl, u8 protocol, be32 source,
			 be32 destination)
{
	u32 start = 0x45 | (u32)tos << 8, life = ttl | (u32)protocol << 8;
	u64 sum = (u64)start + TO_BE16(length) + id + df + life + source + destination;
	h->first = start | (u64)TO_BE16(length) << 16 | (u64)id << 32 | (u64)df << 48;
	h->second = life | (u64)(u16)~fold(sum) << 16 | (u64)source << 32;
	h->destination = destination;
}

/* Writes it at a place with 20 bytes in front of the end. */
INLINE void store_header4(void *p, const struct header4 *h)
{
	U64_AT(p, 0) = h->first;
	U64_AT(p, 8) = h->second;
	U32_AT(p, 16) = h->destination;
}

/* The first eight bytes of an IPv6 header, with flow label 0, as they are stored. */
INLINE u64 first6(u8 traffic_class, u32 length, u8 next, u8 hops)
{
	return 0x60 | traffic_class >> 4 | (u64)(u8)(traffic_class << 4) << 8 | (u64)TO_BE16(length) << 32 |
	       (u64)next << 48 | (u64)hops << 56;
}

/* Writes an IPv6 header at a place with 40 bytes in front of the end. */
INLINE void store_header6(void *p, u64 first, const struct ends6 *to)
{
	U64_AT(p, 0) = first;
	U64_AT(p, 8) = to->source.word[0];
	U64_AT(p, 16) = to->source.word[1];
	U64_AT(p, 24) = to->destination.word[0];
	U64_AT(p, 32) = to->destination.word[1];
}

INLINE u8 traffic_class_of(const struct ip6 *p) { return p->version << 4 | p->flow[0] >> 4; }

/* What becomes of traffic class and TOS, by the settings. */
INLINE u8 tos_of(u8 traffic_class)
{
	return settings.flags & FLAG_FIXED_TOS ? settings.tos : traffic_class;
}

INLINE u8 class_of(u8 tos) { return settings.flags & FLAG_ZERO_CLASS ? 0 : tos; }

#endif
