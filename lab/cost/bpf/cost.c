//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * The relay's XDP program under a test run that repeats: each run finds the frame as
 * the last one left it, so it is made from a template first, with the next of many
 * clients. What that costs alone is measured by a twin that does only that.
 */

#include "teredo_xdp.h"

/* What of a frame depends on the client. */
struct template {
	u32 mapped;    /* outer source */
	u32 client[3]; /* the last twelve bytes of its address */
	u16 port;
	u16 header_checksum;
	u16 udp_checksum;
	u16 host; /* number of the IPv6 host, in the last bytes of its address */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader, a power of two */
	__type(key, u32);
	__type(value, struct template);
} templates SEC(".maps");

const volatile u32 template_mask;

/* A whole frame of each direction, without what depends on the client. */
u8 encap_frame[ETHERNET_LEN + IPV6_LEN + 2] __attribute__((aligned(8))) SEC(".data.frames");
u8 decap_frame[ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN + 6] __attribute__((aligned(8))) SEC(".data.frames");
u32 turn SEC(".data.frames");

INLINE struct template *next_template(void)
{
	u32 index = turn++ & template_mask;
	return bpf_map_lookup_elem(&templates, &index);
}

/* Puts the frame to a client in place, at the start of the frame that is there. */
INLINE int restore_encap(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct template *t = next_template();
	if (!t || data + ETHERNET_LEN + IPV6_LEN > end)
		return 0;
	U64_AT(data, 0) = *(u64 *)&encap_frame[0];
	U64_AT(data, 8) = *(u64 *)&encap_frame[8];
	U64_AT(data, 16) = *(u64 *)&encap_frame[16];
	U64_AT(data, 24) = *(u64 *)&encap_frame[24];
	U64_AT(data, 32) = *(u64 *)&encap_frame[32];
	U16_AT(data, 40) = *(u16 *)&encap_frame[40];
	U32_AT(data, 42) = t->client[0];
	U32_AT(data, 46) = t->client[1];
	U32_AT(data, 50) = t->client[2];
	return 1;
}

/* The same for the frame of a client. */
INLINE int restore_decap(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct template *t = next_template();
	if (!t || data + ETHERNET_LEN + TUNNEL_LEN + IPV6_LEN > end)
		return 0;
#pragma unroll
	for (int i = 0; i < 80; i += 8)
		U64_AT(data, i) = *(u64 *)&decap_frame[i];
	U16_AT(data, 80) = t->host;
	U16_AT(data, 24) = t->header_checksum;
	U32_AT(data, 26) = t->mapped;
	U16_AT(data, 34) = t->port;
	U16_AT(data, 40) = t->udp_checksum;
	U32_AT(data, 54) = t->client[0];
	U32_AT(data, 58) = t->client[1];
	U32_AT(data, 62) = t->client[2];
	return 1;
}

/* The last run has put a header on, so it is taken off first; and the other way round. */
SEC("xdp")
int cost_encap(struct xdp_md *ctx)
{
	if (turn && bpf_xdp_adjust_head(ctx, TUNNEL_LEN))
		return XDP_ABORTED;
	return restore_encap(ctx) ? xdp_relay(ctx) : XDP_ABORTED;
}

SEC("xdp")
int cost_decap(struct xdp_md *ctx)
{
	if (turn && bpf_xdp_adjust_head(ctx, -TUNNEL_LEN))
		return XDP_ABORTED;
	return restore_decap(ctx) ? xdp_relay(ctx) : XDP_ABORTED;
}

/* The twins: the header goes and comes, turn by turn, and the frame is restored. */
SEC("xdp")
int harness_encap(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, turn & 1 ? TUNNEL_LEN : -TUNNEL_LEN))
		return XDP_ABORTED;
	return restore_encap(ctx) ? XDP_REDIRECT : XDP_ABORTED;
}

SEC("xdp")
int harness_decap(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, turn & 1 ? TUNNEL_LEN : -TUNNEL_LEN))
		return XDP_ABORTED;
	return restore_decap(ctx) ? XDP_REDIRECT : XDP_ABORTED;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
