/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Header views and bounded reading. A view is used only when the end of the frame
 * was compared with the end of the view.
 */

#ifndef ISTHMUS_PARSE_H
#define ISTHMUS_PARSE_H

#include "tables.h"

/* Words of 16 bits: frames lie no worse than that. */
struct ethernet {
	u16 destination[3];
	u16 source[3];
	be16 type;
};

/* IPv4 without options. */
struct ip4 {
	u8 version; /* and header length */
	u8 tos;
	be16 length;
	be16 id;
	be16 fragment;
	u8 ttl;
	u8 protocol;
	be16 checksum;
	be32 source;
	be32 destination;
};

#define IPV4_DF TO_BE16(0x4000)
#define IPV4_MF TO_BE16(0x2000)
#define IPV4_FRAGMENT TO_BE16(0x3fff)

/* IPv4 without options, then UDP. */
struct tunnel {
	u8 version; /* and header length */
	u8 tos;
	be16 length;
	be16 id;
	be16 fragment;
	u8 ttl;
	u8 protocol;
	be16 checksum;
	be32 source;
	be32 destination;
	be16 source_port;
	be16 destination_port;
	be16 udp_length;
	be16 udp_checksum;
};

struct ip6 {
	u8 version; /* and the upper half of the traffic class */
	u8 flow[3];
	be16 length;
	u8 next;
	u8 hops;
	u32 source[4];
	u32 destination[4];
};

/* Words at any place of a packet. */
#define U16_AT(p, offset) (*(u16 *)((void *)(p) + (offset)))
#define U32_AT(p, offset) (*(u32 *)((void *)(p) + (offset)))
#define U64_AT(p, offset) (*(u64 *)((void *)(p) + (offset)))

/* Stores an Ethernet header; 14 bytes at data are in front of the end. */
INLINE void store_ethernet(void *data, u64 mac0, u32 mac1, u16 type)
{
	U64_AT(data, 0) = mac0;
	U32_AT(data, 8) = mac1;
	U16_AT(data, 12) = type;
}

/*
 * The length of a frame. It is taken in 64 bits and not in fewer, since pointers to
 * packets may not be cut.
 */
INLINE u32 frame_length(const struct xdp_md *ctx)
{
	u64 n = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__asm__ volatile("" : "+r"(n));
	return n;
}

/* Where the device of an index is, if the programs serve it: if the index is there. */
INLINE struct device *device_at(u32 ifindex) { return &settings.devices[ifindex % DEVICE_SLOTS]; }

/* Whether a frame is for this device, and not seen by the way. */
INLINE int is_for(const struct device *d, const struct ethernet *e)
{
	return U32_AT(e, 0) == U32_AT(d->mac, 0) && U16_AT(e, 4) == U16_AT(d->mac, 4);
}

/*
 * Whether an address can be one host beyond this link (internal/special): no multicast, no
 * link-local or site-local address, nothing below ::/64 or the dummy prefix 100:0:0:1::/64.
 */
INLINE int is_host(const u32 *a)
{
	u32 first = a[0] & 0xff, second = a[0] >> 8 & 0xff;
	return first != 0xff && !(first == 0xfe && second & 0x80) && (a[0] | a[1]) != 0 &&
	       !(a[0] == TO_BE32(0x01000000) && a[1] == TO_BE32(1));
}

/*
 * Whether no forwarded packet may have an address (internal/special). Of 192.0.0.0/24 the
 * engine knows what may pass.
 */
INLINE int is_illegal4(be32 a)
{
	u32 first = a & 0xff;
	return first == 0 || first == 127 || first >= 224 || (u16)a == TO_BE16(169 << 8 | 254) ||
	       (a & 0xffffff) == TO_BE32(192U << 24);
}

/* Protocols whose checksum covers the whole packet but the header (see checksum.h). */
INLINE int is_summed(u8 next)
{
	return next == PROTO_TCP || next == PROTO_UDP || next == PROTO_ICMPV6;
}

/* The least that a transport header takes; what is shorter has no checksum. */
INLINE u32 transport_len(u8 next) { return next == PROTO_TCP ? TCP_LEN : UDP_LEN; }

#endif
