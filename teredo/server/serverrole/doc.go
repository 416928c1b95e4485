// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package serverrole is the role of a Teredo server: it has the sockets of the
// engine of package server, drives it, and undoes on exit what it changed on the host.
package serverrole
