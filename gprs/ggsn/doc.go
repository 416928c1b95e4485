// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ggsn is the engine of a Gateway GPRS Support Node (TS 29.060, TS 09.60, TS
// 29.281, TS 29.061): datagrams of SGSNs and packets of the networks behind it, with the
// time, go in; datagrams, packets and events come out. It sees no socket and no clock, and
// its randomness is handed in.
//
// A session is what a terminal has by one primary PDP context: its addresses, its APN, a
// TEID of the control plane. It has one context or more, each with an NSAPI, a TEID of the
// user plane and a profile. Sessions, contexts, the nodes at the other end and requests that
// wait for an answer lie in tables that are bounded; nothing is allocated for a G-PDU.
//
//house:engine
package ggsn
