/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * What becomes of a packet of a stateless translator: its form, its addresses, its next
 * hop. What is not fully handled here is punted. Nothing here changes a packet.
 */

#ifndef ISTHMUS_SIIT_JUDGE_H
#define ISTHMUS_SIIT_JUDGE_H

#include "siit_map.h"
#include "translate_judge.h"

/*
 * Where packets to IPv6 hosts go, for nexthop.h. Hosts whose addresses are made by pool6
 * have routes of their own; all else of it comes back by the device of the translator.
 */
INLINE u32 judge_destination(const struct address6 *a)
{
	return is_illegal6((const u32 *)a) ? REASON_ILLEGAL_ADDRESS : REASON_TO6_FORWARDED;
}

#include "nexthop.h"

/* Whether packets to an address are for the translator. */
INLINE u32 is_translated4(be32 destination)
{
	struct address6 unused = {};
	return is_ours4(destination, &unused);
}

/* The same; if a mapping says so, the destination is known. */
INLINE u32 takes4(be32 destination, struct to6 *out) { return is_ours4(destination, &out->ends.destination); }

/* Whether the programs must let all pass. */
INLINE int is_closed(const struct arrival *in) { return is_asleep(in) || READ_ONCE(settings.closed); }

/* Judges the form of an IPv6 packet to pool6. */
INLINE u32 judge_header6(const struct ip6 *p, const struct arrival *in, u32 *size)
{
	if (UNLIKELY(is_closed(in)))
		return REASON_ASLEEP;
	*size = IPV6_LEN + FROM_BE16(p->length);
	/* A longer one has no room in an IPv4 packet. */
	if (UNLIKELY(p->version >> 4 != 6 || *size > in->length || *size > 65535 + IPV6_LEN - IPV4_LEN))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(p->hops <= 1))
		return REASON_HOP_LIMIT;
	return UNLIKELY(is_illegal6(p->source)) ? REASON_ILLEGAL_ADDRESS : REASON_TO4_FORWARDED;
}

/* Finds the addresses that a packet to pool6 gets, by the prefix of that number. */
INLINE u32 judge_addresses6(const struct ip6 *p, u32 prefix, struct ends4 *to)
{
	u32 reason = map_source4(U64_AT(p->source, 0), U64_AT(p->source, 8), &to->source);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	reason = map_destination4(prefix, U64_AT(p->destination, 0), U64_AT(p->destination, 8), &to->destination);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	if (UNLIKELY(is_illegal4(to->source) || is_illegal4(to->destination)))
		return REASON_ILLEGAL_ADDRESS;
	return UNLIKELY(is_translated4(to->destination)) ? REASON_HAIRPIN : REASON_TO4_FORWARDED;
}

/* Judges a packet to pool6, by the prefix of that number. */
INLINE u32 judge_to4(void *ctx, const struct ip6 *p, void *end, u32 prefix, const struct arrival *in, struct to4 *out)
{
	struct content *c = &out->content;
	u32 reason = judge_header6(p, in, &out->size);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	reason = read_content6(p, end, c);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	reason = judge_addresses6(p, prefix, &out->ends);
	if (UNLIKELY(reason != REASON_TO4_FORWARDED))
		return reason;
	out->ends.source_port = c->source;
	out->ends.destination_port = c->destination;
	out->hop = find_hop4(ctx, out->ends.destination, HOOK_DEVICE(in->hook));
	if (UNLIKELY(!out->hop))
		return REASON_NO_NEXT_HOP;
	u32 segment = in->segment ? in->segment : out->size;
	if (UNLIKELY(segment - (IPV6_LEN - IPV4_LEN) > lesser(out->hop->mtu, settings.mtu4)))
		return REASON_TOO_BIG;
	return REASON_TO4_FORWARDED;
}

/* Judges the form of a plain IPv4 packet. */
INLINE u32 judge_header4(const struct ip4 *p, const struct arrival *in, u32 *size)
{
	if (UNLIKELY(is_closed(in)))
		return REASON_ASLEEP;
	*size = FROM_BE16(p->length);
	if (UNLIKELY(*size > in->length))
		return REASON_ODD_LENGTH;
	if (UNLIKELY(!is_sound4(p)))
		return REASON_BAD_HEADER_CHECKSUM;
	if (UNLIKELY(p->ttl <= 1))
		return REASON_HOP_LIMIT;
	return UNLIKELY(is_illegal4(p->source) || is_illegal4(p->destination)) ? REASON_ILLEGAL_ADDRESS : REASON_TO6_FORWARDED;
}

/* Finds the addresses that a packet gets; its destination is there if a mapping gave it. */
INLINE u32 judge_addresses4(const struct ip4 *p, struct ends6 *to)
{
	u32 reason = map_source6(p->source, &to->source);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	if (LIKELY(to->destination.word[0] | to->destination.word[1]))
		return REASON_TO6_FORWARDED;
	return embed_first(p->destination, &to->destination, REASON_DESTINATION_UNMAPPED);
}

/* Judges a plain packet that is for the translator, whose content was read. */
INLINE u32 judge_to6(void *ctx, const struct ip4 *p, const struct arrival *in, struct to6 *out)
{
	struct content *c = &out->content;
	if (UNLIKELY(is_unsummed4(p, c)))
		return REASON_ZERO_CHECKSUM;
	u32 reason = judge_header4(p, in, &out->size);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	reason = judge_addresses4(p, &out->ends);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	out->ends.source_port = c->source;
	out->ends.destination_port = c->destination;
	reason = find_hop6(ctx, &out->ends.source, &out->ends.destination, HOOK_DEVICE(in->hook), &out->hop);
	if (UNLIKELY(reason != REASON_TO6_FORWARDED))
		return reason;
	u32 segment = (in->segment ? in->segment : out->size) + IPV6_LEN - IPV4_LEN;
	return LIKELY(segment <= largest6(p, lesser(out->hop->mtu, settings.mtu6))) ? REASON_TO6_FORWARDED : too_big6(p);
}

/*
 * Punts that are as many as the host's set-up makes them, or that are traffic like any
 * other, of tunnels, in fragments or to become such: the engine must get all of them, as
 * without a fast path.
 */
#define UNRATIONED ((u64)1 << REASON_ASLEEP | (u64)1 << REASON_NO_NEXT_HOP | (u64)1 << REASON_OFFLOAD | \
		    (u64)1 << REASON_HAIRPIN | (u64)1 << REASON_NEXT_HEADER | (u64)1 << REASON_FRAGMENT | \
		    (u64)1 << REASON_TO_BE_CUT | (u64)!!(settings.flags & FLAG_UNSUMMED) << REASON_ZERO_CHECKSUM)

#include "settle.h"

#endif
