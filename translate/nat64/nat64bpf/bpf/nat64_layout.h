/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The state of a NAT64 (RFC 6146), which daemon and programs share: either side
 * creates bindings and sessions, the daemon alone ends them.
 * translate/nat64/state/layout.go is the same in Go, and says how it is used. What is
 * pinned outlives a daemon: whoever changes one of these raises NAT64_LAYOUT_VERSION.
 *
 * Words: X' and x are address and port of the IPv6 host, T and t those of the pool that
 * it is bound to, Z and z those of the IPv4 host. An ICMP query has its identifier in
 * x, t and z stays 0. Addresses and ports lie in network order, all else in the host's.
 */

#ifndef ISTHMUS_NAT64_LAYOUT_H
#define ISTHMUS_NAT64_LAYOUT_H

#include "translate_settings.h"

#define NAT64_LAYOUT_VERSION 1

/*
 * States of a session. UDP and ICMP know SESSION_OPEN alone; the others are those of
 * TCP (RFC 6146 section 3.5.2). A V4 SYN that waits for a V6 SYN is not here, but in
 * the engine's memory.
 */
enum session_state {
	SESSION_FREE, /* no session */
	SESSION_OPEN,
	SESSION_V4_INIT,
	SESSION_V6_INIT,
	SESSION_ESTABLISHED,
	SESSION_V4_FIN,
	SESSION_V6_FIN,
	SESSION_BOTH_FIN,
	SESSION_TRANS,
	SESSION_STATES,
};

/*
 * The word of a session changes as a whole, by compare-and-swap:
 *	bits 0-31	stamp: when its lifetime began, in units of 2^28 ns of CLOCK_MONOTONIC
 *	bits 32-39	state
 *	bits 40-47	flags
 *	bits 48-63	generation: raised when the record is used again
 * It ends at stamp + lifetime of its state. A reader that found word, key and then the
 * same generation and a state has read one session. Stamps are renewed when they are
 * NAT64_STAMP_EVERY units old, or with a change of state.
 *
 * Whoever takes a record of any kind writes what it holds, and then the word with the
 * next generation; only then it goes into the indexes. The daemon ends it in the other
 * order: state 0 into the word, out of the indexes, bits and counts given back. A lock
 * is never written but to take it or give it back: somebody may hold that of a record
 * whose last use has ended, and then finds another generation.
 * The maker of a binding holds its lock until it is in both indexes, that of a session
 * the lock of its binding: so nothing ends half made.
 */
#define NAT64_STAMP_SHIFT 28
#define NAT64_STAMP_EVERY 4
#define SESSION_STATE_SHIFT 32
#define SESSION_FLAGS_SHIFT 40
#define SESSION_GENERATION_SHIFT 48
#define SESSION_SLOW 1     /* flag: the engine alone handles it: hairpinned, or of its own making */
#define SESSION_EXPECTED 2 /* flag: made for a packet that is to come: 30 s, then as its state says */
#define SESSION_DETOURED 4 /* flag: FTP control of an IPv4 client, for the gateway of FTP */

/* One session, one cache line. */
struct session {
	u64 word;
	u32 address6[4]; /* X' */
	be32 pool;       /* T */
	be32 peer;       /* Z */
	be16 port6;      /* x */
	be16 pool_port;  /* t */
	be16 peer_port;  /* z */
	u8 transport;    /* enum transport */
	u8 prefix;       /* which prefix of pool6 the IPv6 host uses for Z */
	u32 binding;     /* index of its binding */
	u32 next;        /* index + 1 of the next session of the binding; under its lock */
	u32 previous;    /* and of the one before, 0 in the first: new ones go first */
	u32 unused[3];
};

#define BINDING_FREE 0
#define BINDING_DYNAMIC 1 /* goes with its last session */
#define BINDING_STATIC 2  /* goes by the operator alone */

/* One entry of a BIB. */
struct binding {
	u32 address6[4]; /* X' */
	be32 pool;       /* T */
	be16 port6;      /* x */
	be16 pool_port;  /* t */
	u32 word;        /* bits 0-7 state, 8-15 transport, 16-31 generation */
	u32 lock;        /* 0 free, 1 held */
	u32 sessions;    /* index + 1 of its first session; under the lock */
	u32 subscriber;  /* index + 1; 0: none */
};

#define SUBSCRIBER_FREE 0
#define SUBSCRIBER_USED 1
#define SUBSCRIBER_GUARDED 0x100 /* not all of its hosts may use the translator: the engine asks */
#define SUBSCRIBER_BLOCKS 16

