/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Everything that programs and daemon share. What is pinned outlives a daemon:
 * whoever changes one of these structures raises LAYOUT_VERSION.
 */

#ifndef ISTHMUS_LAYOUT_H
#define ISTHMUS_LAYOUT_H

#include "types.h"

#define LAYOUT_VERSION 1

/* What becomes of a packet. */
enum verdict {
	VERDICT_FORWARD, /* it left by the fast path */
	VERDICT_PUNT,    /* untouched, to the kernel, and so to the engine */
	VERDICT_DROP,    /* the engine would drop it too, or the budget of punts is spent */
};

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

enum hook {
	HOOK_XDP,
	HOOK_INGRESS,
	HOOK_EGRESS,
	HOOK_HOST_INGRESS,
};

#define MAX_PREFIXES 16
#define MAX_SERVE 64
#define OWN_SLOTS 256
#define DEVICE_SLOTS 256
#define ROUTES4 65536
#define FILTER_SLOTS 65536

/* What may be done with a device. */
#define DEVICE_FRAMES 1  /* XDP may redirect into it */
#define DEVICE_PACKETS 2 /* tc may redirect into it */
#define DEVICE_WHOLE 4   /* takes TCP segments out of a tunnel before they are cut */
#define DEVICE_PARTIAL 8 /* its frames may come from a local sender, checksums unfinished */

/* A device that the programs serve, in the slot of its index modulo the slots. */
struct device {
	u32 ifindex; /* 0: none */
	u8 mac[6];
	u16 flags;
};

/* A range of IPv6 addresses, in words as they are loaded from a packet. */
struct range6 {
	u64 address[2];
	u64 mask[2];
};

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

/* The mapping of a peer that is not the one in its address. */
struct mapping {
	be32 ip;
	be16 port;
	u16 unused;
};

struct address6 {
	u64 word[2];
};

/* A next hop by IPv4: of one destination, or of a class of them. */
struct nexthop4 {
	u64 generation;
	u32 key;    /* destination, or class */
	be32 source; /* outer source address */
	u64 mac0;   /* Ethernet header: destination and first bytes of source */
	u32 mac1;   /* rest of source */
	u32 ifindex;
	u32 mtu;
	u32 flags;  /* of the device */
};

/* A next hop by IPv6, of one destination that clients may send to. */
struct nexthop6 {
	u64 generation;
	struct address6 key;
	u64 mac0;
	u32 mac1;
	u32 ifindex;
	u32 mtu;
	u32 flags;
};

/*
 * Next hops lie in blocks, so that the pointers to a core's own memory, one for
 * each element of the map, stay in the first cache.
 */
#define HOPS4_BLOCK 64
#define HOPS4_CLASSES 256
#define HOPS4 4096
#define HOPS6_BLOCK 256
#define HOPS6 16384

struct nexthops4 {
	struct nexthop4 hop[HOPS4_BLOCK];
};

struct nexthops6 {
	struct nexthop6 hop[HOPS6_BLOCK];
};

/* A next hop in use: whom the kernel should keep an eye on. */
struct neighbour {
	u32 family;
	u32 ifindex;
	u8 address[16]; /* IPv4: the first four */
};

struct counter {
	u64 packets;
	u64 bytes; /* as they came, from the outer IP header on */
};

#define PUNT_SOURCES 16384
#define WINDOW_SHIFT 26 /* a window lasts 2^26 nanoseconds, 67 ms */

/* Budgets: the number of a window in the upper half, what it has spent below. */
struct windows {
	u64 trace; /* of a second */
	u64 total[64];
	u64 source[PUNT_SOURCES];
};

/* Tables of fixed size. */
struct shared_tables {
	u8 routes4[ROUTES4];         /* by the upper half of an IPv4 destination: 0, or a class of one next hop */
	u8 under_test[FILTER_SLOTS]; /* how many clients with a hash the engine tests */
	struct windows windows;
};

#define SAMPLE_BYTES 256

/* One packet as it came. */
struct sample {
	u64 time; /* CLOCK_MONOTONIC, nanoseconds */
	u32 ifindex;
	u8 hook;    /* enum hook */
	u8 verdict; /* enum verdict */
	u8 reason;  /* enum reason */
	u8 unused;
	u32 length;  /* of the frame */
	u32 captured; /* bytes of it that follow */
	u8 data[SAMPLE_BYTES];
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
