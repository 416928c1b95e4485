/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What the programs of Teredo share with the daemon, beside base.h. What is pinned
 * outlives a daemon: whoever changes one of these structures, or of those in base.h,
 * raises LAYOUT_VERSION.
 */

#ifndef ISTHMUS_LAYOUT_H
#define ISTHMUS_LAYOUT_H

#include "base.h"

#define LAYOUT_VERSION 1

/*
 * Why. Each reason has one verdict: those of one verdict stand together, in the
 * order of the verdicts. Words that the engine has too mean the same there.
 */
enum reason {
	/* Forwarded. */
	REASON_ENCAP_FORWARDED,
	REASON_DECAP_FORWARDED,
	/* Of a host's own traffic. */
	REASON_HOST_ENCAP_FORWARDED,
	REASON_HOST_DECAP_FORWARDED,

	/* Punted. */
	REASON_ASLEEP,         /* no daemon has been here for long: everything passes */
	REASON_OWN_ADDRESS,    /* from one of our own IPv4 addresses */
	REASON_IP_OPTIONS,     /* outer IPv4 header with options */
	REASON_FRAGMENT,       /* outer IPv4 fragment */
	REASON_ODD_LENGTH,     /* the lengths of outer headers disagree */
	REASON_INDICATION,     /* something stands before the IPv6 packet */
	REASON_TRAILER,        /* something stands behind it */
	REASON_BUBBLE,
	REASON_NEXT_HEADER,    /* extension headers, and protocols not known here */
	REASON_SHORT_PAYLOAD,  /* less than a transport header */
	REASON_UNKNOWN_PEER,
	REASON_BUSY_PEER,      /* the engine has the peer in hand */
	REASON_EXPIRED_PEER,   /* not heard for too long */
	REASON_FOREIGN_MOVED,  /* a foreign peer from elsewhere than last */
	REASON_CARRIED,        /* may be from client to client */
	REASON_HOP_LIMIT,      /* answered with Time Exceeded */
	REASON_TOO_BIG,        /* answered with Packet Too Big, or fragmented */
	REASON_NO_NEXT_HOP,    /* the routes do not say where to, or not by a device of ours */
	REASON_SERVE_LIST,     /* more served ranges than fit here */
	REASON_OFFLOAD,        /* an offload that the fast path does not keep */
	REASON_NO_ROOM,        /* no memory for the new header */
	REASON_HOST_DIRECT,    /* a host's packet that is not for a known peer */

	/* Dropped. */
	REASON_TRUNCATED,
	REASON_NOT_IPV6,
	REASON_BAD_LENGTH,
	REASON_BAD_CHECKSUM,   /* of the outer IPv4 or UDP header */
	REASON_SOURCE_NOT_TEREDO,
	REASON_MAPPING_MISMATCH,
	REASON_NO_PEER,
	REASON_BAD_SOURCE,
	REASON_BAD_DESTINATION,
	REASON_TEREDO_TO_TEREDO,
	REASON_NOT_SERVED,
	REASON_NEIGHBOR_DISCOVERY,
	REASON_PUNT_LIMIT,     /* too many punts, from one source or in all */

	REASON_COUNT,
};

#define FIRST_PUNT REASON_ASLEEP
#define FIRST_DROP REASON_TRUNCATED
#define REASON_TO_IPV6 REASON_DECAP_FORWARDED /* what leaves by IPv6 */

#define MAX_PREFIXES 16
#define MAX_SERVE 64
#define OWN_SLOTS 256

#define FLAG_HOST 1       /* a host's own relay: no hop is taken, strangers may speak first */
#define FLAG_CARRY 2      /* the engine carries between clients */
#define FLAG_SERVE_MORE 4 /* the list of served ranges goes on in the engine */
#define FLAG_UNFINISHED 8 /* a veth may lead out what a local sender has not finished */

/*
 * The settings. The daemon writes them while programs run: one word at a time, and
 * what belongs together while alive_until is zero.
 */
struct relay_settings {
	/* First cache line: every packet. */
	u64 generation;  /* cached next hops are good while theirs equals this */
	u64 alive_until; /* CLOCK_MONOTONIC, nanoseconds */
	be32 prefix;     /* the first Teredo prefix */
	u32 prefixes;    /* how many there are */
	be32 source;     /* outer source address; 0: by the route */
	be16 port;       /* outer source port */
	u8 ttl;          /* outer time to live */
	u8 unused_byte;
	u32 flags;
	u32 refresh;     /* ages in units of a stamp: from here on, no more to the peer */
	u32 memory;      /* from here on, nothing from it */
	u32 mtu;         /* largest IPv6 packet to clients */
	u32 trace_every; /* one packet in so many is sampled; 0: none */
	u32 own_factor;  /* see own */
	/* Second: look-ups. */
	u64 peer_seed[5];
	u64 hop_seed;    /* of next hops and budgets */
	u64 filter_seed[2];
	/* Rarely. */
	u32 tun;         /* interface index of our own device, for routes */
	u32 punt_total;  /* punts of one reason in a window; 0: no limit */
	u32 punt_source; /* of that, from one source; 0: no limit */
	u32 trace_limit; /* samples a second; 0: no limit */
	u32 serves;      /* how many there are in serve */
	u32 unused_word;
	be32 by_tag[MAX_PREFIXES]; /* by tag; the first is prefix again */
	struct range6 serve[MAX_SERVE];
	be32 own[OWN_SLOTS]; /* our IPv4 addresses: (address * own_factor) >> 24 is its slot */
	struct device devices[DEVICE_SLOTS];
};

/* The slot of a peer, as teredo/peer/layout.go has it, in two words. */
struct slot {
	u64 k01; /* first eight bytes of the key */
	u64 k2s; /* last four bytes, then the state */
};

#define SLOTS_PER_BUCKET 4

struct bucket {
	struct slot slots[SLOTS_PER_BUCKET];
};

#define STATE_USED (1U << 31)
#define STATE_BUSY (1U << 30)
#define STATE_FOREIGN (1U << 29)
#define STATE_TAG (0xfU << 24)
#define STATE_TAG_SHIFT 24
#define STATE_STAMP 0xffffU

#define STAMP_SHIFT 28 /* a stamp counts 2^28 nanoseconds */
#define STAMP_SKEW 40  /* how much older the clock of another core may be */
#define STAMP_EVERY 4  /* a stamp so old is renewed: once a second */
#define STAMP_DOUBT 8  /* one so old is no proof against a sign of change: two seconds */

/* The mapping of a peer that is not the one in its address. */
struct mapping {
	be32 ip;
	be16 port;
	u16 unused;
};

/* Tables of fixed size. */
struct shared_tables {
	u8 routes4[ROUTES4];         /* by the upper half of an IPv4 destination: 0, or a class of one next hop */
	u8 under_test[FILTER_SLOTS]; /* how many clients with a hash the engine tests */
	struct windows windows;
};

/*
 * What is fixed when a program is loaded. The verifier takes it for constant and
 * removes what a kernel cannot do.
 */
struct features {
	u32 bucket_mask; /* buckets of the peer table less one */
	u8 core_bits;    /* bits of the outer identification that tell cores apart */
	u8 fib_source;   /* bpf_fib_lookup tells the source address */
	u8 decap_flag;   /* bpf_skb_adjust_room knows ROOM_DECAP_IPV6 */
	u8 unused;
	/* Never read: by it the enumerations reach Go. */
	union {
		enum verdict verdict;
		enum reason reason;
		enum hook hook;
	} words;
};

#endif
