/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * A translator's XDP program under a test run that repeats, as cost.c does it with the
 * relay's: each run finds the frame as the last one left it, so it is made from a
 * template first, with the next of many flows. What that costs alone is measured by a
 * twin that does only that. The programs of the translator are included before.
 */

#ifndef ISTHMUS_COST_TRANSLATE_H
#define ISTHMUS_COST_TRANSLATE_H

/* What of a frame depends on who speaks with whom. */
struct part {
	u32 client[3]; /* the last twelve bytes of X' */
	u32 pool;      /* T */
	u32 server;    /* Z */
	u16 client_port;
	u16 pool_port;
	u16 checksum6;       /* of UDP in IPv6 */
	u16 checksum4;       /* of UDP in IPv4 */
	u16 header_checksum; /* of IPv4 */
	u16 unused;          /* arrays have multiples of eight bytes */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader, a power of two */
	__type(key, u32);
	__type(value, struct part);
} parts SEC(".maps");

const volatile u32 part_mask;

/* A whole frame of each direction, without what depends on that. */
u8 frame6[64] __attribute__((aligned(8))) SEC(".data.frames");
u8 frame4[48] __attribute__((aligned(8))) SEC(".data.frames");
u32 turn SEC(".data.frames");

/* Bytes by which a frame shrinks on its way to IPv4. */
#define SHRINKS (IPV6_LEN - IPV4_LEN)

INLINE struct part *next_part(void)
{
	u32 index = turn++ & part_mask;
	return bpf_map_lookup_elem(&parts, &index);
}

/* Puts the frame of a client in place, at the start of the frame that is there. */
INLINE int restore6(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct part *p = next_part();
	if (!p || data + sizeof(frame6) > end)
		return 0;
#pragma unroll
	for (u32 i = 0; i < sizeof(frame6); i += 8)
		U64_AT(data, i) = *(u64 *)&frame6[i];
	U32_AT(data, 26) = p->client[0];
	U32_AT(data, 30) = p->client[1];
	U32_AT(data, 34) = p->client[2];
	U32_AT(data, 50) = p->server;
	U16_AT(data, 54) = p->client_port;
	U16_AT(data, 60) = p->checksum6;
	return 1;
}

/* The same for the frame to a client. */
INLINE int restore4(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct part *p = next_part();
	if (!p || data + sizeof(frame4) > end)
		return 0;
#pragma unroll
	for (u32 i = 0; i < sizeof(frame4); i += 8)
		U64_AT(data, i) = *(u64 *)&frame4[i];
	U16_AT(data, 24) = p->header_checksum;
	U32_AT(data, 26) = p->server;
	U32_AT(data, 30) = p->pool;
	U16_AT(data, 36) = p->pool_port;
	U16_AT(data, 40) = p->checksum4;
	return 1;
}

/* The last run has cut the frame, so it is grown first; and the other way round. */
SEC("xdp")
int cost_to4(struct xdp_md *ctx)
{
	if (turn && bpf_xdp_adjust_head(ctx, -SHRINKS))
		return XDP_ABORTED;
	return restore6(ctx) ? xdp_translate(ctx) : XDP_ABORTED;
}

SEC("xdp")
int cost_to6(struct xdp_md *ctx)
{
	if (turn && bpf_xdp_adjust_head(ctx, SHRINKS))
		return XDP_ABORTED;
	return restore4(ctx) ? xdp_translate(ctx) : XDP_ABORTED;
}

/* The twins: the frame grows and shrinks, turn by turn, and is restored. */
SEC("xdp")
int harness_to4(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, turn & 1 ? SHRINKS : -SHRINKS))
		return XDP_ABORTED;
	return restore6(ctx) ? XDP_REDIRECT : XDP_ABORTED;
}

SEC("xdp")
int harness_to6(struct xdp_md *ctx)
{
	if (bpf_xdp_adjust_head(ctx, turn & 1 ? SHRINKS : -SHRINKS))
		return XDP_ABORTED;
	return restore4(ctx) ? XDP_REDIRECT : XDP_ABORTED;
}

#endif
