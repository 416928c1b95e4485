/* Copyright the Isthmus authors. SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */

/*
 * Sized types, the constants that old kernel headers lack, under names of our
 * own, and a few words of C that BPF programs need.
 */

#ifndef ISTHMUS_TYPES_H
#define ISTHMUS_TYPES_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 be16; /* network order */
typedef __u32 be32;

#define INLINE static __attribute__((always_inline)) inline
#define NOINLINE static __attribute__((noinline))
/* Verified once, apart from its callers. */
#define GLOBAL __attribute__((noinline))

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* One access, not more and not fewer: another thread writes the same memory. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/*
 * Makes a value new to the compiler, so that it tests and masks it just where the
 * source does: the verifier then sees the bound. Before Linux 6.8 it learns
 * nothing from "not 0", nor from an exclusive or of what it knows.
 */
#define HIDE(value) __asm__ volatile("" : "+r"(value))

/* Keeps the compiler from moving accesses to memory across it. */
#define COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

/*
 * Keeps loads in their order. x86 does that by itself; arm64 needs an atomic
 * operation that is both acquire and release, on anything, and whose result is used:
 * else it is neither.
 */
#ifdef __TARGET_ARCH_arm64
/* Apart, so that its word is once on the stack of a chain of calls, which is small. */
static __attribute__((noinline, unused)) void load_barrier(void)
{
	u64 word = 0;
	u64 before = __sync_fetch_and_add((volatile u64 *)&word, 1);
	__asm__ volatile("" : : "r"(before) : "memory");
}
#define LOAD_BARRIER() load_barrier()
#else
#define LOAD_BARRIER() COMPILER_BARRIER()
#endif

/* Writes a word that tells others of all that was written before; x86 keeps stores in order. */
#ifdef __TARGET_ARCH_arm64
#define PUBLISH(x, v) \
	do { \
		typeof(x) published_before = __sync_lock_test_and_set(&(x), v); \
		__asm__ volatile("" : : "r"(published_before) : "memory"); \
	} while (0)
#else
#define PUBLISH(x, v) \
	do { \
		COMPILER_BARRIER(); \
		WRITE_ONCE(x, v); \
	} while (0)
#endif

/* Both architectures of ours are little-endian. */
#define TO_BE16(x) ((be16)__builtin_bswap16((u16)(x)))
#define TO_BE32(x) ((be32)__builtin_bswap32((u32)(x)))
#define FROM_BE16(x) __builtin_bswap16((u16)(x))

#define ETHERTYPE_IPV4 TO_BE16(0x0800)
#define ETHERTYPE_IPV6 TO_BE16(0x86dd)
#define ETHERNET_LEN 14
#define IPV4_LEN 20
#define UDP_LEN 8
#define TCP_LEN 20
#define IPV6_LEN 40
/* What a tunnel header adds to a packet. */
#define TUNNEL_LEN (IPV4_LEN + UDP_LEN)

#define FAMILY_IPV4 2  /* AF_INET */
#define FAMILY_IPV6 10 /* AF_INET6 */

#define PROTO_ICMP 1
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_ESP 50
#define PROTO_ICMPV6 58
#define PROTO_NONE 59
#define PROTO_SCTP 132

#define TC_PASS (-1) /* TCX_NEXT, TC_ACT_UNSPEC: whatever stands behind us decides */
#define TC_DROP 2    /* TC_ACT_SHOT */

#define PACKET_FOR_HOST 0 /* PACKET_HOST */

/* bpf_fib_lookup, 6.7 and some stable kernels before. */
#define FIB_LOOKUP_SOURCE (1U << 4)
/* bpf_skb_adjust_room. */
#define ROOM_FIXED_GSO (1ULL << 0)
#define ROOM_ENCAP_IPV4 (1ULL << 1)
#define ROOM_ENCAP_UDP (1ULL << 4)
#define ROOM_DECAP_IPV6 (1ULL << 8) /* 6.3 */
#define ROOM_AT_MAC 1               /* BPF_ADJ_ROOM_MAC */

#endif
