// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ggsnrole runs a Gateway GPRS Support Node: sockets towards SGSNs, TUN devices to
// the networks behind it, contexts over restarts, status and orders. What is done with a
// packet is the business of package ggsn.
package ggsnrole
