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

#define NO_TAG 0xff

/*
 * The tag of an address that has not the first prefix. A function of its own to the
 * verifier, which would otherwise follow each turn of the loop to the end.
 */
GLOBAL u32 other_tag_of(u32 first)
{
	for (u32 i = 1; i < MAX_PREFIXES; i++) {
		if (i >= settings.prefixes)
			break;
		if (settings.by_tag[i] == first)
			return i;
	}
	return NO_TAG;
}

/* The tag of an address, by its first word: which Teredo prefix it has. */
INLINE u32 tag_of(be32 first)
{
	u32 n = settings.prefixes;
	if (first == settings.prefix)
		return n ? 0 : NO_TAG;
	return LIKELY(n <= 1) ? NO_TAG : other_tag_of(first);
}

/* Whether an IPv4 address is one of our own. */
INLINE int is_own(be32 address)
{
	return address && settings.own[(u32)(address * settings.own_factor) >> 24] == address;
}

/* Where the device of an index is, if the programs serve it: if the index is there. */
INLINE struct device *device_at(u32 ifindex) { return &settings.devices[ifindex % DEVICE_SLOTS]; }

/* Whether a frame is for this device, and not seen by the way. */
INLINE int is_for(const struct device *d, const struct ethernet *e)
{
	return U32_AT(e, 0) == U32_AT(d->mac, 0) && U16_AT(e, 4) == U16_AT(d->mac, 4);
}

/*
 * Whether an address can be one host beyond this link: no multicast, no link-local
 * or site-local address, and nothing below ::/64.
 */
INLINE int is_host(const u32 *a)
{
	u32 first = a[0] & 0xff, second = a[0] >> 8 & 0xff;
	return first != 0xff && !(first == 0xfe && second & 0x80) && (a[0] | a[1]) != 0;
}

/* Whether clients may send to an address, in two words as they are loaded. */
GLOBAL u32 is_served(u64 high, u64 low)
{
	for (u32 i = 0; i < MAX_SERVE; i++) {
		if (i >= settings.serves)
			break;
		const struct range6 *r = &settings.serve[i];
		if ((((high ^ r->address[0]) & r->mask[0]) | ((low ^ r->address[1]) & r->mask[1])) == 0)
			return 1;
	}
	return 0;
}

/* Protocols whose checksum covers the whole packet but the header (see checksum.h). */
INLINE int is_summed(u8 next)
{
	return next == PROTO_TCP || next == PROTO_UDP || next == PROTO_ICMPV6;
}

/* The least that a transport header takes; what is shorter has no checksum. */
INLINE u32 transport_len(u8 next) { return next == PROTO_TCP ? TCP_LEN : UDP_LEN; }

/* Protocols that pass though the outer checksum must do without theirs. */
INLINE int is_unsummed(u8 next)
{
	return next == PROTO_SCTP || next == PROTO_ESP;
}

#endif