/*
 * One client: an IPv6 prefix of the length in the settings, its pool address and its
 * blocks of ports. Made and ended by the daemon alone, which checks whether the client
 * may use the translator. bindings and sessions are counted by whoever makes one.
 */
struct subscriber {
	u64 prefix[2];    /* as loaded from a packet, the rest zero */
	be32 pool;        /* T of all its bindings */
	u32 word;         /* bits 0-7 state (0 free, 1 used), 8 guarded, 16-31 generation */
	u32 lock;         /* held to make a binding, or to change blocks */
	u32 sessions;     /* atomic */
	u32 session_limit; /* 0: none */
	u32 bindings;     /* atomic */
	u32 blocks;       /* how many */
	u32 idle_since;   /* stamp, the daemon's */
	u32 first[SUBSCRIBER_BLOCKS]; /* of each block: index of its first word in a bitmap of ports */
};

/*
 * Ports in use: one bit each, also set for what is not in the pool, so that a clear bit
 * may be taken. The word of (address number a of the pool, transport, port)
 * is ((a * TRANSPORTS + transport) * PORT_WORDS + port / 64); first[] above holds
 * a * TRANSPORTS * PORT_WORDS + port / 64, for transport 0. A block is head.block_words
 * words, a power of two, aligned to that. Words below SYSTEM_WORDS, the system ports,
 * are never taken at random: the daemon gives them to bindings of system ports.
 */
#define PORT_WORDS 1024
#define SYSTEM_WORDS 16

/* An address of the pool, at its number. The number stays while ports of it are in use. */
struct pool_address {
	be32 address; /* 0: none */
	u32 unused;
};

/*
 * An index finds a record by the hash of its key. A slot holds the index + 1 of the
 * record below and the low half of the hash above; 0 is an empty slot. Slots change by
 * compare-and-swap. An entry goes into its home bucket; if all slots there are taken,
 * into its other one, and its home counts that in spilled, atomically and before. So
 * who finds nothing at home, and then reads 0 in spilled, need not look further.
 * If both are full the daemon makes room: it moves an entry from its home to its other
 * bucket, raising spilled, writing the copy and then clearing the old slot. Nothing
 * ever moves back, so that a look-up of home, spilled, other misses no entry.
 * Two entries of one key are prevented by locks: that of the subscriber for bindings
 * (the daemon alone makes bindings without one), that of the binding for sessions.
 * sessions4 does not tell prefixes of pool6 apart: under the lock a maker looks into
 * both indexes, and makes no session if the one of the same Z, z has another prefix.
 */
#define INDEX_SLOTS 7

struct index_bucket {
	u64 slot[INDEX_SLOTS];
	u32 spilled;
	u32 unused;
};

/*
 * The hash of a key of up to 7 words of 32 bits, as they are loaded:
 *	h = seed[0] + seed[1] * key[0] + ... + seed[7] * key[6]
 *	h ^= h >> 32; h *= 0x9e3779b97f4a7c15; h ^= h >> 29
 *	home  = (h >> 32) * buckets >> 32
 *	other = (u64)(u32)((u32)h * 0x85ebca6b) * buckets >> 32, the next one if it is home
 * Keys:
 *	sessions6	X' (4), Z, x | z << 16, transport | prefix << 8
 *	sessions4	T, Z, t | z << 16, transport
 *	bindings6	X' (4), x | transport << 16
 *	bindings4	T, t | transport << 16
 *	subscribers	prefix (4)
 */
#define NAT64_SEEDS 8

/* The head of the state: what shapes the rest. */
struct nat64_head {
	u32 version;
	u32 unused;
	u64 seed[NAT64_SEEDS];
	u32 sessions, bindings, subscribers;           /* records */
	u32 session_buckets, binding_buckets, subscriber_buckets; /* of each index */
	u32 addresses;                                 /* of the pool */
	u32 block_words;                               /* 64 ports each */
	u32 subscriber_length;                         /* of the prefix that makes a subscriber */
	u32 unused_end;
};

/*
 * Records are free while their bit in a bitmap (sessions_used, bindings_used) is clear;
 * taking one is setting it, near the bit that one took last. Sweeps go by the bitmap.
 * The daemon alone takes subscribers, and keeps no bitmap of them here. ports_used are the ports. sessions_dirty has a bit for each
 * session that changed (made, ended, or of another state) since the daemon looked.
 */

#endif
