/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The tables of a NAT64, beside those that every set of programs has. The first ones are
 * the state of nat64_layout.h, each a slab of memory that the daemon has mapped; their
 * sizes are set by the loader.
 */

#ifndef ISTHMUS_NAT64_TABLES_H
#define ISTHMUS_NAT64_TABLES_H

#include "nat64_settings.h"
#include "tables.h"

const volatile struct nat64_features fixed;

/* These lie in sections: their address is known when a program is loaded. */
struct nat64_settings settings SEC(".data.settings");
struct nat64_head head SEC(".data.head");
struct nat64_shared shared;

#define SLAB(type_of_record, name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1); \
		__type(key, u32); \
		__type(value, type_of_record); \
	} name SEC(".maps")

SLAB(struct session, sessions);
SLAB(struct binding, bindings);
SLAB(struct subscriber, subscribers);
SLAB(struct pool_address, addresses); /* for the daemon alone */
SLAB(struct index_bucket, sessions6);
SLAB(struct index_bucket, sessions4);
SLAB(struct index_bucket, bindings6);
SLAB(struct index_bucket, bindings4);
SLAB(struct index_bucket, subscribers6);
SLAB(u64, sessions_used);
SLAB(u64, bindings_used);
SLAB(u64, sessions_dirty);
SLAB(u64, ports_used);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct nat64_cursor);
} cursors SEC(".maps");

#endif
