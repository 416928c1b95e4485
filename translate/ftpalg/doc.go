// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ftpalg lets FTP clients that speak only IPv6 use FTP servers that speak
// only IPv4, through a translator (RFC 6384), and the other way round.
//
// A [Proxy] takes the control connections that a translator hands it, calls the
// server of each, and carries commands one way and replies the other (RFC 6384
// section 5, first way). EPSV goes to the server as PASV, and its 227 comes back
// as 229; EPRT goes as PORT with an address and a port of the translator that are
// made to lead to the client first. For IPv4 clients of IPv6 servers it is the other
// way round: PASV goes as EPSV, and its 229 comes back as 227 with a port of the translator,
// and PORT goes as EPRT. All else goes as it came. From AUTH
// on, all does, unless the server refuses it. Data connections are no business of this
// package: they run through the translator like any others.
//
// What is said is decided by a dialogue, which sees bytes of either side and
// appends bytes for both; it knows no socket and no clock. The rest of the
// package moves these bytes.
//
// Both sides may be hostile. A line, the commands without a reply, the
// connections in all and of one client are bounded; a side that does not read is
// waited for in bounded time; each end is counted under its reason.
//
//house:edge
package ftpalg
