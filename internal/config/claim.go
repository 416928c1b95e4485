// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
)

// Claim is something of the host that one instance has alone. The key that claims it
// stands in errors; no other claim of the same instance is in its way.
type Claim interface {
	// key is that of the configuration; empty is the section itself.
	key() string
	// against returns what keeps two claims of different instances apart, of which
	// other is that of an instance known to people as by; nil is nothing.
	against(other Claim, by string) *fault
}

// Device is the name of a network device.
type Device struct{ Key, Name string }

func (d Device) key() string { return d.Key }

func (d Device) against(other Claim, by string) *fault {
	if other, ok := other.(Device); !ok || other.Name != d.Name {
		return nil
	}
	return wrong(`give each instance an interface = "…" of its own`, "%s is also the interface of %s", d.Name, by)
}

// Socket is a port of an address, the unspecified one for all addresses. Without an
// address, or with port 0, nothing is claimed.
type Socket struct {
	Key string
	// Protocol is "UDP" or "TCP".
	Protocol string
	At       netip.AddrPort
}

func (s Socket) key() string { return s.Key }

func (s Socket) against(other Claim, by string) *fault {
	if other, ok := other.(Socket); ok && other.Protocol == s.Protocol && overlap(s.At, other.At) {
		return wrong("choose another port or address", "%s %s is also bound by %s", s.Protocol, other.At, by)
	}
	return nil
}

// overlap reports whether two sockets of one protocol cannot exist side by side.
func overlap(a, b netip.AddrPort) bool {
	return a.Addr().IsValid() && b.Addr().IsValid() && a.Port() != 0 && a.Port() == b.Port() &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// Alone is claimed by what a host has once.
type Alone struct {
	// Problem and Remedy are told of the second.
	Problem, Remedy string
}

func (a Alone) key() string { return "" }

func (a Alone) against(other Claim, _ string) *fault {
	if other != a {
		return nil
	}
	return &fault{Problem: a.Problem, Remedy: a.Remedy}
}
