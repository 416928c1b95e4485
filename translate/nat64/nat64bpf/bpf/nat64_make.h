/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Making bindings and sessions. What cannot be made at once is left to the engine: a
 * client that it has not met, a lock that is held, a table without room, ports that are
 * all taken. translate/nat64/state makes them in the same way.
 *
 * Functions return the number of a record (its index + 1) in the lower half, or 0 there
 * and the reason of a punt in the upper half.
 */

#ifndef ISTHMUS_NAT64_MAKE_H
#define ISTHMUS_NAT64_MAKE_H

#include "nat64_pool.h"
#include "nat64_records.h"
#include "siphash.h"

INLINE u64 refuse(u32 reason) { return (u64)reason << 32; }

/* Ports. */

#define PORT_TRIES 128
#define EVEN_PORTS 0x5555555555555555ULL

/* The bit of a word where a port is: the word in the upper half, 1 + the bit below. */
INLINE u64 place_of_port(u32 word, u32 bit) { return (u64)word << 32 | (bit + 1); }

#define NO_PORTS (~(u64)0)

/*
 * Takes a port in the word of that number, from a random one on, of a client's blocks.
 * The first time round mask is of the ports that are wanted most; the second time any
 * will do; then there are none.
 */
GLOBAL u64 take_port_in(u32 subscriber, u32 transport, u64 mask, u64 random, u32 number)
{
	struct subscriber *s = bpf_map_lookup_elem(&subscribers, &subscriber);
	if (!s)
		return NO_PORTS;
	u32 words = READ_ONCE(s->blocks) * head.block_words, turn = random & 63;
	if (number >= 2 * words)
		return NO_PORTS;
	if (number >= words)
		mask = ~(u64)0;
	u32 at = ((random >> 32) * words >> 32) + number;
	at %= words;
	u32 word = s->first[at / head.block_words & (SUBSCRIBER_BLOCKS - 1)] + at % head.block_words;
	if (word % PORT_WORDS < SYSTEM_WORDS)
		return 0;
	word += transport * PORT_WORDS;
	u64 *ports = bpf_map_lookup_elem(&ports_used, &word);
	u64 free = ports ? ~READ_ONCE(*ports) & mask : 0;
	if (!ports || !free)
		return 0;
	free = free >> turn | free << (-turn & 63);
	u32 bit = (lowest_bit(free) + turn) & 63;
	return take_bit(ports, bit) ? place_of_port(word, bit) : 0;
}

/*
 * Draws a number that does not follow from others, as those of the kernel's generator do:
 * by a secret key, of what no core has drawn before (RFC 6056 section 3.1).
 */
GLOBAL u64 draw(void)
{
	u32 zero = 0;
	struct nat64_cursor *c = bpf_map_lookup_elem(&cursors, &zero);
	return c ? siphash(settings.port_key, c->drawn++ << 16 | (u16)bpf_get_smp_processor_id()) : 0;
}

/* Takes a port at random from a client's blocks, whose lock is held. */
GLOBAL u64 take_port(u32 subscriber, u32 transport, u64 mask)
{
	u64 random = draw();
	for (u32 i = 0; i < PORT_TRIES; i++) {
		u64 place = take_port_in(subscriber, transport, mask, random, i);
		if (place)
			return place == NO_PORTS ? 0 : place;
	}
	return 0;
}

GLOBAL int give_port(u64 place)
{
	u32 word = place >> 32;
	u64 *ports = bpf_map_lookup_elem(&ports_used, &word);
	if (ports)
		clear_bit(ports, (u32)place - 1);
	return 0;
}

INLINE be16 port_at(u64 place) { return TO_BE16((place >> 32) % PORT_WORDS * 64 + ((u32)place - 1)); }

/* The ports that a binding wants most: UDP keeps the parity of x (RFC 4787 REQ-4). */
INLINE u64 wanted_ports(u32 transport, be16 x)
{
	if (transport != TRANSPORT_UDP)
		return ~(u64)0;
	return FROM_BE16(x) & 1 ? ~EVEN_PORTS : EVEN_PORTS;
}

/* Bindings. */

