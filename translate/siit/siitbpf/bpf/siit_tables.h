/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* The tables of a stateless translator, beside those that every set of programs has. */

#ifndef ISTHMUS_SIIT_TABLES_H
#define ISTHMUS_SIIT_TABLES_H

#include "siit_settings.h"
#include "tables.h"

const volatile struct siit_features fixed;

/* It lies in a section: its address is known when a program is loaded. */
struct siit_settings settings SEC(".data.settings");
struct siit_shared shared;

/* Their sizes are set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct mapping4);
	__type(value, struct mapped6);
} mappings4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct mapping6);
	__type(value, struct mapped4);
} mappings6 SEC(".maps");

#endif
