/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/* Samples: some packets, as they came, with what became of them. */

#ifndef ISTHMUS_TRACE_H
#define ISTHMUS_TRACE_H

#include "budget.h"
#include "count.h"

/* Whether this packet is sampled. */
INLINE int is_sampled(u64 now)
{
	u32 every = settings.trace_every;
	if (LIKELY(!every))
		return 0;
	return bpf_get_prandom_u32() % every == 0 && take(&shared.windows.trace, now >> 30, settings.trace_limit);
}

/* A sample without its bytes; 0 when the reader is too slow. */
INLINE struct sample *new_sample(u64 now, u32 ifindex, u32 hook, u32 reason, u32 length)
{
	struct sample *s = bpf_ringbuf_reserve(&samples, sizeof *s, 0);
	if (!s)
		return 0;
	s->time = now;
	s->ifindex = ifindex;
	s->hook = hook;
	s->verdict = verdict_of(reason);
	s->reason = reason;
	s->unused = 0;
	s->length = length;
	s->captured = length < SAMPLE_BYTES ? length : SAMPLE_BYTES;
	return s;
}

GLOBAL int sample_xdp(struct xdp_md *ctx, u64 now, u32 reason)
{
	struct sample *s = new_sample(now, ctx->ingress_ifindex, HOOK_XDP, reason, frame_length(ctx));
	if (!s)
		return 0;
	u32 last = s->captured - 1;
	HIDE(last);
	if (last >= SAMPLE_BYTES || bpf_xdp_load_bytes(ctx, 0, s->data, last + 1))
		s->captured = 0;
	bpf_ringbuf_submit(s, 0);
	return 0;
}

GLOBAL int sample_skb(struct __sk_buff *skb, u64 now, u32 reason, u32 hook)
{
	struct sample *s = new_sample(now, skb->ifindex, hook, reason, skb->len);
	if (!s)
		return 0;
	u32 last = s->captured - 1;
	HIDE(last);
	if (last >= SAMPLE_BYTES || bpf_skb_load_bytes(skb, 0, s->data, last + 1))
		s->captured = 0;
	bpf_ringbuf_submit(s, 0);
	return 0;
}

#endif
