// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package registrarrole runs a SIP registrar, proxy or redirect server: its sockets and connections,
// the looking up of names, what is kept over a restart, and its orders.
package registrarrole
