// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

func TestSettingsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
		want   string
	}{
		{"right", func(*Settings) {}, ""},
		{"no address", func(s *Settings) { s.Address4, s.Address6 = netip.Addr{}, netip.Addr{} }, "no address"},
		{"IPv6 alone", func(s *Settings) { s.Address4 = netip.Addr{} }, ""},
		{"an address of the other family", func(s *Settings) { s.Address4 = node6 }, "IPv4 address"},
		{"a group", func(s *Settings) { s.Address6 = netip.MustParseAddr("ff02::1") }, "IPv6 address"},
		{"no peers", func(s *Settings) { s.Peers = nil }, "no one may speak"},
		{"no time to answer", func(s *Settings) { s.T3Response = 0 }, "wait for its answer"},
		{"requests that are never sent", func(s *Settings) { s.N3Requests = 0 }, "sent once"},
		{"echoes too often", func(s *Settings) { s.EchoInterval = 59 * time.Second }, "too short"},
		{"no room", func(s *Settings) { s.Limits.Contexts = 0 }, "no room"},
		{"too much room", func(s *Settings) { s.Limits.Contexts = maxContexts + 1 }, "too many"},
		{"no access point", func(s *Settings) { s.APNs = nil }, "access points"},
		{"prefixes of a link that are no power of 2", func(s *Settings) { s.APNs[1].LinkPrefixes = 3 }, "cannot have 3 prefixes"},
		{"too many prefixes of a link", func(s *Settings) { s.APNs[1].LinkPrefixes = 32 }, "cannot have 32 prefixes"},
		{"prefixes of a link beside delegated ones", func(s *Settings) { delegate(s); s.APNs[1].LinkPrefixes = 2 }, "no more"},
		{"one twice", func(s *Settings) { s.APNs[1].Name = "Internet" }, "twice"},
		{"an unknown default", func(s *Settings) { s.Default = "x" }, "default"},
		{"no name", func(s *Settings) { s.APNs[0].Name = "" }, "access point"},
		{"no type", func(s *Settings) { s.APNs[0].Types = 0 }, "no PDP type"},
		{"no pool of IPv4", func(s *Settings) { s.APNs[0].Pools4 = nil }, "no pool of IPv4"},
		{"no pool of IPv6", func(s *Settings) { s.APNs[1].Pools6 = nil }, "no pool of IPv6"},
		{"an MTU too small", func(s *Settings) { s.APNs[0].MTU = 1279 }, "MTU"},
		{"an MTU too large", func(s *Settings) { s.APNs[0].MTU = maxMTU + 1 }, "MTU"},
		{"a negative time", func(s *Settings) { s.APNs[0].IdleLimit = -1 }, "negative"},
		{"a pool with bits behind its length", func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.45.0.1/16") }, "no IPv4 prefix"},
		{"a pool too small for a /64", func(s *Settings) { s.APNs[1].Pools6 = prefixes("2001:db8::/65") }, "holds a /64"},
		{"pools beyond counting", func(s *Settings) { s.APNs[1].Pools6 = prefixes("3000::/8") }, "2^48 leases"},
		{"a pool that is twice there", func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.45.0.0/16", "10.45.7.0/24") }, "two ranges"},
		{"a pool of the node's own address alone", func(s *Settings) {
			s.APNs[0].Router4, s.APNs[0].Static4 = netip.MustParseAddr("10.47.0.1"), prefixes("10.47.0.1/32")
		}, "no addresses"},
		{"pools that two have", func(s *Settings) { s.APNs[2].Pools4 = prefixes("10.45.128.0/24") }, "share addresses"},
		{"the same of two networks", func(s *Settings) { s.APNs[2].Pools4, s.APNs[2].VRF = prefixes("10.45.128.0/24"), 1 }, ""},
		{"code points of the class and of packets", func(s *Settings) { s.APNs[0].MarkInner, s.APNs[0].Uniform = true, true }, "code point of their class"},
		{"an interval of advertisements too short", func(s *Settings) { s.APNs[1].AdvertInterval = time.Second }, "interval"},
	}
	for _, tt := range tests {
		s := testSettings()
		tt.change(&s)
		err := s.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if _, made := New(s, start, rand.NewChaCha8([32]byte{})); (made == nil) != (err == nil) {
			t.Errorf("%s: New: %v", tt.name, made)
		}
	}
	if _, err := New(testSettings(), start, bytes.NewReader(nil)); err == nil {
		t.Error("made without randomness")
	}
}

// TestReconfigureRefused: of settings that are refused nothing is taken over.
func TestReconfigureRefused(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"a pool beyond counting": func(s *Settings) { s.APNs[1].Pools6 = prefixes("3000::/8") },
		"the node's own address in a pool": func(s *Settings) {
			s.APNs[2].Router4, s.APNs[2].Static4 = server, []netip.Prefix{netip.PrefixFrom(server, 32)}
		},
		"a name server that is none": func(s *Settings) { s.APNs[2].DNS6 = addrs("ff02::1") },
		"no peers":                   func(s *Settings) { s.Peers = nil },
	} {
		w := newWorld(t, nil)
		s := testSettings()
		s.APNs[0].Pools4 = prefixes("10.99.0.0/16")
		change(&s)
		if err := w.e.Reconfigure(s, w.now, &w.out); err == nil {
			t.Errorf("%s: taken", name)
		}
		if c := w.open(1, "internet", gtp.PDPTypeIPv4); !testSettings().APNs[0].Pools4[0].Contains(c.four()) {
			t.Errorf("%s: a context gets %v", name, c.four())
		}
	}
}

