// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// What generator and meter both know of the frames that they make and see.

#pragma once

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
#define IPV4 20
#define IPV6 40
#define UDP 8
#define TCP 20
#define OUTER (IPV4 + UDP)

#define ETHER_IPV4 0x0800
#define ETHER_IPV6 0x86dd
#define PROTOCOL_ICMP 1
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58

// Lengths of the headers that are written again: up to the inner UDP header.
#define HEADER_PLAIN (ETHERNET + IPV6 + UDP)
#define HEADER_IPV4 (ETHERNET + IPV4 + UDP)
#define HEADER_TUNNELLED (ETHERNET + OUTER + IPV6 + UDP)

// The header of a G-PDU (TS 29.281 section 5.1), and what more it has if it has a sequence
// number, an N-PDU number or extension headers, of which a test packet has none.
#define GTPU 8
#define GTPU_MORE 4
#define GPDU 255
#define HEADER_GPDU (ETHERNET + OUTER + GTPU + IPV6 + UDP)

// DISCARD is the port that all test packets go to; source ports from there on
// tell their classes apart.
#define DISCARD 9
#define CLASSES 8
