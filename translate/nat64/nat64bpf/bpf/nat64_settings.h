/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What the programs of a NAT64 share with the daemon, beside translate_settings.h and the
 * state of nat64_layout.h. What is pinned outlives a daemon: whoever changes one of these
 * structures, or of those in base.h, raises NAT64_SETTINGS_VERSION.
 */

#ifndef ISTHMUS_NAT64_SETTINGS_H
#define ISTHMUS_NAT64_SETTINGS_H

#include "nat64_layout.h"
#include "translate_settings.h"

#define NAT64_SETTINGS_VERSION 3

/*
 * Why a packet met its verdict. Each reason has one verdict: those of one verdict stand
 * together, in the order of the verdicts. Words that the engine has too mean the same
 * there.
 */
enum reason {
	/* Forwarded. */
	REASON_TO4_FORWARDED,
	REASON_TO6_FORWARDED,

	/* Punted: what the packet is like. */
	REASON_ASLEEP,          /* no daemon has been here for long: everything passes */
	REASON_IP_OPTIONS,      /* IPv4 header with options */
	REASON_FRAGMENT,
	REASON_ODD_LENGTH,      /* the lengths of headers and frame disagree */
	REASON_NEXT_HEADER,     /* extension headers, and protocols not known here */
	REASON_SHORT_PAYLOAD,   /* less than a transport header */
	REASON_ZERO_CHECKSUM,   /* UDP over IPv4 without one */
	REASON_ICMP_TYPE,       /* neither an echo nor an error that is translated here */
	REASON_ICMP_INNER,      /* an error about a packet that is not plain */
	REASON_ILLEGAL_ADDRESS, /* one that no host may have */
	REASON_NON_GLOBAL,      /* a well-known prefix with an IPv4 address that is not global */
	REASON_SOURCE_IN_POOL6,
	REASON_HAIRPIN,         /* from one client to another */
	REASON_DETOUR,          /* an FTP control connection of a client, for the gateway of FTP */
	/* Punted: what it would need. */
	REASON_HOP_LIMIT,       /* answered with Time Exceeded */
	REASON_TOO_BIG,         /* answered */
	REASON_TO_BE_CUT,       /* of a session, and fragmented */
	REASON_NO_NEXT_HOP,     /* the routes do not say where to, or not by a device of ours */
	REASON_OFFLOAD,         /* an offload that the fast path does not keep */
	REASON_NO_ROOM,         /* no memory for the new header */
	/* Punted: the state. */
	REASON_NO_CLIENT,       /* the engine has not met this client, or does not serve it */
	REASON_NO_BINDING,      /* nothing is bound to the pool's address and port */
	REASON_NO_SESSION,      /* and the packet may not make one here */
	REASON_EXPIRED,         /* a session past its lifetime */
	REASON_ENGINE_SESSION,  /* a session that the engine alone handles */
	REASON_FILTERED,        /* new from the IPv4 side, where filtering depends on addresses */
	REASON_EXTERNAL_TCP,    /* a connection from the IPv4 side, which is not wanted */
	REASON_ICMP_INFO,       /* a query, which is not wanted */
	REASON_STORED_SYN,      /* a SYN of the IPv4 side may be waiting for this one */
	REASON_SYSTEM_PORT,     /* a new binding of a port below 1024 */
	REASON_NO_PORT,         /* none left in the client's blocks */
	REASON_OTHER_PREFIX,    /* a session by another prefix of pool6, or a new one by one that is leaving */
	REASON_SESSION_LIMIT,   /* the client has as many sessions as it may */
	REASON_SESSIONS_FULL,
	REASON_BINDINGS_FULL,
	REASON_BUSY,            /* another writes at this moment */

	/* Dropped. */
	REASON_BAD_HEADER_CHECKSUM,
	REASON_BAD_ICMP_CHECKSUM,
	REASON_PUNT_LIMIT,      /* too many punts, from one source or in all */

	REASON_COUNT,
};

#define FIRST_PUNT REASON_ASLEEP
#define FIRST_DROP REASON_BAD_HEADER_CHECKSUM
#define REASON_TO_IPV6 REASON_TO6_FORWARDED /* what leaves by IPv6 */

#define MAX_POOL4 16

