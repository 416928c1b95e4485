/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Which flow a packet belongs to (RFC 6146 sections 3.4 and 3.5): the session that is
 * there, brought up to date, or a new one. Nothing here knows packets.
 */

#ifndef ISTHMUS_NAT64_FLOW_H
#define ISTHMUS_NAT64_FLOW_H

#include "nat64_make.h"
#include "nat64_tcp.h"

/* What a packet is translated by. */
struct flow {
	struct session *s;
	u64 word;        /* of the session, as it was found */
	be32 pool, peer; /* T, Z */
	be16 pool_port, peer_port;
	be16 port6;
	u32 address6[4]; /* X' */
	u8 prefix;       /* of pool6 */
	u8 transport;
};

/* The tuple of a packet of the IPv6 side, and of one of the IPv4 side. */
INLINE struct tuple tuple6(u32 transport, const u32 *host, be16 x, be32 Z, be16 z, u32 prefix)
{
	return (struct tuple){
		.host = {host[0] | (u64)host[1] << 32, host[2] | (u64)host[3] << 32},
		.addresses = (u64)Z << 32,
		.ports = TUPLE_PORTS(x, 0, z, transport, prefix),
	};
}

INLINE struct tuple tuple4(u32 transport, be32 T, be16 t, be32 Z, be16 z)
{
	return (struct tuple){
		.addresses = T | (u64)Z << 32,
		.ports = TUPLE_PORTS(0, t, z, transport, 0),
	};
}

/* A session as it was found: all of it is of one use of the record. */
struct found {
	struct session *s; /* 0: none */
	u32 index;
	u64 word;
	struct tuple held;
};

/*
 * The number of the record that is likely that of a tuple, 0 when there is none. As in
 * most cases there is nothing to foresee wrongly before memory has answered.
 */
INLINE u32 number6(const struct tuple *t, u64 hash)
{
	u32 home = home_of(hash, head.session_buckets);
	struct index_bucket *b = bpf_map_lookup_elem(&sessions6, &home);
	if (UNLIKELY(!b))
		return 0;
	u32 number = number_in(b, hash);
	if (LIKELY(number))
		return number;
	LOAD_BARRIER(); /* an entry moves from a slot after spilled is raised */
	return LIKELY(!READ_ONCE(b->spilled)) ? 0 : search_session6(t, hash);
}

INLINE u32 number4(const struct tuple *t, u64 hash)
{
	u32 home = home_of(hash, head.session_buckets);
	struct index_bucket *b = bpf_map_lookup_elem(&sessions4, &home);
	if (UNLIKELY(!b))
		return 0;
	u32 number = number_in(b, hash);
	if (LIKELY(number))
		return number;
	LOAD_BARRIER(); /* an entry moves from a slot after spilled is raised */
	return LIKELY(!READ_ONCE(b->spilled)) ? 0 : search_session4(t, hash);
}

/* Reads the session of a number, if it is that of the tuple. */
INLINE int read_session(u32 number, const struct tuple *t, u32 side, struct found *f)
{
	f->index = number - 1;
	f->s = bpf_map_lookup_elem(&sessions, &f->index);
	if (UNLIKELY(!f->s))
		return 0;
	u64 seen = READ_ONCE(f->s->word);
	LOAD_BARRIER();
	f->held = tuple_of(f->s);
	LOAD_BARRIER();
	f->word = READ_ONCE(f->s->word);
	int same = side == SIDE_V6 ? is_same6(&f->held, t) : is_same4(&f->held, t);
	return LIKELY(same && !((f->word ^ seen) >> SESSION_GENERATION_SHIFT) && f->word >> SESSION_STATE_SHIFT & 0xff);
}

/* Looks a session up. */
INLINE int find_session(const struct tuple *t, u32 side, struct found *f)
{
	u64 hash = side == SIDE_V6 ? hash_session6(t) : hash_session4(t);
	u32 number = side == SIDE_V6 ? number6(t, hash) : number4(t, hash);
	if (UNLIKELY(!number))
		return 0;
	if (LIKELY(read_session(number, t, side, f)))
		return 1;
	/* Two of one tag, or one that has just ended and its heir. */
	number = side == SIDE_V6 ? search_session6(t, hash) : search_session4(t, hash);
	return read_session(number, t, side, f);
}

/* How long the lifetime of a session has run, in units of a stamp. */
INLINE u32 age_of(u64 word, u64 now)
{
	s32 age = (u32)(now >> NAT64_STAMP_SHIFT) - (u32)word;
	return age > 0 ? age : 0; /* the clock of another core may be a little ahead */
}

/* Whether a session is to be used here; if so, it is the reason given. */
INLINE u32 judge_session(u64 word, u32 transport, u64 now, u32 good)
{
	u32 state = word >> SESSION_STATE_SHIFT & 0xf;
	if (UNLIKELY(age_of(word, now) >= settings.lifetime[transport & 3][state]))
		return REASON_EXPIRED;
	return UNLIKELY(word >> SESSION_FLAGS_SHIFT & 0xff) ? REASON_ENGINE_SESSION : good;
}

