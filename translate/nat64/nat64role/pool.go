// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Transports is a set of what has ports, or, for ICMP, identifiers.
type Transports uint8

// The transports.
const (
	TCP Transports = 1 << iota
	UDP
	ICMP
	// AllTransports are all three.
	AllTransports = TCP | UDP | ICMP
)

var transportNames = map[string]Transports{"tcp": TCP, "udp": UDP, "icmp": ICMP}

// String returns the names, joined by commas.
func (t Transports) String() string {
	var names []string
	for _, name := range []string{"tcp", "udp", "icmp"} {
		if t&transportNames[name] != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// PoolRange is a part of an IPv4 pool: ports of the addresses of one prefix.
type PoolRange struct {
	Prefix      netip.Prefix
	Transports  Transports
	First, Last uint16
}

// firstPort is where the ports of a pool begin unless the file says otherwise: those
// below are the system's.
const firstPort = 1024

// String returns the range as the file has it.
func (r PoolRange) String() string {
	s := r.Prefix.String()
	if r.Prefix.Bits() == 32 {
		s = r.Prefix.Addr().String()
	}
	if r.Transports != AllTransports {
		s += " " + r.Transports.String()
	}
	return fmt.Sprintf("%s %d-%d", s, r.First, r.Last)
}

// Overlaps reports whether two ranges share a port.
func (r PoolRange) Overlaps(o PoolRange) bool {
	return r.Prefix.Overlaps(o.Prefix) && r.Transports&o.Transports != 0 && r.First <= o.Last && o.First <= r.Last
}

// has reports whether the outer port of a binding is in the range.
func (r PoolRange) has(b StaticBinding) bool {
	return r.Prefix.Contains(b.Outside.Addr()) && r.Transports&b.Transport != 0 && r.First <= b.Outside.Port() && b.Outside.Port() <= r.Last
}

// poolRange parses an address or prefix, with transports and ports behind it.
var poolRange = key.Text("192.0.2.10 tcp,udp 20000-29999", func(s string) (PoolRange, *key.Fault) {
	const example = `write it like "192.0.2.10", "198.51.100.0/28 1024-65535" or "203.0.113.1 tcp 20000-29999"`
	words := strings.Fields(s)
	if len(words) == 0 || len(words) > 3 {
		return PoolRange{}, key.Wrong(example, "%q is not an address with its ports", s)
	}
	p, f := keys.Prefix4(words[0])
	if f != nil {
		return PoolRange{}, key.Wrong(example, "%s", f.Problem)
	}
	if p.Bits() < 16 {
		return PoolRange{}, key.Wrong("name a /16 or a smaller part of it", "%s has more addresses than a table can hold", p)
	}
	if !keys.Forwarded4(p) {
		return PoolRange{}, key.Wrong(example, "no packet is forwarded to %s", p)
	}
	r := PoolRange{Prefix: p, Transports: AllTransports, First: firstPort, Last: 65535}
	for i, word := range words[1:] {
		var ok bool
		if i == 0 && strings.ContainsAny(word[:1], "tui") {
			r.Transports, ok = transports(word)
		} else if i == len(words)-2 {
			r.First, r.Last, ok = portRange(word)
		}
		if !ok {
			return r, key.Wrong(example, "%q is neither tcp, udp or icmp nor a range of ports from 1 to 65535, the lower one first", word)
		}
	}
	return r, nil
})

// ParsePoolRange reads a range as it stands in pool4, for the command line.
func ParsePoolRange(s string) (PoolRange, error) {
	r, f := poolRange(s)
	return r, f.Err()
}

func transports(s string) (t Transports, ok bool) {
	for name := range strings.SplitSeq(s, ",") {
		one, known := transportNames[name]
		if !known {
			return 0, false
		}
		t |= one
	}
	return t, true
}

func portRange(s string) (first, last uint16, ok bool) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	a, err := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	return uint16(a), uint16(b), err == nil && err2 == nil && a <= b && a > 0
}

// StaticBinding binds a pool address and port to an IPv6 host and port for good. Of
// ICMP the ports are identifiers.
type StaticBinding struct {
	Transport Transports
	Inside    netip.AddrPort // IPv6
	Outside   netip.AddrPort // IPv4
}

// String returns the binding as the file has it.
func (b StaticBinding) String() string {
	return fmt.Sprintf("%s %s %s", b.Transport, b.Inside, b.Outside)
}

// staticBinding parses a transport and the two ends.
var staticBinding = key.Text("tcp [2001:db8:1::80]:80 192.0.2.10:80", func(s string) (StaticBinding, *key.Fault) {
	const example = `write it like "tcp [2001:db8:1::80]:80 192.0.2.10:80"`
	words := strings.Fields(s)
	if len(words) != 3 {
		return StaticBinding{}, key.Wrong(example, "%q is not a transport with an IPv6 and an IPv4 end", s)
	}
	t, known := transportNames[words[0]]
	if !known {
		return StaticBinding{}, key.Wrong(example, "%q is not tcp, udp or icmp", words[0])
	}
	inside, err := netip.ParseAddrPort(words[1])
	if err != nil || !inside.Addr().Is6() || inside.Addr().Is4In6() || inside.Addr().Zone() != "" {
		return StaticBinding{}, key.Wrong(example, "%q is not an IPv6 address with a port", words[1])
	}
	outside, err := netip.ParseAddrPort(words[2])
	if err != nil || !outside.Addr().Is4() {
		return StaticBinding{}, key.Wrong(example, "%q is not an IPv4 address with a port", words[2])
	}
	if t != ICMP && (inside.Port() == 0 || outside.Port() == 0) {
		return StaticBinding{}, key.Wrong(example, "no packet is sent to port 0")
	}
	return StaticBinding{t, inside, outside}, nil
})

// ParseStatic reads a binding as it stands in static, for the command line.
func ParseStatic(s string) (StaticBinding, error) {
	b, f := staticBinding(s)
	return b, f.Err()
}
