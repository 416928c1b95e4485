//go:build ignore

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Whose the CPUs are: adds up the time of chosen processes and of receiving in the
// kernel, to the nanosecond, whatever the kernel's own accounting does.

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_helpers.h>

#define PROCESSES 256

// RECEIVING is NET_RX_SOFTIRQ of linux/interrupt.h.
#define RECEIVING 3

struct cpu {
	__u64 since; // the last event, CLOCK_MONOTONIC
	__u64 used;  // nanoseconds
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

// counts tells whether what runs is counted: a receiving thread of the kernel, by its name
// napi/DEVICE-NUMBER, and who is watched, but for the lab's threads that are a wire, by theirs.
static __always_inline bool counts(void)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32;
	char name[16] = {};

	bpf_get_current_comm(name, sizeof(name));
	if (name[0] == 'n' && name[1] == 'a' && name[2] == 'p' && name[3] == 'i' && name[4] == '/')
		return true;
	bool wire = name[0] == 'w' && name[1] == 'i' && name[2] == 'r' && name[3] == 'e' && !name[4];
	return !wire && bpf_map_lookup_elem(&watched, &process);
}

// account adds the time since the last event on this CPU, if it was spent in receiving
// or by who is watched.
static __always_inline int account(bool receiving)
{
	__u32 zero = 0;
	struct cpu *c = bpf_map_lookup_elem(&cpus, &zero);

	if (!c)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (c->since && (receiving || counts()))
		c->used += now - c->since;
	c->since = now;
	return 0;
}

// The one that leaves is still the present one.
SEC("raw_tp/sched_switch") int usage_switched(struct bpf_raw_tracepoint_args *ctx) { return account(false); }

SEC("raw_tp/softirq_entry") int usage_softirq_begins(struct bpf_raw_tracepoint_args *ctx) { return account(false); }

SEC("raw_tp/softirq_exit") int usage_softirq_ends(struct bpf_raw_tracepoint_args *ctx)
{
	return account(ctx->args[0] == RECEIVING);
}

char _license[] SEC("license") = "Dual BSD/GPL";
