//go:build ignore

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Single packets: run by BPF_PROG_TEST_RUN with live frames, it sends one frame at a
// time by a device, numbered and stamped, as the driver of a network card would hand it
// over: not as a packet of the host's own, which XDP has to copy first. Pages come back
// with what the last user left in them, hence all headers are written.

#include "packets.h"

// STAMPS is how many packets can be on record at once, as in meter.c.
#define STAMPS 65536
#define TARGETS 64
#define SPINS (1 << 20)

#define TAG 16 // marker and sequence number
#define PLAIN (HEADER_PLAIN + TAG)
#define TUNNELLED (HEADER_TUNNELLED + TAG)
#define IN_GPDU (HEADER_GPDU + TAG)

struct probe_settings {
	__u8 header[IN_GPDU]; // of the frame; PLAIN or TUNNELLED of it, or all
	__u16 room;        // bytes in front of the frame
	__u32 length;      // of what header holds
	__u32 target;      // index of the device to send by
	__u64 first;       // number of the first packet
	__u64 interval;    // nanoseconds from one to the next
};

struct probe_progress {
	__u64 sent;
	__u64 due; // when the next one leaves
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_settings);
} probe_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_progress);
} probe_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STAMPS);
	__type(key, __u32);
	__type(value, __u64);
} probe_departed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, TARGETS);
	__type(key, __u32);
	__type(value, __u32);
} probe_targets SEC(".maps");

static long is_due(__u32 i, void *due) { return bpf_ktime_get_ns() >= *(__u64 *)due; }

// number puts a sequence number behind a marker, in a form that no checksum sees: a
// word and its complement.
static __always_inline void number(__u8 *at, __u16 n)
{
	at[4] = ~n >> 8;
	at[5] = ~n;
	at[6] = n >> 8;
	at[7] = n;
}

// put writes headers and sequence number, which are so long.
static __always_inline bool put(__u8 *data, const __u8 *end, const struct probe_settings *c, __u16 n,
				const int length)
{
	if (data + length > end)
		return false;
	__builtin_memcpy(data, c->header, length);
	number(data + length - 8, n);
	return true;
}

// write writes the headers of a frame of any form.
static __always_inline bool write(struct xdp_md *ctx, const struct probe_settings *c, __u16 n)
{
	if (bpf_xdp_adjust_head(ctx, c->room))
		return false;
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	switch (c->length) {
	case IN_GPDU:
		return put(data, end, c, n, IN_GPDU);
	case TUNNELLED:
		return put(data, end, c, n, TUNNELLED);
	}
	return put(data, end, c, n, PLAIN);
}

SEC("xdp") int probe(struct xdp_md *ctx)
{
	__u32 zero = 0;
	const struct probe_settings *c = bpf_map_lookup_elem(&probe_set, &zero);
	struct probe_progress *s = bpf_map_lookup_elem(&probe_state, &zero);

	if (!c || !s)
		return XDP_DROP;
	__u32 at = (c->first + s->sent) % STAMPS;
	__u64 *stamp = bpf_map_lookup_elem(&probe_departed, &at);
	if (!stamp || !write(ctx, c, at))
		return XDP_DROP;
	__u64 due = s->due;
	if (due)
		bpf_loop(SPINS, is_due, &due, 0);
	s->sent++;
	__u64 now = bpf_ktime_get_ns();
	s->due = now + c->interval;
	*stamp = now;
	return bpf_redirect_map(&probe_targets, c->target, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
