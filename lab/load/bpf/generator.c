//go:build ignore

// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// The generator: run by BPF_PROG_TEST_RUN with live frames, it makes each frame
// again from a template and a table of peers, and sends it by a device. Pages come
// back with what the last user left in them, hence all headers are written.

#include "packets.h"

#define LANES 8
#define TARGETS 64
#define SCHEDULE 256
#define SPINS (1 << 20)

// Forms of frames.
#define FORM_IPV6 0
#define FORM_TUNNEL 1 // IPv6 in UDP over IPv4
#define FORM_IPV4 2
#define FORM_GPDU 3 // IPv6 in GTP-U in UDP over IPv4

// lane is one stream of frames.
struct lane {
	__u8 header[104]; // template, checksums without what a peer changes
	__u32 form;       // what the frame holds
	__u32 tcp;        // 1: TCP instead of UDP
	__u32 ports;      // 1: the client's port is the peer's
	__u32 to_client;  // 1: the client is the inner destination
	__u32 skip;       // bytes by which frames are shorter than those of the run
	__u32 target;     // index of the device to send by
	__u32 first;      // first entry of the table
	__u32 count;      // entries, taken in order
	__u32 sum;        // checksum of UDP or TCP, not folded, without client, net and far
	__u32 outer_sum;  // IPv4 header checksum, not folded, without client and far
};

struct settings {
	struct lane lanes[LANES];
	__u8 schedule[SCHEDULE]; // lane of each frame, over and over
	__u32 period;            // used entries of the schedule
	__u32 batch;             // frames that are sent together
	__u64 interval;          // nanoseconds per batch, 0: no pause
	__u64 length;            // of the run in nanoseconds
	__u64 slack;             // nanoseconds of delay that are made up
};

struct progress {
	__u64 sent[LANES];
	__u64 begin, end; // of the run, CLOCK_MONOTONIC
	__u64 next;       // when the next batch is due
	__u64 frame;
	__u32 cursor[LANES];
	__u32 over;
	__u32 slot;
};

// peer is what differs between the frames of a lane.
struct peer {
	__u8 client[16]; // inner address
	__u8 ip[4];      // address in IPv4
	__u8 port[2];    // in IPv4; of UDP or TCP where lanes want it
	__u8 net[2];     // third group of the other inner address, if not 0
	__u8 far[4];     // last four octets of that address, if not 0
	__u8 unused[4];  // the kernel's arrays have elements of eight bytes
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} run_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct progress);
} run_progress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // set before loading
	__type(key, __u32);
	__type(value, struct peer);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, TARGETS);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

static long due(__u32 i, void *next) { return bpf_ktime_get_ns() >= *(__u64 *)next; }

// pace waits for the next batch and reports whether the run goes on.
static __always_inline bool pace(const struct settings *c, struct progress *s)
{
	__u64 now = bpf_ktime_get_ns();

	if (!s->begin)
		s->begin = s->next = now;
	if (now - s->begin >= c->length) {
		s->over = 1;
		return false;
	}
	if (c->interval) {
		__u64 next = s->next;
		if (now < next) {
			bpf_loop(SPINS, due, &next, 0);
			now = next;
		}
		s->next = (now - next > c->interval + c->slack ? now : next) + c->interval;
	}
	s->end = now;
	return true;
}

