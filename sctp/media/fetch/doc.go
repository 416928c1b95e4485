// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package fetch is the client of an SCTP media server: it gets a source, checks its digest, and measures.
//
//house:shared
package fetch
