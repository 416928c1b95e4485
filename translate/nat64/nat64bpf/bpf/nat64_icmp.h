/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * ICMP errors about plain packets of a session (RFC 7915 sections 4.2, 4.3, 5.2, 5.3).
 * Their headers, up to the first words of what the quoted packet carries, are made again
 * beside the packet; what is behind stays where it is. An error makes no session and
 * prolongs none.
 */

#ifndef ISTHMUS_NAT64_ICMP_H
#define ISTHMUS_NAT64_ICMP_H

#include "nat64_icmp_types.h"
#include "nat64_judge.h"
#include "trace.h"

#define REASON_NOT_OURS 0xfe

#define LARGEST_ERROR4 576 /* RFC 1812 section 4.3.2.3 */

/* Headers of an error: outer, ICMP, inner, and 8 bytes. */
#define ERROR4_LEN (IPV4_LEN + ICMP_LEN + IPV4_LEN + UDP_LEN)
#define ERROR6_LEN (IPV6_LEN + ICMP_LEN + IPV6_LEN + UDP_LEN)
#define ERROR_GROWTH (ERROR6_LEN - ERROR4_LEN)
#define TCP_CHECKSUM_END 18

/* A translated error, as far as it is new. */
struct error {
	u8 headers[ERROR6_LEN];
	u64 mac0;
	u32 mac1;
	u32 ifindex;
	u32 size; /* of the packet that came */
	be16 tcp_checksum;
	u16 has_tcp_checksum; /* the quoted packet is long enough to have one */
	struct flow flow;
};

/* Errors are too large for the stack, and functions of their own share them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct error);
} errors SEC(".maps");

INLINE struct error *new_error(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&errors, &zero);
}

/* The sum of words at a place, as many as there are in so many bytes. */
INLINE u64 sum_words(const void *p, u32 bytes)
{
	u64 sum = 0;
#pragma unroll
	for (u32 i = 0; i < bytes / 4; i++)
		sum += U32_AT(p, 4 * i);
	return sum;
}

/*
 * Reads the start of what a quoted packet carries, 8 bytes of it: two ports, or a query of
 * one of two types.
 */
INLINE int read_quoted(const void *p, u8 protocol, u8 icmp, u8 query, u8 reply, struct content *c)
{
	if (protocol == PROTO_TCP || protocol == PROTO_UDP) {
		set_transport(c, protocol == PROTO_TCP ? TRANSPORT_TCP : TRANSPORT_UDP);
		c->source = U16_AT(p, 0);
		c->destination = U16_AT(p, 2);
		c->checksum = protocol == PROTO_UDP ? U16_AT(p, 6) : 0;
		return 1;
	}
	if (protocol != icmp)
		return 0;
	read_icmp(p, c);
	return c->type == query || c->type == reply;
}

/*
 * Writes the first 8 bytes of what the translated quoted packet carries at p, where those
 * of the old one are. rest is how much there is of it, old where the old checksum of TCP
 * would be. It returns what comes into the sum by a checksum that lies further on.
 */
INLINE u64 rewrite_quoted(struct error *e, void *p, const struct content *c, struct changes by, u8 type, be16 source,
			  be16 destination, be16 old)
{
	store_ports(p, c->transport, type, source, destination);
	if (c->transport == TRANSPORT_ICMP) {
		U16_AT(p, 2) = new_checksum(c, by);
	} else if (c->transport == TRANSPORT_UDP) {
		U16_AT(p, 6) = new_checksum(c, by);
	} else if (e->has_tcp_checksum) {
		e->tcp_checksum = adjust(old, (u64)by.pseudo + by.own);
		return (u64)gone(old) + e->tcp_checksum;
	}
	return 0;
}

/* The old checksum of a quoted TCP segment that starts at p, if it is long enough. */
INLINE be16 read_tcp_checksum(struct error *e, const void *p, void *end, const struct content *c, u32 rest)
{
	e->has_tcp_checksum = c->transport == TRANSPORT_TCP && rest >= TCP_CHECKSUM_END;
	if (!e->has_tcp_checksum)
		return 0;
	if (p + TCP_CHECKSUM_END > end) {
		e->has_tcp_checksum = 0;
		return 0;
	}
	return U16_AT(p, 16);
}

