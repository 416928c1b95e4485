// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/clat"
)

// Status is the status of a CLAT.
type Status struct {
	// State is what the instance waits for, or serving, or aside while the host has
	// IPv4 of its own; device_down while someone has set the device down, or incomplete
	// while something is missing that the instance has set up; retrying, with the Error of the
	// last try, while the host could not be set up, or the prefix not be looked for.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// Missing is what should be on the host and is not.
	Missing []string `json:"missing,omitempty"`
	// Interface is the TUN device, and Uplink the link to the NAT64.
	Interface string `json:"interface"`
	Uplink    string `json:"uplink,omitempty"`
	// Address4 is the host's IPv4 address, and Address6 what the network sees.
	Address4 netip.Addr `json:"address4,omitzero"`
	Address6 netip.Addr `json:"address6,omitzero"`
	// Prefixes are the NAT64's, and Source is who told them: "" is the configuration.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	Source   string         `json:"source,omitempty"`
	// MTU is the size of the largest IPv4 packet that passes whole, in bytes.
	MTU int `json:"mtu,omitempty"`
}

// Status implements [role.Instance]; it returns a [Status].
func (c *CLAT) Status() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Status{State: c.waiting, Interface: c.cfg.Interface, Prefixes: slices.Clone(c.set.Prefixes)}
	if len(c.cfg.Prefixes) == 0 && len(st.Prefixes) > 0 {
		st.Source = c.set.Source.String()
	}
	if s := c.current; s != nil {
		st.Uplink, st.Address6 = s.at.Name, s.address
		if c.waiting == "" {
			kept := s.device.State()
			st.State, st.Address4, st.MTU, st.Missing = cmp.Or(kept.Word(), "serving"), clat.HostIPv4, c.mtu, kept.All()
		}
	}
	switch {
	case c.waiting == waitSubnet:
		st.Uplink, st.Error = c.narrow, c.narrow+" has no network of 64 bits to claim an address in: have a router advertise one, or write an address with its network"
	case c.waiting == waitPrefix && c.blind != "":
		st.State, st.Error = retrying, c.blind
	case c.waiting == waitUplink, c.waiting == waitPrefix: // what failed before is no matter now
	case c.problem != "":
		st.State, st.Error = retrying, c.problem
	case c.native:
		st.State = "aside"
	}
	return st
}

// totals are the counters of sessions.
type totals struct {
	toIPv4, toIPv6, errors, suppressed uint64
	dropped                            map[string]uint64
	tun, guest                         port.Stats
}

func (t *totals) add(o totals) {
	t.toIPv4 += o.toIPv4
	t.toIPv6 += o.toIPv6
	t.errors += o.errors
	t.suppressed += o.suppressed
	t.tun, t.guest = t.tun.Plus(o.tun), t.guest.Plus(o.guest)
	if t.dropped == nil {
		t.dropped = map[string]uint64{}
	}
	for reason, n := range o.dropped {
		t.dropped[reason] += n
	}
}

// totals are the counters of the session so far.
func (s *session) totals() totals {
	t := totals{dropped: map[string]uint64{}, tun: s.device.Stats(), guest: s.guest.Stats()}
	s.loop.Do(func(time.Time, *packet.Batch) {
		st, _ := s.engine.Stats()
		t.toIPv4, t.toIPv6, t.errors, t.suppressed = st.ToIPv4, st.ToIPv6, st.ErrorsSent, st.ErrorsSuppressed
		s.engine.EachDropped(func(reason string, n uint64) { t.dropped[reason] = n })
	})
	return t
}

// Collect implements [role.Instance].
func (c *CLAT) Collect(emit func(role.Metric)) {
	c.mu.Lock()
	s := cmp.Or(c.current, c.ending)
	var t totals
	t.add(c.past)
	c.mu.Unlock()
	if s != nil {
		t.add(s.totals())
	}
	emit(role.Count("to_ipv4_total", "Packets given to the host.", t.toIPv4))
	emit(role.Count("to_ipv6_total", "Packets sent to the network.", t.toIPv6))
	emit(role.Count("icmp_errors_total", "ICMP errors sent by the translator itself.", t.errors))
	emit(role.Count("icmp_errors_suppressed_total", "ICMP errors not sent, by their rate.", t.suppressed))
	for _, reason := range slices.Sorted(maps.Keys(t.dropped)) {
		emit(role.Dropped(reason, t.dropped[reason]))
	}
	loop.CollectPort(emit, "tun", t.tun)
	loop.CollectPort(emit, "uplink", t.guest)
}
