/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What the programs of a GGSN share with the daemon, beside base.h. Nothing of theirs
 * outlives the process.
 */

#ifndef ISTHMUS_GGSN_LAYOUT_H
#define ISTHMUS_GGSN_LAYOUT_H

#include "base.h"

/*
 * Why a packet met its verdict. Each reason has one verdict: those of one verdict stand
 * together, in the order of the verdicts. Words that the engine has too mean the same there.
 */
enum reason {
	/* Forwarded. */
	REASON_UP_FORWARDED,   /* from a terminal */
	REASON_DOWN_FORWARDED, /* to one */

	/* Punted: G-PDUs alone. */
	REASON_ASLEEP,          /* no daemon has been here for long: everything passes */
	REASON_OUTER_FRAGMENT,
	REASON_OUTER_OPTIONS,   /* outer header of IPv4 with options */
	REASON_ODD_LENGTH,      /* the lengths of headers and frame disagree */
	REASON_NOT_GPDU,        /* another message, or another version */
	REASON_EXTENSION,       /* N-PDU number or extension headers */
	REASON_OUTER_SOURCE,    /* not from the node that has the context's user plane */
	REASON_INNER_CHECKSUM,  /* of the header inside */
	REASON_MARKED,          /* the outer ECN field is to be combined with the inner one (RFC 6040) */
	REASON_WRONG_FAMILY,    /* of a family that the context has not, or no IP packet */
	REASON_SPOOFED,         /* a source that no terminal has */
	REASON_OTHER_SOURCE,    /* one that some terminal has, or what is behind it: perhaps this one */
	/* Punted: either direction. */
	REASON_NO_RECORD,       /* of no context that the engine has told of */
	REASON_IP_OPTIONS,      /* of the packet inside; for IPv6 extension headers that are known */
	REASON_FIRST_FRAGMENT,  /* of what the engine looks at */
	REASON_SHORT_PAYLOAD,   /* less than a transport header */
	REASON_ILLEGAL_ADDRESS, /* no packets are forwarded from there, or to there */
	REASON_ON_LINK,         /* for the link, and so for the router of it */
	REASON_REDIRECT,        /* of ICMP */
	REASON_TCP_SYN,         /* whose segment size the engine may lower */
	REASON_HOP_LIMIT,       /* answered with Time Exceeded */
	REASON_TOO_BIG,         /* answered */
	REASON_TO_BE_CUT,       /* fragmented */
	REASON_VOLUME,          /* with it a charging record is full */
	REASON_CONTENDED,       /* others spend from the same rate at this moment */
	REASON_NO_NEXT_HOP,     /* the routes do not say where to, or not by a device of ours */
	REASON_INSIDE,          /* to, or from, an address of terminals */
	REASON_OFFLOAD,         /* an offload that the fast path does not keep */

	/* Dropped. */
	REASON_OVER_RATE,
	REASON_BAD_CHECKSUM,    /* of the outer header, or of UDP; of a packet of IPv4 for a terminal */
	REASON_NO_ROOM,         /* no memory for the new header, of a packet that has been accounted */
	REASON_PUNT_LIMIT,      /* too many punts, from one source or in all */

	REASON_COUNT,
};

#define FIRST_PUNT REASON_ASLEEP
#define FIRST_DROP REASON_OVER_RATE
#define REASON_TO_IPV6 REASON_UP_FORWARDED /* what leaves by IPv6 */

/* A rate, spent by compare-and-swap; gprs/ggsn/policer.go says how. */
struct rate {
	u64 arrival; /* nanoseconds since the engine's epoch */
	u64 cost;    /* of an octet, 16 bits behind the point; 0: no limit, all ones: nothing passes */
};

/* One direction of a context. What is counted the engine takes now and then. */
struct way {
	struct rate rate;
	u64 packets;
	u64 octets;
	u64 over; /* packets above the rate */
	u64 unused[3];
};

#define CONTEXT_IPV4 1
#define CONTEXT_IPV6 2
#define CONTEXT_ANY_SOURCE 4 /* of G-PDUs */
#define CONTEXT_CLEAR_ECN 8  /* the field is not copied to the outer header */

/*
 * A context, as gprs/ggsn/shared.go has it. Who uses it reads the state in front and
 * behind: odd, and the same.
 */
struct context {
	u32 state;
	be32 teid;      /* ours */
	be32 node;      /* that has the user plane at the other end */
	be32 node_teid;
	be32 address;   /* IPv4 */
	u32 flags;
	u64 prefix;     /* the upper half of IPv6 addresses */
	u32 mtu;        /* of packets inside */
	u32 class;      /* TOS octet of G-PDUs, but for its ECN field */
	u32 aggregate;  /* the rates that it shares; 0: none */
	u32 seen;       /* when the terminal sent last, in seconds since the engine's epoch */
	u64 left;       /* octets of both directions before a charging record is full; all ones: any */
	u64 unused;
	struct way up;
	struct way down;
};

/* Addresses of terminals, and of what is behind them, as keys of tries. */
struct inside4 {
	u32 bits;
	be32 address;
};

struct inside6 {
	u32 bits;        /* at most 64 */
	u32 address[2];  /* the upper half */
};

/* The rates that contexts of a terminal share. */
struct aggregate {
	struct rate up;
	struct rate down;
};

/* The settings. The daemon writes them while programs run, one word at a time. */
struct ggsn_settings {
	/* First cache line: every packet. */
	u64 generation;  /* cached next hops are good while theirs equals this */
	u64 alive_until; /* CLOCK_MONOTONIC, nanoseconds */
	u64 hop_seed;    /* of next hops and budgets */
	u64 epoch;       /* of the engine, CLOCK_MONOTONIC */
	be32 source;     /* the node's own address */
	u32 tun;         /* interface index of our own device, for routes */
	u32 trace_every; /* one packet in so many is sampled; 0: none */
	u32 trace_limit; /* samples a second; 0: no limit */
	u32 punt_total;  /* punts of one reason in a window; 0: no limit */
	u32 punt_source; /* of that, from one source; 0: no limit */
	u32 ttl;         /* outer time to live */
	u32 unused;
	struct device devices[DEVICE_SLOTS];
};

/* Tables of fixed size. */
struct ggsn_shared {
	u8 routes4[ROUTES4]; /* by the upper half of an IPv4 destination: 0, or a class of one next hop */
	struct windows windows;
};

/* What is fixed when a program is loaded. The verifier takes it for constant. */
struct ggsn_features {
	u8 core_bits;  /* bits of the outer identification that tell cores apart */
	u8 fib_source; /* not used: source is always set */
	u8 decap_flag; /* bpf_skb_adjust_room knows ROOM_DECAP_IPV6 */
	u8 unused[5];
	/* Never read: by it the enumerations reach Go. */
	union {
		enum verdict verdict;
		enum reason reason;
		enum hook hook;
	} words;
};

#endif