/*
 * Find the flow that an error is about, whose quoted packet went from T, t to Z, z, or
 * from Z, z to X', x: in e->flow is what is known of it.
 */
GLOBAL u32 peek_error4(struct error *e, u64 now)
{
	if (!e)
		return REASON_NO_SESSION;
	struct flow *f = &e->flow;
	return peek_flow4(f->transport, f->pool, f->pool_port, f->peer, f->peer_port, now, f);
}

GLOBAL u32 peek_error6(struct error *e, u64 now)
{
	if (!e)
		return REASON_NO_SESSION;
	struct flow *f = &e->flow;
	return peek_flow6(f->transport, f->address6, f->port6, f->peer, f->peer_port, f->prefix, now, f);
}

/* Whose errors they are: those about what was sent from pool4. */
INLINE u32 is_quoted_ours(const struct ip4 *p, const struct ip4 *q, const struct content *c)
{
	return q->source == p->destination && is_in_pool4(q->source, c->transport, FROM_BE16(c->source));
}

/*
 * Judges an ICMP error to pool4 in a frame, and makes its headers. sum is that of the
 * message, or SUM_OUTSIDE.
 */
INLINE u32 judge_error_to6(void *ctx, void *data, void *end, u32 sum, const struct arrival *in, struct error *e)
{
	struct ip4 *p = data + ETHERNET_LEN;
	void *m = p + 1, *old = m + ICMP_LEN + IPV4_LEN;
	struct ip4 *q = m + ICMP_LEN;
	if ((void *)(p + 1) > end)
		return REASON_NOT_OURS;
	u32 stranger = is_whole_pool4(p->destination) ? REASON_ICMP_INNER : REASON_NOT_OURS;
	if (old + UDP_LEN > end || q->version != 0x45 || q->fragment & IPV4_FRAGMENT)
		return stranger;
	struct content c = {};
	if (!read_quoted(old, q->protocol, PROTO_ICMP, ICMP_ECHO, ICMP_ECHO_REPLY, &c) || !is_quoted_ours(p, q, &c))
		return stranger;

	u32 reason = judge_header4(p, in, &e->size);
	if (reason != REASON_TO6_FORWARDED)
		return reason;
	u32 quoted = FROM_BE16(q->length), length = e->size - IPV4_LEN;
	if (e->size < ERROR4_LEN || quoted < IPV4_LEN + UDP_LEN)
		return REASON_ICMP_INNER;
	if (e->size + ERROR_GROWTH > LARGEST_ERROR6)
		return REASON_TOO_BIG;
	if (sum != 0xffff)
		return sum == SUM_OUTSIDE ? REASON_OFFLOAD : REASON_BAD_ICMP_CHECKSUM;
	if (*(u8 *)(m + 5))
		return REASON_ICMP_INNER; /* an extension follows (RFC 4884) */

	struct flow *f = &e->flow;
	f->transport = c.transport;
	f->pool = q->source;
	f->pool_port = c.source;
	f->peer = q->destination;
	f->peer_port = c.transport == TRANSPORT_ICMP ? 0 : c.destination;
	reason = peek_error4(e, in->now);
	if (reason != REASON_TO6_FORWARDED)
		return reason;
	be32 router = settings.flags & FLAG_INNER_SOURCE ? q->destination : p->source;
	reason = judge_peer4(router, f->prefix);
	if (reason == REASON_NON_GLOBAL && settings.flags & FLAG_ROUTER_POOL6)
		return REASON_ICMP_TYPE; /* a router's (RFC 6791) */
	if (reason == REASON_NON_GLOBAL)
		router = q->destination; /* as the engine does, so that the error is not lost */
	else if (reason)
		return reason;
	struct nexthop6 *hop;
	struct ends6 outer, inner;
	embed(f->prefix, router, &outer.source);
	outer.destination.word[0] = f->address6[0] | (u64)f->address6[1] << 32;
	outer.destination.word[1] = f->address6[2] | (u64)f->address6[3] << 32;
	inner.source = outer.destination;
	embed(f->prefix, q->destination, &inner.destination);
	inner.source_port = f->port6;
	inner.destination_port = c.destination;
	reason = find_hop6(ctx, &outer.source, &outer.destination, HOOK_DEVICE(in->hook), &hop);
	if (reason != REASON_TO6_FORWARDED)
		return reason;
	u32 mtu4 = ~0U >> 1;
	if (U16_AT(m, 0) == ICMP_KIND(ICMP_UNREACHABLE, 4)) {
		struct nexthop4 *back = find_hop4(ctx, q->destination, HOOK_DEVICE(in->hook));
		if (!back)
			return REASON_NO_NEXT_HOP;
		mtu4 = lesser(back->mtu, settings.mtu4);
	}
	u64 kind = head_to6(U16_AT(m, 0), U32_AT(m, 4), mtu4, lesser(hop->mtu, settings.mtu6));
	if (!kind)
		return REASON_ICMP_TYPE;

	void *out = e->headers, *body = out + IPV6_LEN + ICMP_LEN + IPV6_LEN;
	store_header6(out, first6(class_of(p->tos), length + ERROR_GROWTH - (IPV6_LEN - IPV4_LEN), PROTO_ICMPV6, p->ttl - 1),
		      &outer);
	U32_AT(out, IPV6_LEN) = kind;
	U32_AT(out, IPV6_LEN + 4) = kind >> 32;
	store_header6(out + IPV6_LEN + ICMP_LEN,
		      first6(class_of(q->tos), quoted - IPV4_LEN, protocol6(c.transport), q->ttl), &inner);
	U64_AT(body, 0) = U64_AT(old, 0);
	be16 tcp = read_tcp_checksum(e, old, end, &c, length - (ERROR4_LEN - IPV4_LEN - UDP_LEN));
	struct changes by = changes6(q->source, q->destination, &c, quoted - IPV4_LEN, &inner);
	u64 further = rewrite_quoted(e, body, &c, by, query6(c.type), inner.source_port, inner.destination_port, tcp);
	/* All that was there summed up to zero. */
	u64 total = (u64)gone(sum_words(m, ERROR4_LEN - IPV4_LEN)) + further;
	total += sum_words(out + IPV6_LEN, ERROR6_LEN - IPV6_LEN) + sum_address6(&outer.source) +
		 sum_address6(&outer.destination) + U16_AT(out, 4) + (PROTO_ICMPV6 << 8);
	U16_AT(out, IPV6_LEN + 2) = ~fold(total);
	e->mac0 = hop->mac0;
	e->mac1 = hop->mac1;
	e->ifindex = hop->ifindex;
	return REASON_TO6_FORWARDED;
}

