/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The tables that every set of programs has. Objects that are loaded together name the
 * same ones, and the loader gives them the same maps.
 */

#ifndef ISTHMUS_TABLES_H
#define ISTHMUS_TABLES_H

#include "base.h"

#ifndef FIRST_PUNT
#error "include the tables of the role first"
#endif

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, u32);
	__type(value, struct counter);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, (HOPS4_CLASSES + HOPS4) / HOPS4_BLOCK);
	__type(key, u32);
	__type(value, struct nexthops4);
} hops4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOPS6 / HOPS6_BLOCK);
	__type(key, u32);
	__type(value, struct nexthops6);
} hops6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct neighbour);
	__type(value, u64); /* when it was asked for, CLOCK_MONOTONIC */
} neighbours SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

#endif