/* Fills and enters a binding; the lock of its subscriber is held. */
INLINE u64 fill_binding(const struct tuple *t, struct subscriber *s, u32 subscriber, u32 number)
{
	u32 index = number - 1;
	struct binding *b = bpf_map_lookup_elem(&bindings, &index);
	if (!b)
		return refuse(REASON_BINDINGS_FULL);
	/* No one ends it before it is in both indexes. */
	if (!take_lock(&b->lock))
		return refuse(REASON_BUSY);
	u64 *w = (u64 *)b;
	w[0] = t->host[0];
	w[1] = t->host[1];
	b->pool = t->addresses;
	b->port6 = t->ports;
	b->pool_port = t->ports >> 16;
	b->sessions = 0;
	b->subscriber = subscriber;
	/* Another may read the record at this moment; all that it holds is there before its word. */
	u32 generation = (b->word >> BINDING_GENERATION_SHIFT) + 1;
	u32 word = generation << BINDING_GENERATION_SHIFT | transport_of(t) << BINDING_TRANSPORT_SHIFT | BINDING_DYNAMIC;
	PUBLISH(b->word, word);
	u64 hash = hash_binding6(t);
	if (enter_binding6(number, hash)) {
		if (enter_binding4(number, hash_binding4(t))) {
			__sync_fetch_and_add(&s->bindings, 1);
			give_lock(&b->lock);
			return number;
		}
		leave_binding6(number, hash);
	}
	PUBLISH(b->word, word & ~BINDING_STATE);
	give_lock(&b->lock);
	return refuse(REASON_BINDINGS_FULL);
}

/* Binds X', x of a tuple, under the lock of the subscriber. */
INLINE u64 bind_locked(struct tuple *t, struct subscriber *s, u32 subscriber)
{
	u32 number = search_binding6(t, hash_binding6(t));
	if (number)
		return number;
	u32 transport = transport_of(t);
	u64 place = take_port(subscriber, transport, wanted_ports(transport, t->ports));
	if (!place)
		return refuse(REASON_NO_PORT);
	number = take_binding();
	if (!number) {
		give_port(place);
		return refuse(REASON_BINDINGS_FULL);
	}
	t->addresses = READ_ONCE(s->pool) | t->addresses >> 32 << 32;
	t->ports = (t->ports & ~0xffff0000ULL) | (u64)port_at(place) << 16;
	u64 made = fill_binding(t, s, subscriber + 1, number);
	if (!(u32)made) {
		give_binding(number);
		give_port(place);
	}
	return made;
}

/* Whether some of a client's hosts may not use the translator, which the engine alone knows. */
INLINE int is_guarded(const struct subscriber *s) { return READ_ONCE(s->word) & SUBSCRIBER_GUARDED; }

/* Binds X', x of a tuple, if the engine knows the client. */
GLOBAL u64 make_binding(const struct tuple *t)
{
	if (!t)
		return refuse(REASON_NO_CLIENT);
	/* Then the port should be one below 1024 too. */
	if (FROM_BE16(t->ports) < 64 * SYSTEM_WORDS && transport_of(t) != TRANSPORT_ICMP)
		return refuse(REASON_SYSTEM_PORT);
	/* First of the prefix, then of all. */
	struct tuple work = {.host = {t->host[0] & fixed.client_mask[0], t->host[1] & fixed.client_mask[1]}};
	u32 subscriber = search_subscriber(&work, hash_subscriber(&work)) - 1;
	struct subscriber *s = bpf_map_lookup_elem(&subscribers, &subscriber);
	if (!s)
		return refuse(REASON_NO_CLIENT);
	if (!take_lock(&s->lock))
		return refuse(REASON_BUSY);
	/* It may have become another's meanwhile. */
	int same = is_subscriber(s, &work);
	work = *t;
	u64 made = refuse(same ? REASON_NO_CLIENT : REASON_BUSY);
	if (same && !is_guarded(s))
		made = bind_locked(&work, s, subscriber);
	give_lock(&s->lock);
	return made;
}

/* Sessions. */

/* What a new session starts with: stamp, and state above it. */
INLINE u64 new_word(u32 state, u64 now) { return (u64)state << SESSION_STATE_SHIFT | (u32)(now >> NAT64_STAMP_SHIFT); }

/* Puts a session first into the chain of its binding, whose lock is held. */
INLINE void chain_session(struct binding *b, struct session *s, u32 number)
{
	u32 first = b->sessions, at = first - 1;
	s->next = first;
	s->previous = 0;
	struct session *second = bpf_map_lookup_elem(&sessions, &at);
	if (second)
		second->previous = number;
	PUBLISH(b->sessions, number);
}

/* Fills and enters a session; the lock of its binding is held. */
INLINE u64 fill_session(const struct tuple *t, struct binding *b, u32 binding, u32 number, u64 fresh)
{
	u32 index = number - 1;
	struct session *s = bpf_map_lookup_elem(&sessions, &index);
	if (!s)
		return refuse(REASON_SESSIONS_FULL);
	u64 *w = (u64 *)s;
	w[1] = t->host[0];
	w[2] = t->host[1];
	w[3] = t->addresses;
	w[4] = t->ports;
	s->binding = binding;
	u64 word = ((s->word >> SESSION_GENERATION_SHIFT) + 1) << SESSION_GENERATION_SHIFT | fresh;
	PUBLISH(s->word, word);
	u64 hash = hash_session6(t);
	if (enter_session6(number, hash)) {
		if (enter_session4(number, hash_session4(t))) {
			chain_session(b, s, number);
			mark_dirty(index);
			return number;
		}
		leave_session6(number, hash);
	}
	PUBLISH(s->word, word >> SESSION_GENERATION_SHIFT << SESSION_GENERATION_SHIFT);
	return refuse(REASON_SESSIONS_FULL);
}

