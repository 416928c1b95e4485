/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What all programs share with the daemon, whatever they do with packets: how a packet
 * is judged and counted, devices, next hops, budgets, samples.
 *
 * Each set of programs has reasons, settings, shared tables and constants of its own,
 * beside its role, under the same names: enum reason with REASON_COUNT, FIRST_PUNT,
 * FIRST_DROP and REASON_TO_IPV6; settings; shared; fixed. The headers that serve any set
 * are included behind those of the set.
 */

#ifndef ISTHMUS_BASE_H
#define ISTHMUS_BASE_H

#include "types.h"

/* What becomes of a packet. */
enum verdict {
	VERDICT_FORWARD, /* it left by the fast path */
	VERDICT_PUNT,    /* untouched, to the kernel, and so to the engine */
	VERDICT_DROP,    /* the engine would drop it too, or the budget of punts is spent */
};

enum hook {
	HOOK_XDP,
	HOOK_INGRESS,
	HOOK_EGRESS,
	HOOK_HOST_INGRESS,
};

#define DEVICE_SLOTS 256
#define ROUTES4 65536
#define FILTER_SLOTS 65536

/* What may be done with a device. */
#define DEVICE_FRAMES 1  /* XDP may redirect into it */
#define DEVICE_PACKETS 2 /* tc may redirect into it */
#define DEVICE_WHOLE 4   /* takes TCP segments out of a tunnel before they are cut */
#define DEVICE_PARTIAL 8 /* its frames may come from a local sender, checksums unfinished */

/* Which devices this hook redirects to. */
#define HOOK_DEVICE(hook) ((hook) == HOOK_XDP ? DEVICE_FRAMES : DEVICE_PACKETS)

/* A device that the programs serve, in the slot of its index modulo the slots. */
struct device {
	u32 ifindex; /* 0: none */
	u8 mac[6];
	u16 flags;
	u32 mtu; /* 0: not told */
};

/* A range of IPv6 addresses, in words as they are loaded from a packet. */
struct range6 {
	u64 address[2];
	u64 mask[2];
};

struct address6 {
	u64 word[2];
};

/* A next hop by IPv4: of one destination, or of a class of them. */
struct nexthop4 {
	u64 generation;
	u32 key;    /* destination, or class; see fill4 */
	be32 source; /* outer source address */
	u64 mac0;   /* Ethernet header: destination and first bytes of source */
	u32 mac1;   /* rest of source */
	u32 ifindex;
	u32 mtu;
	u32 flags;  /* of the device */
};

/* A next hop by IPv6, of one destination. */
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

#endif