/* Judges an ICMPv6 error to pool6 in a frame, by the prefix of that number. */
INLINE u32 judge_error_to4(void *ctx, void *data, void *end, u32 prefix, u32 sum, const struct arrival *in,
			   struct error *e)
{
	struct ip6 *p = data + ETHERNET_LEN;
	void *m = p + 1, *old = m + ICMP_LEN + IPV6_LEN;
	struct ip6 *q = m + ICMP_LEN;
	if (old + UDP_LEN > end)
		return REASON_ICMP_INNER;
	be32 host;
	u32 reason = judge_header6(p, prefix, in, &e->size, &host);
	if (reason != REASON_TO4_FORWARDED)
		return reason;
	/* The engine distinguishes what comes from the private prefix of its FTP gateway. */
	if (settings.flags & FLAG_DETOUR && (p->source[0] & 0xfe) == 0xfc)
		return REASON_DETOUR;
	u32 quoted = FROM_BE16(q->length), length = e->size - IPV6_LEN;
	struct content c = {};
	if (e->size < ERROR6_LEN || q->version >> 4 != 6 || quoted < UDP_LEN || quoted + IPV4_LEN > 65535 ||
	    U64_AT(q->source, 0) != U64_AT(p->destination, 0) || U64_AT(q->source, 8) != U64_AT(p->destination, 8) ||
	    !read_quoted(old, q->next, PROTO_ICMPV6, ICMP6_ECHO, ICMP6_ECHO_REPLY, &c))
		return REASON_ICMP_INNER;
	if (e->size - ERROR_GROWTH > LARGEST_ERROR4)
		return REASON_TOO_BIG;
	if (sum == SUM_OUTSIDE)
		return REASON_OFFLOAD;
	u64 pseudo = pseudo6(p);
	if (fold(pseudo + sum) != 0xffff)
		return REASON_BAD_ICMP_CHECKSUM;
	u8 type = *(u8 *)m;
	if ((type == ICMP6_UNREACHABLE || type == ICMP6_TIME_EXCEEDED) && *(u8 *)(m + 4))
		return REASON_ICMP_INNER; /* an extension follows (RFC 4884) */
	if (settings.flags & FLAG_ROUTER_POOL4 && (U64_AT(p->source, 0) != U64_AT(q->destination, 0) ||
						   U64_AT(p->source, 8) != U64_AT(q->destination, 8)))
		return REASON_ICMP_TYPE; /* a router's (RFC 6791) */

