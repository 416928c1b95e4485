/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What the programs of a stateless translator share with the daemon, beside base.h. They
 * keep no state, and nothing of theirs outlives the process.
 */

#ifndef ISTHMUS_SIIT_SETTINGS_H
#define ISTHMUS_SIIT_SETTINGS_H

#include "translate_settings.h"

/*
 * Why a packet met its verdict. Each reason has one verdict: those of one verdict stand
 * together, in the order of the verdicts. Words that the engine or a NAT64 has too mean
 * the same there.
 */
enum reason {
	/* Forwarded. */
	REASON_TO4_FORWARDED,
	REASON_TO6_FORWARDED,

	/* Punted: what the packet is like. */
	REASON_ASLEEP,          /* no daemon has been here for long, or mappings change: everything passes */
	REASON_IP_OPTIONS,      /* IPv4 header with options */
	REASON_FRAGMENT,
	REASON_ODD_LENGTH,      /* the lengths of headers and frame disagree */
	REASON_NEXT_HEADER,     /* extension headers, and protocols not known here */
	REASON_SHORT_PAYLOAD,   /* less than a transport header */
	REASON_ZERO_CHECKSUM,   /* UDP over IPv4 without one */
	REASON_ICMP_TYPE,       /* neither an echo nor an error */
	REASON_ICMP_ERROR,      /* about a packet that it quotes */
	REASON_ILLEGAL_ADDRESS, /* one that no host may have */
	REASON_NON_GLOBAL,      /* a well-known prefix with an IPv4 address that is not global */
	REASON_SOURCE_UNMAPPED, /* by no mapping and no prefix */
	REASON_DESTINATION_UNMAPPED,
	REASON_HAIRPIN,         /* to an address that the translator has itself */
	/* Punted: what it would need. */
	REASON_HOP_LIMIT,       /* answered with Time Exceeded */
	REASON_TOO_BIG,         /* answered */
	REASON_TO_BE_CUT,       /* fragmented */
	REASON_NO_NEXT_HOP,     /* the routes do not say where to, or not by a device of ours */
	REASON_OFFLOAD,         /* an offload that the fast path does not keep */
	REASON_NO_ROOM,         /* no memory for the new header */

	/* Dropped. */
	REASON_BAD_HEADER_CHECKSUM,
	REASON_PUNT_LIMIT,      /* too many punts, from one source or in all */

	REASON_COUNT,
};

#define FIRST_PUNT REASON_ASLEEP
#define FIRST_DROP REASON_BAD_HEADER_CHECKSUM
#define REASON_TO_IPV6 REASON_TO6_FORWARDED /* what leaves by IPv6 */

#define FLAG_ZERO_CLASS 1     /* to IPv6: the traffic class is 0 */
#define FLAG_FIXED_TOS 2      /* to IPv4: TOS is that of the settings */
#define FLAG_SIMPLE 4         /* sources are mapped to IPv6 by prefix alone (RFC 7757 section 4.2.1) */
#define FLAG_MAPPED_IN_POOL6 8 /* some mapping has IPv6 addresses that lie in pool6 */
#define FLAG_UNSUMMED 16      /* the engine translates UDP over IPv4 without a checksum */

/*
 * Explicit mappings (RFC 7757), found by the longest prefix: by a look-up for each length
 * that some mapping has. Addresses are words as they are loaded from a packet, cut to the
 * length.
 */
struct mapping4 {
	u32 bits;
	be32 address;
};

struct mapping6 {
	u64 address[2];
	u64 bits;
};

/* What an IPv4 address becomes: the base with the suffix, as far left as shift says. */
struct mapped6 {
	u64 base[2];
	u32 suffix; /* bits that the addresses of a mapping differ in */
	u32 shift;  /* 0 to 127 */
};

/* What an IPv6 address becomes. */
struct mapped4 {
	be32 base;
	u16 suffix;
	u16 shift;
};

#define LENGTHS4 33
#define LENGTHS6 129

struct length4 {
	u32 bits;
	be32 mask;
};

struct length6 {
	u64 mask[2];
	u64 bits;
};

/* Addresses that are routed to the translator, beside those of mappings. */
#define MAX_POOL4 16

struct range4 {
	be32 address;
	be32 mask;
};

/*
 * The settings. The daemon writes them while programs run: one word at a time, and what
 * belongs together while closed is set.
 */
struct siit_settings {
	/* First cache line: every packet. */
	u64 generation;  /* cached next hops are good while theirs equals this */
	u64 alive_until; /* CLOCK_MONOTONIC, nanoseconds */
	u64 hop_seed;    /* of next hops and budgets */
	u32 flags;
	u32 closed;      /* mappings are being changed, or are not those of the engine: all packets pass */
	u32 pool6_count;
	u32 lengths4;    /* how many there are in length4, the longest first */
	u32 lengths6;
	u32 first4;      /* the lowest address of pool4 and mappings, in the host's order */
	u32 span4;       /* from there to the highest */
	u32 mtu4;        /* the largest packet to either side, whatever the routes say */
	u32 mtu6;
	u32 trace_every; /* one packet in so many is sampled; 0: none */
	/* Second. */
	u32 lowest_mtu;  /* least size that packets without DF are cut to; see RFC 7915 section 4.1 */
	u32 tos;         /* with FLAG_FIXED_TOS */
	u32 tun;         /* interface index of our own device, for routes */
	be32 source;     /* IPv4 source that routes are asked with */
	u32 pool4_count;
	u32 punt_total;  /* punts of one reason in a window; 0: no limit */
	u32 punt_source; /* of that, from one source; 0: no limit */
	u32 trace_limit; /* samples a second; 0: no limit */
	struct pool6_prefix pool6[MAX_POOL6];
	struct range4 pool4[MAX_POOL4];
	struct length6 length6[LENGTHS6];
	struct length4 length4[LENGTHS4];
	struct device devices[DEVICE_SLOTS];
};

/* Tables of fixed size. */
struct siit_shared {
	u8 routes4[ROUTES4]; /* by the upper half of an IPv4 destination: 0, or a class of one next hop */
	struct identifications ids;
	struct windows windows;
};

/* What is fixed when a program is loaded. The verifier takes it for constant. */
struct siit_features {
	u8 fib_source; /* not used: source is always set */
	u8 unused[7];
	/* Never read: by it the enumerations reach Go. */
	union {
		enum verdict verdict;
		enum reason reason;
		enum hook hook;
	} words;
};

#endif
