/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Internet checksums (RFC 1071). Sums are of 16-bit words as they are loaded, in
 * host order: the one's complement sum does not mind.
 *
 * The sum of a whole IPv6 packet with a right transport checksum needs its header
 * alone: what the pseudo-header adds, addresses and length, the header adds too.
 *
 *	sum(packet) = w0 + w1 + w3 + ~next header	(w0 to w3: the first four words)
 *
 * So the checksum of a datagram that carries one is made, and checked, in constant
 * time.
 */

#ifndef ISTHMUS_CHECKSUM_H
#define ISTHMUS_CHECKSUM_H

#include "parse.h"

/* Reduces a sum of less than 48 bits to 16: to 0 only if it is 0. */
INLINE u16 fold(u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff);
}

/* The sum of a whole packet whose transport checksum is right or will be made so. */
INLINE u64 packet_sum(const struct ip6 *p)
{
	return (u64)U32_AT(p, 0) + U16_AT(p, 6) + (0xffff - ((u64)p->next << 8));
}

/* Whether the sum of a whole packet can be told from its header. */
INLINE u16 is_sum_known(const struct ip6 *p)
{
	if (p->next == PROTO_UDP) {
		/* A checksum of none covers nothing, a shorter length not all. */
		u32 tail = U32_AT(p + 1, 4);
		return (u16)tail == p->length && tail >> 16;
	}
	return is_summed(p->next);
}

/* The pseudo-header of UDP over IPv4; length in network order. */
INLINE u64 pseudo4(be32 source, be32 destination, be16 length)
{
	return (u64)source + destination + length + (PROTO_UDP << 8);
}

/* The pseudo-header of the upper layer that directly follows an IPv6 header. */
INLINE u64 pseudo6(const struct ip6 *p)
{
	u64 sum = (u64)p->length + ((u64)p->next << 8);
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (u64)p->source[i] + p->destination[i];
	return sum;
}

/* The checksum of an IPv4 header without options. */
INLINE be16 header_checksum(const struct tunnel *t)
{
	u64 sum = (u64)U32_AT(t, 0) + U32_AT(t, 4) + U32_AT(t, 8) + U32_AT(t, 12) + U32_AT(t, 16);
	return ~fold(sum);
}

/* Whether the checksum of an IPv4 header without options is right. */
INLINE int is_sound4(const struct ip4 *p)
{
	u64 sum = (u64)U32_AT(p, 0) + U32_AT(p, 4) + U32_AT(p, 8) + U32_AT(p, 12) + U32_AT(p, 16);
	return fold(sum) == 0xffff;
}

/* The checksum that a field of UDP holds: none is 0, so 0 is sent as its twin. */
INLINE be16 udp_field(u64 sum)
{
	u16 folded = ~fold(sum);
	return folded ? folded : 0xffff;
}

#define SUM_MAX 2048
#define SUM_OUTSIDE (~0U)
#define OFFSET_MAX 128
#define SUM_AT_ONCE 512 /* what the kernel sums in one call, before Linux 6.13 */

/*
 * Adds the piece whose length is one bit of the length of all; the bits above it say
 * how much lies in front of it. It returns 0 when the piece is not all in front of end.
 */
INLINE int sum_piece(u64 *sum, void *start, void *end, u32 length, u32 piece)
{
	if (!(length & piece))
		return 1;
	void *p = start + (length & (2 * SUM_MAX - 1) & ~(2 * piece - 1));
	if (p + piece > end)
		return 0;
	if (piece == 1)
		*sum += *(u8 *)p;
	else if (piece == 2)
		*sum += U16_AT(p, 0);
	else {
#pragma unroll
		for (u32 at = 0; at < piece; at += SUM_AT_ONCE)
			*sum += (u32)bpf_csum_diff(0, 0, p + at, piece < SUM_AT_ONCE ? piece : SUM_AT_ONCE, 0);
	}
	return 1;
}

/*
 * The sum of length bytes from an offset on, folded; SUM_OUTSIDE when they are not
 * all in front of end. Pieces in place of a loop: the verifier walks each turn of one,
 * and all that follows each way out of it.
 */
NOINLINE u32 sum_bytes(void *data, void *end, u32 offset, u32 length)
{
	u64 sum = 0;
	if (offset > OFFSET_MAX || length > SUM_MAX)
		return SUM_OUTSIDE;
#pragma unroll
	for (u32 piece = SUM_MAX; piece; piece /= 2)
		if (!sum_piece(&sum, data + offset, end, length, piece))
			return SUM_OUTSIDE;
	return fold(sum);
}

/* Where a transport header has its checksum. */
INLINE u32 checksum_place(u8 next)
{
	switch (next) {
	case PROTO_TCP:
		return 16;
	case PROTO_UDP:
		return 6;
	}
	return 2;
}

/*
 * Whether the sender left the checksum of a packet to hardware that frames never
 * meet: the field holds the bare pseudo-header. That a finished checksum looks the
 * same is rare and harmless, since finishing it again gives the same.
 */
INLINE int is_half_summed(const struct ip6 *p, void *end)
{
	u16 *field;
	if (p->next == PROTO_TCP)
		field = (void *)(p + 1) + 16;
	else if (p->next == PROTO_UDP)
		field = (void *)(p + 1) + 6;
	else
		return 0;
	if ((void *)(field + 1) > end)
		return 0;
	return *field == fold(pseudo6(p));
}

/*
 * Finishes the checksum of the transport that starts at an offset, with so many
 * bytes. It returns 0 when they are not all there.
 */
NOINLINE int finish_checksum(void *data, void *end, u32 offset, u32 length, u32 next)
{
	u32 sum = sum_bytes(data, end, offset, length);
	if (sum == SUM_OUTSIDE || offset > OFFSET_MAX)
		return 0;
	u16 *field = data + offset + checksum_place(next);
	if ((void *)(field + 1) > end)
		return 0;
	u16 checksum = ~sum;
	*field = next == PROTO_UDP && !checksum ? 0xffff : checksum;
	return 1;
}

#endif
