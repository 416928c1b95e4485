/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The tables of a GGSN, beside those that every set of programs has. */

#ifndef ISTHMUS_GGSN_TABLES_H
#define ISTHMUS_GGSN_TABLES_H

#include "ggsn_layout.h"
#include "tables.h"

const volatile struct ggsn_features fixed;

/* It lies in a section: its address is known when a program is loaded. */
struct ggsn_settings settings SEC(".data.settings");
struct ggsn_shared shared;

/* The sizes of all are set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct context);
} contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct aggregate);
} aggregates SEC(".maps");

/* The number of the context that has a TEID, an address or a prefix. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, be32);
	__type(value, u32);
} by_teid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, be32);
	__type(value, u32);
} by_address SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} by_prefix SEC(".maps");

/* Where addresses of terminals are. The value says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct inside4);
	__type(value, u32);
} insides4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct inside6);
	__type(value, u32);
} insides6 SEC(".maps");

#endif
