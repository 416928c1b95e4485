// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package bypass finds what the kernel would do to packets of a relay that a
// redirecting fast path does not do: firewalls, connection tracking, policy
// routing, IPsec and the like. Redirected packets never meet these, and no one
// may find that out by surprise.
//
// Encapsulation skips what IPv6 packets meet on their way from a device to the
// relay's TUN device, and what the relay's IPv4 datagrams meet on their way out.
// Decapsulation skips what IPv4 datagrams meet on their way to the relay's
// socket, and what the IPv6 packets in them meet between the TUN device and the
// device that they leave by. Packets of clients that the relay does not know yet
// always take the long way; so a firewall can keep a client from becoming known,
// but not stop one that is known.
package bypass