/*
 * Brings a session up to date; 0 if its word has changed since it was read, for then the
 * state of TCP may be another.
 */
INLINE int update_session(const struct found *f, u32 transport, u32 side, u32 tcp_flags, u64 now)
{
	u32 state = f->word >> SESSION_STATE_SHIFT & 0xf, step;
	if (transport == TRANSPORT_TCP)
		step = tcp_step(state, side, tcp_flags);
	else
		step = side == SIDE_V4 && settings.flags & FLAG_OUTBOUND_ONLY ? state : state | STEP_REFRESH;
	u32 next = step & STEP_STATE;
	if (LIKELY(next == state && (!(step & STEP_REFRESH) || age_of(f->word, now) < NAT64_STAMP_EVERY)))
		return 1;
	if (next == SESSION_V4_INIT && !(settings.flags & FLAG_EXTERNAL_TCP))
		return 1; /* both FINs go on to end */
	u64 stamp = step & STEP_REFRESH ? now >> NAT64_STAMP_SHIFT : f->word;
	u64 fresh = f->word >> SESSION_GENERATION_SHIFT << SESSION_GENERATION_SHIFT |
		    (u64)next << SESSION_STATE_SHIFT | (u32)stamp;
	int swapped = __sync_val_compare_and_swap(&f->s->word, f->word, fresh) == f->word;
	if (next == state)
		return 1; /* if it was not, another was here with the same news */
	if (swapped)
		mark_dirty(f->index);
	return swapped;
}

INLINE void fill_flow(const struct found *f, struct flow *out)
{
	const struct tuple *t = &f->held;
	out->s = f->s;
	out->word = f->word;
	out->pool = t->addresses;
	out->peer = t->addresses >> 32;
	out->port6 = t->ports;
	out->pool_port = t->ports >> 16;
	out->peer_port = t->ports >> 32;
	out->transport = t->ports >> 48;
	out->prefix = t->ports >> 56;
	out->address6[0] = t->host[0];
	out->address6[1] = t->host[0] >> 32;
	out->address6[2] = t->host[1];
	out->address6[3] = t->host[1] >> 32;
}

/* Whether a SYN from Z, z may be waiting for one to there; no never errs. */
INLINE int may_wait(const struct tuple *t)
{
	u64 h = ((t->addresses >> 32 | (t->ports >> 32 & 0xffff) << 32) ^ settings.waiting_seed[0]) * 0x9e3779b97f4a7c15;
	h = ((h ^ h >> 32) + settings.waiting_seed[1]) * 0xd6e8feb86659fd93;
	return READ_ONCE(shared.waiting[h >> 48]) != 0;
}

/*
 * Beside the flags of TCP: the packet must have a session. An argument of its own would take
 * make_flow4 beyond the stack that Linux 6.1 gives a program.
 */
#define OPENS_NOTHING 0x10000

/* Whether a packet opens a flow: any of UDP, a SYN of TCP, a request of ICMP. */
INLINE int is_opening(u32 transport, u32 tcp_flags)
{
	if (tcp_flags & OPENS_NOTHING)
		return 0;
	return transport == TRANSPORT_UDP || (tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) == TCP_SYN;
}

/* Makes the session of a packet of the IPv6 side, with a binding if there is none. */
GLOBAL u64 make_flow6(const struct tuple *t, u32 tcp_flags, u64 now)
{
	if (!t)
		return refuse(REASON_NO_SESSION);
	u32 transport = transport_of(t);
	if (!is_opening(transport, tcp_flags))
		return refuse(REASON_NO_SESSION);
	if (settings.pool6[(t->ports >> 56) % MAX_POOL6].flags & POOL6_LEAVING)
		return refuse(REASON_OTHER_PREFIX);
	/* The gateway of FTP has a private address, and a binding, that others may forge. */
	if (settings.flags & FLAG_DETOUR && (t->host[0] & 0xfe) == 0xfc)
		return refuse(REASON_DETOUR);
	if (transport == TRANSPORT_TCP && may_wait(t))
		return refuse(REASON_STORED_SYN);
	u32 number = search_binding6(t, hash_binding6(t));
	if (!number) {
		u64 made = make_binding(t);
		number = made;
		if (!number)
			return made;
	}
	return make_session(t, number, new_word(transport == TRANSPORT_TCP ? SESSION_V6_INIT : SESSION_OPEN, now));
}

