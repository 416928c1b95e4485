/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What becomes of a packet, and the headers of those that are forwarded: the part of
 * the relay that is the same for every hook. It follows teredo/relay/quick.go; what
 * it does not fully handle it punts, and it drops only what the engine would drop.
 * Nothing here changes a packet.
 */

#ifndef ISTHMUS_TEREDO_H
#define ISTHMUS_TEREDO_H

#include "arrival.h"
#include "teredo_address.h"
#include "count.h"
#include "nexthop.h"
#include "peers.h"
#include "tunnel.h"

/* ICMPv6 with the data of an echo test. */
#define ECHO_TEST_LEN 24
#define ICMPV6_ECHO_REPLY 129

/* A packet to a client. */
struct encap {
	struct nexthop4 *hop;
	be32 ip; /* the mapping of the client */
	be16 port;
	u16 summed; /* whether the outer checksum can be made from the header */
	u32 size;   /* of the IPv6 packet */
};

/* The mapped address and port in a Teredo address (RFC 4380 section 4). */
INLINE be32 mapped_ip(const u32 *a) { return ~a[3]; }
INLINE be16 mapped_port(const u32 *a) { return ~(a[2] >> 16); }

/* Where packets to a peer go. */
INLINE u32 mapping_of(const struct peer *p, const u32 *a, struct mapping *m)
{
	m->ip = mapped_ip(a);
	m->port = mapped_port(a);
	if (LIKELY(!(p->state & STATE_FOREIGN)))
		return 1;
	struct address6 key = {{U64_AT(a, 0), U64_AT(a, 8)}};
	return foreign_mapping(p, &key, m) == FOUND_YES;
}

/*
 * Whether a sender on this machine has left the transport checksum to hardware. What
 * came by a real wire and looks so is wrong, and stays so.
 */
INLINE int is_unfinished(const struct arrival *in, const struct ip6 *p, void *end)
{
	return (in->hook == HOOK_EGRESS || in->device & DEVICE_PARTIAL) && is_half_summed(p, end);
}

/*
 * Whether a packet has the form of an answer to a client's connectivity test (RFC 4380
 * section 5.2.9), which the engine looks at: see freshFor in teredo/relay/echo.go.
 */
INLINE int may_be_echo_test(const struct ip6 *p)
{
	return p->next == PROTO_ICMPV6 && p->length == TO_BE16(ECHO_TEST_LEN) && *(u8 *)(p + 1) == ICMPV6_ECHO_REPLY;
}

/*
 * Judges a packet to a client. Its header is in front of end, and its destination
 * has the prefix of the tag.
 */
INLINE u32 judge_encap(void *ctx, struct ip6 *p, void *end, u32 tag, const struct arrival *in, struct encap *e)
{
	if (UNLIKELY(in->now >= READ_ONCE(settings.alive_until)))
		return REASON_ASLEEP;
	if (UNLIKELY(p->version >> 4 != 6))
		return REASON_NOT_IPV6;
	u32 size = IPV6_LEN + FROM_BE16(p->length);
	e->size = size;
	if (UNLIKELY(size > in->length))
		return REASON_ODD_LENGTH;
	/* Before any drop: the kernel answers these, whoever sent them. */
	u32 segment = in->segment ? in->segment : size;
	if (UNLIKELY(segment > settings.mtu))
		return REASON_TOO_BIG;
	if (UNLIKELY(p->hops <= 1 && !(settings.flags & FLAG_HOST)))
		return REASON_HOP_LIMIT;
	if (UNLIKELY(!is_host(p->source)))
		return REASON_BAD_SOURCE;
	if (UNLIKELY(tag_of(p->source[0]) != NO_TAG))
		return REASON_TEREDO_TO_TEREDO;

	struct peer peer;
	int found = find_peer(tag, &p->destination[1], &peer);
	if (UNLIKELY(found != FOUND_YES))
		return found == FOUND_NOT ? REASON_UNKNOWN_PEER : REASON_BUSY_PEER;
	if (UNLIKELY(peer.state & STATE_BUSY))
		return REASON_BUSY_PEER;
	u32 age = age_of(&peer, in->now);
	if (UNLIKELY(age >= settings.refresh))
		return REASON_EXPIRED_PEER;

	if (UNLIKELY(!is_summed(p->next))) {
		if (p->next == PROTO_NONE)
			return REASON_BUBBLE;
		if (!is_unsummed(p->next))
			return REASON_NEXT_HEADER;
		if (in->hook == HOOK_XDP && in->device & DEVICE_PARTIAL)
			return REASON_OFFLOAD;
	}
	if (UNLIKELY(size < IPV6_LEN + transport_len(p->next) || (void *)(p + 1) + UDP_LEN > end))
		return REASON_SHORT_PAYLOAD;
	if (UNLIKELY(may_be_echo_test(p) && age >= STAMP_DOUBT))
		return REASON_EXPIRED_PEER;
	e->summed = is_sum_known(p);

	struct mapping m;
	if (UNLIKELY(!mapping_of(&peer, p->destination, &m)))
		return REASON_BUSY_PEER;
	e->ip = m.ip;
	e->port = m.port;
	e->hop = find_hop4(ctx, m.ip, HOOK_DEVICE(in->hook));
	if (UNLIKELY(!e->hop))
		return REASON_NO_NEXT_HOP;
	if (UNLIKELY(segment + TUNNEL_LEN > e->hop->mtu))
		return REASON_TOO_BIG;
	return REASON_ENCAP_FORWARDED;
}

