// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package clientrole is the role of a Teredo client: it has the sockets and devices of the
// engine of package client, drives it, and undoes on exit what it changed on the host.
package clientrole