/* Makes the session of a packet of the IPv4 side, if its destination is bound. */
GLOBAL u64 make_flow4(const struct tuple *t, u32 tcp_flags, u64 now)
{
	if (!t)
		return refuse(REASON_NO_SESSION);
	u32 transport = transport_of(t);
	u32 number = search_binding4(t, hash_binding4(t));
	if (!number)
		return refuse(REASON_NO_BINDING);
	if (!is_opening(transport, tcp_flags))
		return refuse(REASON_NO_SESSION);
	if (transport == TRANSPORT_TCP && !(settings.flags & FLAG_EXTERNAL_TCP))
		return refuse(REASON_EXTERNAL_TCP);
	if (settings.flags & FLAG_FILTER(transport & 3))
		return refuse(REASON_FILTERED);
	struct tuple any = *t;
	any.ports |= (u64)NO_PREFIX << 56;
	return make_session(&any, number, new_word(transport == TRANSPORT_TCP ? SESSION_V4_INIT : SESSION_OPEN, now));
}

#define LEAST_MTU6 1280 /* of every link (RFC 8200 section 5) */

/*
 * Whether a packet to IPv6 may make a session here. Not where the engine is to compute its
 * checksum, or may have to cut it: these punts are not rationed, so a stranger must have none.
 */
INLINE u32 may_open6(const struct ip4 *p, int unsummed, u32 segment)
{
	return !unsummed && (p->fragment & IPV4_DF || segment <= LEAST_MTU6);
}

/*
 * The flow of a tuple; good is the reason of those that may go on. p, unsummed and segment are of
 * the IPv4 side.
 */
INLINE u32 find_flow(const struct tuple *t, u32 transport, u32 side, u32 tcp_flags, const struct ip4 *p, int unsummed,
		     u32 segment, u64 now, u32 good, struct flow *out)
{
	struct found f;
	if (UNLIKELY(!find_session(t, side, &f))) {
		u64 made = side == SIDE_V6 ? make_flow6(t, tcp_flags, now) :
			make_flow4(t, may_open6(p, unsummed, segment) ? tcp_flags : tcp_flags | OPENS_NOTHING, now);
		if (!(u32)made)
			return made >> 32;
		if (!read_session(made, t, side, &f))
			return REASON_BUSY;
	}
	u32 reason = judge_session(f.word, transport, now, good);
	if (UNLIKELY(reason != good))
		return reason;
	if (UNLIKELY(!update_session(&f, transport, side, tcp_flags, now)))
		return REASON_BUSY;
	fill_flow(&f, out);
	return good;
}

/* The flow of a packet about another: it makes nothing and changes nothing. */
INLINE u32 peek_flow(const struct tuple *t, u32 transport, u32 side, u64 now, u32 good, struct flow *out)
{
	struct found f;
	if (!find_session(t, side, &f))
		return REASON_NO_SESSION;
	fill_flow(&f, out);
	return judge_session(f.word, transport, now, good);
}

/*
 * The flow of a packet of the IPv6 side: from host, x to Z, z by a prefix of pool6.
 * tcp_flags are those of TCP; a request of ICMP has TCP_SYN, and its identifier in x.
 */
INLINE u32 find_flow6(u32 transport, const u32 *host, be16 x, be32 Z, be16 z, u32 prefix, u32 tcp_flags, u64 now,
		      struct flow *out)
{
	if (transport == TRANSPORT_ICMP && UNLIKELY(settings.flags & FLAG_NO_ICMP_INFO))
		return REASON_ICMP_INFO;
	struct tuple t = tuple6(transport, host, x, Z, z, prefix);
	return find_flow(&t, transport, SIDE_V6, tcp_flags, 0, 0, 0, now, REASON_TO4_FORWARDED, out);
}

/*
 * The flow of a packet of the IPv4 side: to T, t, with z; of ICMP the identifier is t.
 */
INLINE u32 find_flow4(u32 transport, const struct ip4 *p, be16 port, be16 z, u32 tcp_flags, int unsummed, u32 segment,
		      u64 now, struct flow *out)
{
	struct tuple t = tuple4(transport, p->destination, port, p->source, z);
	return find_flow(&t, transport, SIDE_V4, tcp_flags, p, unsummed, segment, now, REASON_TO6_FORWARDED, out);
}

/*
 * The flow that an ICMP error of the IPv6 side is about: the quoted packet went from
 * Z, z to host, x. It returns REASON_TO4_FORWARDED when it was found.
 */
INLINE u32 peek_flow6(u32 transport, const u32 *host, be16 x, be32 Z, be16 z, u32 prefix, u64 now, struct flow *out)
{
	struct tuple t = tuple6(transport, host, x, Z, z, prefix);
	return peek_flow(&t, transport, SIDE_V6, now, REASON_TO4_FORWARDED, out);
}

/* The same for one of the IPv4 side: the quoted packet went from T, t to Z, z. */
INLINE u32 peek_flow4(u32 transport, be32 T, be16 port, be32 Z, be16 z, u64 now, struct flow *out)
{
	struct tuple t = tuple4(transport, T, port, Z, z);
	return peek_flow(&t, transport, SIDE_V4, now, REASON_TO6_FORWARDED, out);
}

#endif