	struct flow *f = &e->flow;
	f->transport = c.transport;
	f->prefix = prefix;
	f->peer = host;
	f->peer_port = c.transport == TRANSPORT_ICMP ? 0 : c.source;
	f->port6 = c.destination;
	__builtin_memcpy(f->address6, q->destination, sizeof f->address6);
	reason = peek_error6(e, in->now);
	if (reason != REASON_TO4_FORWARDED)
		return reason;
	struct ends4 inner = {
		.source = host, .destination = f->pool,
		.source_port = c.transport == TRANSPORT_ICMP ? f->pool_port : c.source, .destination_port = f->pool_port,
	};
	struct nexthop4 *hop = find_hop4(ctx, host, HOOK_DEVICE(in->hook));
	if (!hop)
		return REASON_NO_NEXT_HOP;
	u32 mtu4 = lesser(hop->mtu, settings.mtu4);
	if (e->size - ERROR_GROWTH > mtu4)
		return REASON_TOO_BIG;
	u32 mtu6 = ~0U >> 1;
	if (type == ICMP6_TOO_BIG) {
		struct nexthop6 *back;
		struct address6 there = {{U64_AT(q->destination, 0), U64_AT(q->destination, 8)}};
		struct address6 here = {{U64_AT(q->source, 0), U64_AT(q->source, 8)}};
		reason = find_hop6(ctx, &here, &there, HOOK_DEVICE(in->hook), &back);
		if (reason != REASON_TO6_FORWARDED)
			return reason;
		mtu6 = lesser(back->mtu, settings.mtu6);
	}
	u64 kind = head_to4(U16_AT(m, 0), U32_AT(m, 4), mtu4, mtu6);
	if (!kind)
		return REASON_ICMP_TYPE;

	void *out = e->headers, *body = out + IPV4_LEN + ICMP_LEN + IPV4_LEN;
	be16 id = identify(f->pool, host, 1);
	count(REASON_TO4_FORWARDED, e->size);
	struct header4 words;
	make_header4(&words, tos_of(traffic_class_of(p)), e->size - ERROR_GROWTH, id, 0, p->hops - 1, PROTO_ICMP, f->pool, host);
	store_header4(out, &words);
	U32_AT(out, IPV4_LEN) = kind;
	U32_AT(out, IPV4_LEN + 4) = kind >> 32;
	make_header4(&words, tos_of(traffic_class_of(q)), quoted + IPV4_LEN, id,
		     quoted + IPV4_LEN > LARGEST_UNCUT ? IPV4_DF : 0, q->hops, protocol4(c.transport), inner.source,
		     inner.destination);
	store_header4(out + IPV4_LEN + ICMP_LEN, &words);
	U64_AT(body, 0) = U64_AT(old, 0);
	be16 tcp = read_tcp_checksum(e, old, end, &c, length - (ERROR6_LEN - IPV6_LEN - UDP_LEN));
	struct changes by = changes4(q->source, q->destination, &c, quoted, &inner);
	u64 further = rewrite_quoted(e, body, &c, by, query4(c.type), inner.source_port, inner.destination_port, tcp);
	u64 total = (u64)gone(pseudo + sum_words(m, ERROR6_LEN - IPV6_LEN)) + further +
		    sum_words(out + IPV4_LEN, ERROR4_LEN - IPV4_LEN);
	U16_AT(out, IPV4_LEN + 2) = ~fold(total);
	e->mac0 = hop->mac0;
	e->mac1 = hop->mac1;
	e->ifindex = hop->ifindex;
	return REASON_TO4_FORWARDED;
}

#endif
