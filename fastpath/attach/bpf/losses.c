//go:build ignore

/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Frames that a device refuses to send, although XDP has redirected them into it. The
 * kernel drops such a frame in silence, behind the program that has forwarded it; its
 * tracepoints alone tell. What is dropped of a device that works, since its queue is
 * full, is no such loss.
 */

#include "types.h"

#define ERRNO_MSGSIZE 90 /* the frame is to blame */
#define ERRNO_NETDOWN 100 /* routes will tell */

/* What is read of the kernel's own records; where it lies there, the loader finds out. */
#define KERNEL_RECORD __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL_RECORD;

struct net {
	struct ns_common ns;
} KERNEL_RECORD;

typedef struct {
	struct net *net;
} KERNEL_RECORD possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL_RECORD;

/* A device: its number, and that of its network namespace. */
struct losing {
	u32 ifindex;
	u32 netns;
};

struct loss {
	u64 frames;
	s64 error; /* the last one */
};

/* The daemon puts in the devices that it asks about. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct losing);
	__type(value, struct loss);
} losses SEC(".maps");

INLINE void note_loss(u32 ifindex, u32 netns, u64 frames, int error)
{
	if (error == -ERRNO_MSGSIZE || error == -ERRNO_NETDOWN)
		return;
	struct losing key = {.ifindex = ifindex, .netns = netns};
	struct loss *r = bpf_map_lookup_elem(&losses, &key);
	if (!r)
		return;
	__sync_fetch_and_add(&r->frames, frames);
	r->error = error;
}

/* xdp_devmap_xmit(from, to, sent, drops, error): a batch has been handed to a driver. */
SEC("tp_btf/xdp_devmap_xmit")
int isthmus_sent(u64 *ctx)
{
	int error = ctx[4];
	if (error >= 0)
		return 0;
	const struct net_device *to = (void *)ctx[1];
	note_loss(to->ifindex, to->nd_net.net->ns.inum, (u32)ctx[3], error);
	return 0;
}

/*
 * xdp_redirect_err(from, program, target, error, map type, map, index): a frame is not
 * handed to a driver at all. The index is that of the device, where there is no map.
 */
SEC("tp_btf/xdp_redirect_err")
int isthmus_unsent(u64 *ctx)
{
	const struct net_device *from = (void *)ctx[0];
	note_loss(ctx[6], from->nd_net.net->ns.inum, 1, ctx[3]);
	return 0;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
