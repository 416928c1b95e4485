// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Arrivals by their time: of those on a CPU each EACH-th has it noted, so that a packet
// costs next to nothing and what arrives behind the end of a load can be told apart.

#pragma once

#include "packets.h"

// EACH and TIMES are known to arrivals.go too: of how many arrivals one is timed, and how
// many times of a CPU are on record.
#define EACH 16
#define TIMES 16384

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // set before loading: TIMES of each CPU
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

// arrival counts one.
static __always_inline void arrival(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&arrivals, &zero);

	if (!n)
		return;
	__u64 number = (*n)++;
	if (number % EACH)
		return;
	__u32 at = bpf_get_smp_processor_id() * TIMES + number / EACH % TIMES;
	__u64 *time = bpf_map_lookup_elem(&times, &at);
	if (time)
		*time = bpf_ktime_get_ns();
}