/* The sum of a packet as it leaves, its hop limit less one where it costs one. */
INLINE u64 leaving_sum(const struct ip6 *p, u32 hop_cost)
{
	return packet_sum(p) + 0xffff - (hop_cost << 8);
}

/* What a packet costs of its hop limit: a host-specific relay is no router. */
INLINE u32 hop_cost(void) { return settings.flags & FLAG_HOST ? 0 : 1; }

/* What goes in front of a packet to a client. */
INLINE struct outer outer_of(const struct encap *e)
{
	return (struct outer){
		.mac0 = e->hop->mac0, .mac1 = e->hop->mac1, .source = e->hop->source, .destination = e->ip,
		.source_port = settings.port, .destination_port = e->port, .payload = e->size, .ttl = settings.ttl,
	};
}

/* A packet from a client. */
struct decap {
	struct nexthop6 *hop;
	struct peer peer;
	u32 age;
	u32 size; /* of the IPv6 packet */
	u32 udp_length;
	u32 outer; /* enum outer_sum */
};

/* Whether a datagram is for the relay: only then anything is counted. */
INLINE int is_ours(const struct tunnel *t)
{
	return t->protocol == PROTO_UDP && t->destination_port == settings.port && is_own(t->destination);
}

#define REASON_NOT_OURS 0xff

/* Why a datagram for us, perhaps, is not of the plain form; IPv4 with 20 bytes and UDP. */
NOINLINE u32 judge_odd(const struct tunnel *t, void *end)
{
	if (!t || t->version >> 4 != 4 || t->protocol != PROTO_UDP || !is_own(t->destination))
		return REASON_NOT_OURS;
	u32 header = (t->version & 0xf) * 4;
	if (header < IPV4_LEN || t->fragment & TO_BE16(0x1fff))
		return REASON_NOT_OURS;
	const u16 *ports = (void *)t + header;
	if ((void *)(ports + 2) > end || ports[1] != settings.port)
		return REASON_NOT_OURS;
	return t->fragment & TO_BE16(0x2000) ? REASON_FRAGMENT : REASON_IP_OPTIONS;
}

/* Judges the outer header. */
INLINE u32 judge_outer(const struct tunnel *t, const struct arrival *in, struct decap *d)
{
	if (UNLIKELY(in->now >= READ_ONCE(settings.alive_until)))
		return REASON_ASLEEP;
	u32 length = FROM_BE16(t->length), udp_length = FROM_BE16(t->udp_length);
	if (UNLIKELY(length > in->length || udp_length != length - IPV4_LEN || udp_length < UDP_LEN))
		return REASON_ODD_LENGTH;
	d->udp_length = udp_length;
	if (UNLIKELY(header_checksum(t)))
		return REASON_BAD_CHECKSUM;
	if (UNLIKELY(is_own(t->source)))
		return REASON_OWN_ADDRESS;
	if (UNLIKELY(udp_length < UDP_LEN + IPV6_LEN))
		return REASON_TRUNCATED;
	return REASON_DECAP_FORWARDED;
}

/* Judges the form of the payload, whose IPv6 header is in front of end. */
INLINE u32 judge_form(const struct ip6 *p, struct decap *d)
{
	if (UNLIKELY(p->version >> 4 != 6))
		return p->version ? REASON_NOT_IPV6 : REASON_INDICATION;
	u32 size = IPV6_LEN + FROM_BE16(p->length), payload = d->udp_length - UDP_LEN;
	d->size = size;
	if (UNLIKELY(size != payload))
		return size > payload ? REASON_BAD_LENGTH : REASON_TRAILER;
	return REASON_DECAP_FORWARDED;
}

/* Whether the engine may have to carry a packet to another client. */
INLINE int is_carried(const struct ip6 *p)
{
	return settings.flags & FLAG_CARRY &&
	       (!is_host(p->destination) || tag_of(p->destination[0]) != NO_TAG);
}

/* Judges a packet of a client that is not trusted. */
NOINLINE u32 judge_stranger(const struct tunnel *t, const struct ip6 *p)
{
	if (!t || !p)
		return REASON_UNKNOWN_PEER;
	struct address6 a = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}};
	if (may_be_tested(&a))
		return REASON_UNKNOWN_PEER;
	if (mapped_ip(p->source) != t->source || mapped_port(p->source) != t->source_port)
		return REASON_MAPPING_MISMATCH;
	return settings.flags & FLAG_HOST ? REASON_UNKNOWN_PEER : REASON_NO_PEER;
}

