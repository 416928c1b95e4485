/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The tables of Teredo, beside those that every set of programs has. */

#ifndef ISTHMUS_TEREDO_TABLES_H
#define ISTHMUS_TEREDO_TABLES_H

#include "layout.h"
#include "tables.h"

const volatile struct features fixed;

/* These lie in sections: their address is known when a program is loaded. */
struct relay_settings settings SEC(".data.settings");
struct shared_tables shared;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, u32);
	__type(value, struct bucket);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, struct address6);
	__type(value, struct mapping);
} foreign SEC(".maps");

#endif