/*
 * Counts a session of a binding's subscriber; 0 when that has as many as it may. The second
 * half is for those that the client opens itself.
 */
INLINE int count_session(struct subscriber *s, u32 from_ipv4)
{
	if (!s)
		return 1; /* the operator's own bindings may have as many as they want */
	u32 limit = READ_ONCE(s->session_limit);
	if (from_ipv4)
		limit -= limit / 2;
	if (__sync_fetch_and_add(&s->sessions, 1) < limit || !limit)
		return 1;
	__sync_fetch_and_add(&s->sessions, -1);
	return 0;
}

/*
 * Chooses the prefix of pool6 that stands for an IPv4 host which comes first: that of the
 * client's newest session, or the only one. Where that will not do, or is no longer named,
 * the engine chooses.
 */
INLINE u32 choose_prefix(const struct binding *b, be32 peer, u32 *prefix)
{
	u32 newest = READ_ONCE(b->sessions) - 1;
	struct session *s = bpf_map_lookup_elem(&sessions, &newest);
	if (!s && settings.pool6_count != 1)
		return REASON_OTHER_PREFIX;
	*prefix = s ? READ_ONCE(s->prefix) : 0;
	if (*prefix >= settings.pool6_count || settings.pool6[*prefix % MAX_POOL6].flags & POOL6_LEAVING)
		return REASON_OTHER_PREFIX;
	return judge_peer4(peer, *prefix);
}

#define FTP_PORT TO_BE16(21)

/* Whether a segment with a server at a port is for the gateway of FTP. */
INLINE int is_ftp(be16 server, u32 transport)
{
	return transport == TRANSPORT_TCP && server == FTP_PORT && settings.flags & FLAG_DETOUR;
}

/* Makes a session of a tuple, under the lock of the binding. */
INLINE u64 session_locked(struct tuple *t, struct binding *b, u32 binding, u64 fresh)
{
	u32 prefix = t->ports >> 56, any = prefix == NO_PREFIX;
	/* What is bound and Z, z tell all sessions apart, but for the prefix. */
	u32 number = search_session4(t, hash_session4(t)), index = number - 1;
	struct session *same = bpf_map_lookup_elem(&sessions, &index);
	if (number)
		return any || (same && is_session6(same, t)) ? number : refuse(REASON_OTHER_PREFIX);
	/* For the gateway of FTP, but rationed: anybody can send it. */
	if (any && is_ftp(t->ports, transport_of(t)))
		return refuse(REASON_NO_SESSION);
	if (any) {
		u32 bad = choose_prefix(b, t->addresses >> 32, &prefix);
		if (bad)
			return refuse(bad);
		t->ports = t->ports << 8 >> 8 | (u64)prefix << 56;
	}
	u32 subscriber = READ_ONCE(b->subscriber) - 1;
	struct subscriber *s = bpf_map_lookup_elem(&subscribers, &subscriber);
	if (s && is_guarded(s))
		return refuse(REASON_NO_CLIENT);
	if (!count_session(s, any))
		return refuse(REASON_SESSION_LIMIT);
	number = any ? take_session4() : take_session();
	u64 made = number ? fill_session(t, b, binding, number, fresh) : refuse(REASON_SESSIONS_FULL);
	if (!(u32)made) {
		if (number)
			give_session(number);
		if (s)
			__sync_fetch_and_add(&s->sessions, -1);
	}
	return made;
}

/*
 * Makes a session between a binding and Z, z of a tuple, which is completed by what the
 * binding has. With NO_PREFIX there, any prefix of pool6 will do.
 */
GLOBAL u64 make_session(const struct tuple *t, u32 number, u64 fresh)
{
	u32 binding = number - 1;
	struct binding *b = bpf_map_lookup_elem(&bindings, &binding);
	if (!b || !t)
		return refuse(REASON_NO_BINDING);
	if (!take_lock(&b->lock))
		return refuse(REASON_BUSY);
	const u64 *w = (const u64 *)b;
	struct tuple whole = {
		.host = {w[0], w[1]},
		.addresses = t->addresses >> 32 << 32 | (u32)w[2],
		.ports = t->ports >> 32 << 32 | w[2] >> 32,
	};
	/* What the caller found it by must still be so. */
	u64 made = refuse(REASON_BUSY);
	if (is_binding6(b, t) || is_binding4(b, t))
		made = session_locked(&whole, b, binding, fresh);
	give_lock(&b->lock);
	return made;
}

#endif