/*
 * Judges a packet that does not come from where its peer is. The engine asks one that
 * was not heard lately whether it has moved.
 */
NOINLINE u32 judge_moved(const struct ip6 *p, u32 state, u32 age)
{
	if (!p)
		return REASON_FOREIGN_MOVED;
	struct address6 a = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}};
	if (state & STATE_FOREIGN || age >= STAMP_DOUBT || may_be_tested(&a))
		return REASON_FOREIGN_MOVED;
	return p->next == PROTO_NONE ? REASON_BUBBLE : REASON_MAPPING_MISMATCH;
}

/* Judges whose packet it is. */
INLINE u32 judge_peer(const struct tunnel *t, const struct ip6 *p, const struct arrival *in, struct decap *d)
{
	u32 tag = tag_of(p->source[0]);
	if (UNLIKELY(tag == NO_TAG))
		return REASON_SOURCE_NOT_TEREDO;
	if (UNLIKELY(is_carried(p)))
		return REASON_CARRIED;
	int found = find_peer(tag, &p->source[1], &d->peer);
	if (UNLIKELY(found != FOUND_YES))
		return found == FOUND_NOT ? judge_stranger(t, p) : REASON_BUSY_PEER;
	if (UNLIKELY(d->peer.state & STATE_BUSY))
		return REASON_BUSY_PEER;
	d->age = age_of(&d->peer, in->now);
	if (UNLIKELY(d->age >= settings.memory))
		return REASON_EXPIRED_PEER;
	struct mapping m;
	if (UNLIKELY(!mapping_of(&d->peer, p->source, &m)))
		return REASON_BUSY_PEER;
	if (UNLIKELY(m.ip != t->source || m.port != t->source_port))
		return judge_moved(p, d->peer.state, d->age);
	return REASON_DECAP_FORWARDED;
}

/* Judges what the packet carries; it may read up to the end of a transport header. */
INLINE u32 judge_content(const struct ip6 *p, void *end, const struct arrival *in)
{
	if (UNLIKELY(!is_summed(p->next))) {
		if (p->next == PROTO_NONE)
			return REASON_BUBBLE;
		if (!is_unsummed(p->next))
			return REASON_NEXT_HEADER;
		if (in->hook == HOOK_XDP && in->device & DEVICE_PARTIAL)
			return REASON_OFFLOAD;
	}
	if (UNLIKELY(FROM_BE16(p->length) < transport_len(p->next) || (void *)(p + 1) + UDP_LEN > end))
		return REASON_SHORT_PAYLOAD;
	if (p->next == PROTO_ICMPV6) {
		u8 type = *(u8 *)(p + 1);
		if (UNLIKELY(type >= 133 && type <= 137))
			return REASON_NEIGHBOR_DISCOVERY;
	}
	if (UNLIKELY(p->hops <= 1 && !(settings.flags & FLAG_HOST)))
		return REASON_HOP_LIMIT;
	return REASON_DECAP_FORWARDED;
}

/*
 * Judges a datagram for the relay, of the plain form and with the IPv6 header in
 * front of end.
 */
INLINE u32 judge_decap(void *ctx, struct tunnel *t, void *end, const struct arrival *in, struct decap *d)
{
	struct ip6 *p = (void *)(t + 1);
	u32 reason = judge_form(p, d);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return reason;
	reason = judge_peer(t, p, in, d);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return reason;
	reason = judge_content(p, end, in);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return reason;
	d->outer = check_outer(t, is_sum_known(p), packet_sum(p));
	struct address6 source = {{U64_AT(p->source, 0), U64_AT(p->source, 8)}};
	struct address6 destination = {{U64_AT(p->destination, 0), U64_AT(p->destination, 8)}};
	if (in->hook == HOOK_HOST_INGRESS)
		return judge_destination(&destination); /* the host itself knows the way on */
	reason = find_hop6(ctx, &source, &destination, HOOK_DEVICE(in->hook), &d->hop);
	if (UNLIKELY(reason != REASON_DECAP_FORWARDED))
		return reason;
	u32 segment = in->segment ? in->segment : d->size;
	return LIKELY(segment <= d->hop->mtu) ? REASON_DECAP_FORWARDED : REASON_TOO_BIG;
}

/*
 * Punts that are as many as the host's set-up makes them, whole kinds of traffic of
 * peers that the engine knows: it must get all of them, as without a fast path.
 */
#define UNRATIONED ((u64)1 << REASON_ASLEEP | (u64)1 << REASON_NO_NEXT_HOP | (u64)1 << REASON_SERVE_LIST | \
		    (u64)1 << REASON_OFFLOAD | (u64)1 << REASON_NEXT_HEADER)

#include "settle.h"

#endif
