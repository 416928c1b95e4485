/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Addresses of a stateless translator: explicit mappings (RFC 7757) first, prefixes (RFC
 * 6052) where there are none; translate/mapping.go says the same in Go.
 */

#ifndef ISTHMUS_SIIT_MAP_H
#define ISTHMUS_SIIT_MAP_H

#include "siit_tables.h"
#include "translate_prefix.h"

/* Whether an IPv4 address may be one of the translator's: else no table is asked. */
INLINE int is_in_span4(be32 address) { return __builtin_bswap32(address) - settings.first4 <= settings.span4; }

/* Puts the suffix of an IPv4 address, in the host's order, into an IPv6 one. */
INLINE void put_suffix(struct address6 *to, u64 suffix, u32 shift)
{
	u64 high = 0, low = 0;
	if (shift >= 64) {
		high = suffix << (shift & 63);
	} else {
		low = suffix << shift;
		high = shift ? suffix >> (64 - shift) : 0;
	}
	to->word[0] |= __builtin_bswap64(high);
	to->word[1] |= __builtin_bswap64(low);
}

/*
 * Finds the IPv6 address that the longest mapping gives to an IPv4 one; 0 if none has it. A
 * function of its own to the verifier, as all with loops.
 */
GLOBAL u32 find6(be32 address, struct address6 *out)
{
	if (!out)
		return 0;
	for (u32 i = 0; i < LENGTHS4; i++) {
		if (i >= settings.lengths4)
			break;
		const struct length4 *length = &settings.length4[i];
		struct mapping4 key = {.bits = length->bits, .address = address & length->mask};
		const struct mapped6 *m = bpf_map_lookup_elem(&mappings4, &key);
		if (!m)
			continue;
		out->word[0] = m->base[0];
		out->word[1] = m->base[1];
		if (m->suffix)
			put_suffix(out, __builtin_bswap32(address & ~length->mask), m->shift & 127);
		return 1;
	}
	return 0;
}

#define FOUND4 (1ULL << 32)

/* Finds the IPv4 address that the longest mapping gives to an IPv6 one; 0, or FOUND4 and it. */
GLOBAL u64 find4(u64 high, u64 low)
{
	for (u32 i = 0; i < LENGTHS6; i++) {
		if (i >= settings.lengths6)
			break;
		const struct length6 *length = &settings.length6[i];
		struct mapping6 key = {
			.address = {high & length->mask[0], low & length->mask[1]}, .bits = length->bits,
		};
		const struct mapped4 *m = bpf_map_lookup_elem(&mappings6, &key);
		if (!m)
			continue;
		be32 address = m->base;
		if (m->suffix) {
			u32 shift = m->shift & 127;
			u64 number = __builtin_bswap64(high) >> (shift & 63);
			if (shift < 64) {
				number = __builtin_bswap64(low) >> shift;
				number |= shift ? __builtin_bswap64(high) << (64 - shift) : 0;
			}
			address |= __builtin_bswap32(number & (((u64)1 << (m->suffix & 63)) - 1));
		}
		return FOUND4 | address;
	}
	return 0;
}

/* Whether pool4 has an address. */
GLOBAL u32 is_in_pool4(be32 address)
{
	for (u32 i = 0; i < MAX_POOL4; i++) {
		if (i >= settings.pool4_count)
			break;
		if (((address ^ settings.pool4[i].address) & settings.pool4[i].mask) == 0)
			return 1;
	}
	return 0;
}

/* Whether packets to an IPv4 address are for the translator; if a mapping says so, out is what it becomes. */
INLINE u32 is_ours4(be32 address, struct address6 *out)
{
	if (LIKELY(!is_in_span4(address)))
		return 0;
	return find6(address, out) || is_in_pool4(address);
}

/* Gives an IPv4 address its IPv6 form by the first prefix. */
INLINE u32 embed_first(be32 address, struct address6 *out, u32 unmapped)
{
	if (UNLIKELY(!settings.pool6_count))
		return unmapped;
	if (settings.pool6[0].flags & POOL6_STRICT && is_non_global4(address))
		return REASON_NON_GLOBAL;
	embed(0, address, out);
	return REASON_TO6_FORWARDED;
}

/* Takes an IPv4 address out of an IPv6 one by the prefix of that number. */
INLINE u32 extract_global(u32 prefix, u64 high, u64 low, be32 *out)
{
	*out = extract(prefix, high, low);
	if (settings.pool6[prefix % MAX_POOL6].flags & POOL6_STRICT && is_non_global4(*out))
		return REASON_NON_GLOBAL;
	return REASON_TO4_FORWARDED;
}

/* Gives the destination of an IPv6 packet, which has the prefix of that number, its IPv4 form. */
INLINE u32 map_destination4(u32 prefix, u64 high, u64 low, be32 *out)
{
	if (UNLIKELY(settings.flags & FLAG_MAPPED_IN_POOL6)) {
		u64 found = find4(high, low);
		if (found) {
			*out = found;
			return REASON_TO4_FORWARDED;
		}
	}
	return extract_global(prefix, high, low, out);
}

/* Gives the source of an IPv6 packet its IPv4 form. */
INLINE u32 map_source4(u64 high, u64 low, be32 *out)
{
	u64 found = settings.lengths6 ? find4(high, low) : 0;
	if (found) {
		*out = found;
		return REASON_TO4_FORWARDED;
	}
	u32 prefix = prefix_of(high, low);
	return prefix == NO_PREFIX ? REASON_SOURCE_UNMAPPED : extract_global(prefix, high, low, out);
}

/* Gives the source of an IPv4 packet its IPv6 form. */
INLINE u32 map_source6(be32 address, struct address6 *out)
{
	if (is_in_span4(address) && !(settings.flags & FLAG_SIMPLE) && find6(address, out))
		return REASON_TO6_FORWARDED;
	return embed_first(address, out, REASON_SOURCE_UNMAPPED);
}

#endif