// TestNetworks: access points of two networks may have the same addresses, and packets stay
// in theirs.
func TestNetworks(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.APNs[0].Pools4 = prefixes("10.45.0.1/32")
		s.APNs[2].Pools4, s.APNs[2].VRF = prefixes("10.45.0.1/32"), 1
	})
	a, b := w.open(1, "internet", gtp.PDPTypeIPv4), w.open(2, "dual", gtp.PDPTypeIPv4)
	if a.four() != b.four() {
		t.Fatalf("%v and %v", a.four(), b.four())
	}
	for vrf, c := range []context{a, b} {
		w.up(c, udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 || w.out.Device(0) != vrf {
			t.Errorf("to %v", w.out.VRF)
		}
		w.out.Reset()
		w.e.HandleIP(uint8(vrf), udp4(server, c.four(), 64, 0), w.now, &w.out)
		if h, _ := w.tunnelled(); h.TEID != 0x1001+uint32(vrf) {
			t.Errorf("network %d: to %#x", vrf, h.TEID)
		}
	}
	for want, sel := range map[int]Selection{1: {IMSI: imsi1}, 2: {Address: netip.PrefixFrom(a.four(), 32)}} {
		if n := len(w.refs(sel)); n != want {
			t.Errorf("%d contexts, want %d", n, want)
		}
	}
	w.out.Reset()
	w.e.HandleIP(2, udp4(server, a.four(), 64, 0), w.now, &w.out)
	w.silent(NotIP, 0)
}

func TestSelection(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
	w.from = other
	d := w.open(2, "internet", gtp.PDPTypeIPv4)
	six, zero := uint8(6), uint8(0)
	tests := []struct {
		name string
		sel  Selection
		want int
	}{
		{"all", Selection{}, 3}, {"IMSI", Selection{IMSI: imsi1}, 2}, {"NSAPI", Selection{NSAPI: &six}, 1},
		{"APN", Selection{APN: "INTERNET"}, 1}, {"peer", Selection{Peer: sgsn}, 2}, {"TEID", Selection{TEID: d.TEIDData.Value}, 1},
		{"address", Selection{Address: netip.PrefixFrom(c.four(), 32)}, 2}, {"prefix", Selection{Address: netip.MustParsePrefix("2001:db8:7000::/44")}, 2},
		{"network", Selection{VRF: &zero}, 3}, {"another network", Selection{VRF: &six}, 0},
		{"none", Selection{IMSI: imsi1, APN: "internet"}, 0},
	}
	for _, tt := range tests {
		n, next := 0, uint32(0)
		for more := true; more; more = next != 0 {
			next = w.e.Contexts(tt.sel, next, 1, func(ContextInfo) bool { n++; return true })
		}
		if n != tt.want {
			t.Errorf("%s: %d contexts, want %d", tt.name, n, tt.want)
		}
	}
	n, next := 0, uint32(0)
	for more := true; more; more = next != 0 {
		before := n
		if next = w.e.Contexts(Selection{}, next, 100, func(ContextInfo) bool { n++; return false }); n != before+1 {
			t.Errorf("%d after an end was asked for", n-before)
		}
	}
	if n != 3 {
		t.Errorf("%d contexts, one by one", n)
	}
	contexts := 0
	w.e.Peers(func(p PeerInfo) { contexts += p.Contexts })
	if contexts != 3 {
		t.Errorf("peers have %d contexts", contexts)
	}
}

// TestNames: reasons, ends and kinds of events have names, each its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{"unknown": true}
	for i := range NumReasons {
		if name := Reason(i).String(); seen[name] || name == "" {
			t.Errorf("reason %d: %q", i, name)
		} else {
			seen[name] = true
		}
	}
	for i := range NumEnds {
		if End(i).String() == "" {
			t.Errorf("end %d", i)
		}
	}
	for k := range Drained + 1 {
		if k.String() == "" {
			t.Errorf("event %d", k)
		}
	}
}