static __always_inline __u32 add(__u32 sum, const __u8 *b, int n)
{
	for (int i = 0; i < n; i += 2)
		sum += (__u32)b[i] << 8 | b[i + 1];
	return sum;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// transport fills in the port and the checksum behind an IP header, given the sum
// of what the peer changes in that header.
static __always_inline void transport(__u8 *at, const struct lane *l, const struct peer *p, __u32 sum,
				       bool tcp)
{
	if (l->ports) {
		__builtin_memcpy(at + (l->to_client ? 2 : 0), p->port, 2);
		sum = add(sum, p->port, 2);
	}
	__u16 folded = fold(l->sum + sum);
	if (!folded)
		folded = 0xffff;
	at += tcp ? 16 : 6;
	at[0] = folded >> 8;
	at[1] = folded;
}

// distant fills in the last four octets of the other address.
static __always_inline void distant(__u8 *at, const struct peer *p)
{
	if (p->far[0] | p->far[1] | p->far[2] | p->far[3])
		__builtin_memcpy(at, p->far, 4);
}

// inner fills in the addresses and the checksum of the IPv6 packet.
static __always_inline void inner(__u8 *ip, const struct lane *l, const struct peer *p, bool tcp)
{
	__u8 *client = ip + (l->to_client ? 24 : 8), *other = ip + (l->to_client ? 8 : 24);

	__builtin_memcpy(client, p->client, 16);
	if (p->net[0] | p->net[1]) {
		other[4] = p->net[0];
		other[5] = p->net[1];
	}
	distant(other + 12, p);
	__u32 sum = add(add(add(0, p->client, 16), other + 4, 2), other + 12, 4);
	transport(ip + IPV6, l, p, sum, tcp);
}

// plain4 fills in the addresses and the checksums of an IPv4 packet.
static __always_inline void plain4(__u8 *ip, const struct lane *l, const struct peer *p)
{
	__u8 *client = ip + (l->to_client ? 16 : 12), *other = ip + (l->to_client ? 12 : 16);

	__builtin_memcpy(client, p->ip, 4);
	distant(other, p);
	__u32 addresses = add(add(0, p->ip, 4), other, 4);
	__u16 sum = fold(l->outer_sum + addresses);
	ip[10] = sum >> 8;
	ip[11] = sum;
	if (l->tcp)
		transport(ip + IPV4, l, p, addresses, true);
	else
		transport(ip + IPV4, l, p, addresses, false);
}

// outer fills in the source and the checksum of the IPv4 header.
static __always_inline void outer(__u8 *ip, const struct lane *l, const struct peer *p)
{
	__builtin_memcpy(ip + 12, p->ip, 4);
	__builtin_memcpy(ip + IPV4, p->port, 2);
	__u16 sum = fold(add(l->outer_sum, p->ip, 4));
	ip[10] = sum >> 8;
	ip[11] = sum;
}

// tunnelled writes the headers of an IPv6 packet in a tunnel, whose own header is so long.
static __always_inline bool tunnelled(__u8 *data, const __u8 *end, const struct lane *l,
				      const struct peer *p, const int own)
{
	if (data + HEADER_TUNNELLED + own > end)
		return false;
	__builtin_memcpy(data, l->header, HEADER_TUNNELLED + own);
	outer(data + ETHERNET, l, p);
	inner(data + ETHERNET + OUTER + own, l, p, false);
	return true;
}

// write writes the headers of one frame.
static __always_inline bool write(struct xdp_md *ctx, const struct lane *l, const struct peer *p)
{
	if (l->skip && bpf_xdp_adjust_head(ctx, (int)l->skip))
		return false;
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	switch (l->form) {
	case FORM_TUNNEL:
		return tunnelled(data, end, l, p, 0);
	case FORM_GPDU:
		return tunnelled(data, end, l, p, GTPU);
	case FORM_IPV4:
		if (data + HEADER_IPV4 + (TCP - UDP) > end)
			return false;
		__builtin_memcpy(data, l->header, HEADER_IPV4 + (TCP - UDP));
		plain4(data + ETHERNET, l, p);
		return true;
	}
	if (data + HEADER_PLAIN > end)
		return false;
	__builtin_memcpy(data, l->header, HEADER_PLAIN);
	if (l->tcp) {
		if (data + HEADER_PLAIN + (TCP - UDP) > end)
			return false;
		__builtin_memcpy(data + HEADER_PLAIN, l->header + HEADER_PLAIN, TCP - UDP);
		inner(data + ETHERNET, l, p, true);
	} else {
		inner(data + ETHERNET, l, p, false);
	}
	return true;
}

SEC("xdp") int generator(struct xdp_md *ctx)
{
	__u32 zero = 0;
	const struct settings *c = bpf_map_lookup_elem(&run_settings, &zero);
	struct progress *s = bpf_map_lookup_elem(&run_progress, &zero);

	if (!c || !s || s->over)
		return XDP_DROP;
	if (s->frame % c->batch == 0 && !pace(c, s))
		return XDP_DROP;
	s->frame++;
	__u32 slot = s->slot++;
	if (s->slot >= c->period)
		s->slot = 0;
	__u32 lane = c->schedule[slot % SCHEDULE] % LANES;
	const struct lane *l = &c->lanes[lane];
	__u32 at = l->first + s->cursor[lane]++;
	if (s->cursor[lane] >= l->count)
		s->cursor[lane] = 0;
	const struct peer *p = bpf_map_lookup_elem(&table, &at);
	if (!p || !write(ctx, l, p))
		return XDP_DROP;
	s->sent[lane]++;
	return bpf_redirect_map(&targets, l->target, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
