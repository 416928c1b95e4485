// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package transaction is the transaction layer of SIP (RFC 3261 section 17 as RFC 6026 corrects
// it), for user agents and proxies.
//
// A [Layer] matches messages with transactions, repeats what gets lost, absorbs what is repeated
// and acknowledges refusals. It has no sockets and no clock: what is to be sent, and what its user
// must know, is appended to an [Output]; time comes with each call, and [Layer.Next] says when
// [Layer.Tick] has something to do. The user puts Via with a branch on its requests, and where
// messages go is the user's choice for each transaction, so that it can change with every one.
//
//house:part
package transaction