/* Addresses of pool4 with the ports of ours, in the host's order; none: first > last. */
struct pool4_range {
	be32 address;
	be32 mask;
	u16 first[TRANSPORTS];
	u16 last[TRANSPORTS];
	u32 flags;
};

#define POOL4_OWN 1 /* addresses of this host: what is not ours is the host's */

#define FLAG_FILTER(transport) (1U << (transport)) /* address-dependent filtering */
#define FLAG_EXTERNAL_TCP 8     /* the IPv4 side may open connections */
#define FLAG_NO_ICMP_INFO 16    /* no queries of the IPv6 side */
#define FLAG_OUTBOUND_ONLY 32   /* packets of the IPv4 side do not prolong UDP and ICMP */
#define FLAG_ZERO_CLASS 64      /* to IPv6: the traffic class is 0 */
#define FLAG_FIXED_TOS 128      /* to IPv4: TOS is that of the settings */
#define FLAG_DETOUR 256         /* FTP control connections are for the engine */
#define FLAG_UNFINISHED 512     /* a veth may lead out what a local sender has not finished */
#define FLAG_INNER_SOURCE 1024  /* ICMP errors to IPv4 come from the address in the quoted packet */
/* Addresses of these families stand for routers, which the engine distinguishes (RFC 6791). */
#define FLAG_ROUTER_POOL4 2048
#define FLAG_ROUTER_POOL6 4096
#define FLAG_UNSUMMED 8192      /* the engine translates UDP over IPv4 without a checksum */

/*
 * The settings. The daemon writes them while programs run: one word at a time, and what
 * belongs together while alive_until is zero.
 */
struct nat64_settings {
	/* First cache line: every packet. */
	u64 generation;  /* cached next hops are good while theirs equals this */
	u64 alive_until; /* CLOCK_MONOTONIC, nanoseconds */
	u64 hop_seed;    /* of next hops and budgets */
	u32 flags;
	u32 pool6_count;
	u32 pool4_count;
	u32 trace_every; /* one packet in so many is sampled; 0: none */
	u32 lowest_mtu;  /* least size that packets without DF are cut to; see RFC 7915 section 4.1 */
	u32 tos;         /* with FLAG_FIXED_TOS */
	u32 tun;         /* interface index of our own device, for routes and for steering */
	be32 source;     /* IPv4 source that routes are asked with */
	u32 mtu4;        /* the largest packet to either side, whatever the routes say */
	u32 mtu6;
	/*
	 * Lifetimes by transport and state, in units of a stamp: so old is too old. Those of
	 * states that are none are zero.
	 */
	u32 lifetime[TRANSPORTS][16];
	struct pool6_prefix pool6[MAX_POOL6];
	struct pool4_range pool4[MAX_POOL4];
	/* Rarely. */
	u64 waiting_seed[2];
	u64 port_key[2]; /* of the ports that are drawn here */
	u32 punt_total;  /* punts of one reason in a window; 0: no limit */
	u32 punt_source; /* of that, from one source; 0: no limit */
	u32 trace_limit; /* samples a second; 0: no limit */
	u32 unused;
	struct device devices[DEVICE_SLOTS];
};

/* Tables of fixed size. */
struct nat64_shared {
	u8 routes4[ROUTES4];      /* by the upper half of an IPv4 destination: 0, or a class of one next hop */
	u8 waiting[FILTER_SLOTS]; /* how many stored SYNs have a hash of their source */
	struct identifications ids;
	struct windows windows;
};

/*
 * What is fixed when a program is loaded. The verifier takes it for constant, so sizes of
 * tables are not here but in the head: it would follow each number that comes of them.
 */
struct nat64_features {
	u64 client_mask[2]; /* of the prefix that makes a subscriber, as words of a packet */
	u8 fib_source; /* not used: source is always set */
	u8 unused[7];
	/* Never read: by it the enumerations reach Go. */
	union {
		enum verdict verdict;
		enum reason reason;
		enum hook hook;
		enum transport transport;
		enum session_state state;
	} words;
};

/*
 * What each core has of its own: where it looks for free records first, in words of the
 * bitmaps, and how many ports it has drawn.
 */
struct nat64_cursor {
	u32 session;
	u32 session4; /* for those of the IPv4 side */
	u32 binding;
	u32 unused;
	u64 drawn;
};

#endif
