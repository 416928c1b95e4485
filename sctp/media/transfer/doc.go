// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package transfer is the protocol of the SCTP media server: bytes in, values out. docs/sctp-media.md has the layouts.
//
// Each message of it is a message of SCTP with the payload protocol identifier [PPID], and begins with
//
//	| version (1) | kind (1) | number of the transfer (2) | ...
//
// in network byte order. What controls a transfer goes by stream 0, and data by the streams from 1 on, so that no lost
// octet of data holds up an order, an answer or the end.
//
//house:codec
package transfer
