// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Messages of DHCPv6, and what a client wants.
const (
	dhcpSolicit, dhcpRequest = link.MessageSolicit, link.MessageRequest
	dhcpRenew, dhcpRelease   = link.MessageRenew, link.MessageRelease
	knowsExclude             = true
)

// delegatingWorld has /56es for the contexts of inet6.
func delegatingWorld(t testing.TB) *world {
	return newWorld(t, func(s *Settings) { delegate(s) })
}

func delegate(s *Settings) {
	s.APNs[1].DHCP, s.APNs[1].Delegate, s.APNs[1].DelegationTime = true, 56, time.Hour
}

// dhcp sends a message of a terminal's client with one IA_PD, and returns the prefix of the
// answer, and the octets of what is left out of it.
func (w *world) dhcp(c context, kind, client byte, exclude bool) (p netip.Prefix, excluded []byte) {
	w.Helper()
	answer := w.dhcpWith(c, kind, client, exclude)
	for o := answer; len(o) >= 4; o = o[4+binary.BigEndian.Uint16(o[2:]):] {
		if v := o[4 : 4+binary.BigEndian.Uint16(o[2:])]; o[1] == 25 && v[13] == 26 {
			v = v[16:]
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte(v[9:25])), int(v[8]))
			excluded = v[25:]
		}
	}
	return p, excluded
}

// dhcpWith is dhcp with options in the IA_PD, and returns those of the answer.
func (w *world) dhcpWith(c context, kind, client byte, exclude bool, options ...byte) []byte {
	w.Helper()
	return w.askDHCP(c, kind, client, exclude, iaPD(7, options...))
}

// iaPD is the option of an association, with options in it.
func iaPD(iaid byte, options ...byte) []byte {
	return append([]byte{0, 25, 0, byte(12 + len(options)), 0, 0, 0, iaid, 15: 0}, options...)
}

// askDHCP sends a message of a terminal's client, and returns the options of the answer.
func (w *world) askDHCP(c context, kind, client byte, exclude bool, options []byte) []byte {
	w.Helper()
	m := append([]byte{kind, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, client}, options...)
	if kind != dhcpSolicit {
		id := w.e.settings.UUID
		m = append(append(m, 0, 2, 0, 18, 0, 4), id[:]...)
	}
	if exclude {
		m = append(m, 0, 6, 0, 2, 0, 67)
	}
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, 0, c.local(), netip.MustParseAddr("ff02::1:2"))
	b = append(append(b, 546>>8, 546&0xff, 547>>8, 547&0xff, 0, 0, 0, 0), m...)
	packet.FillUDP(packet.IPv6(b))
	w.up(c, b)
	_, ip := w.tunnelled()
	if ip == nil {
		w.Fatalf("no answer to %d: dropped %v", kind, w.dropped())
	}
	return ip[52:]
}

// release has a terminal's client give back a prefix.
func (w *world) release(c context, client byte, p netip.Prefix) {
	w.Helper()
	w.dhcpWith(c, dhcpRelease, client, knowsExclude, iaPrefix(p, netip.Prefix{})...)
}

// iaPrefix is the option of a prefix, with what is left out of it.
func iaPrefix(p, excluded netip.Prefix) []byte {
	raw, out := p.Addr().As16(), link.AppendExcluded(nil, p, excluded)
	b := append([]byte{0, 26, 0, byte(25 + len(out)), 11: 0}, byte(p.Bits()))
	return append(append(b, raw[:]...), out...)
}

// at is an address of a prefix: the last but some of it.
func at(p netip.Prefix) netip.Addr {
	raw := p.Addr().As16()
	for i := p.Bits(); i < 128; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(raw)
}

// passes reports whether packets from an address of the terminal, and for it, are carried.
func (w *world) passes(c context, a netip.Addr) (up, down bool) {
	w.up(c, udp6(a, host6, 64, 0))
	up = len(w.out.IP) == 1
	w.down(udp6(host6, a, 64, 0))
	h, _ := w.tunnelled()
	return up, h.TEID == 0x1001
}

// TestDelegation: a client behind a terminal has the prefix that its link is of, but for that, or
// the other half, for as long as it extends it, and packets of it are the context's alone.
func TestDelegation(t *testing.T) {
	for _, row := range []struct {
		name    string
		exclude bool
		bits    int
	}{{"the link is left out", knowsExclude, 56}, {"the other half", !knowsExclude, 57}} {
		t.Run(row.name, func(t *testing.T) {
			w := delegatingWorld(t)
			c := w.open(1, "inet6", gtp.PDPTypeIPv6)
			d := w.open(2, "inet6", gtp.PDPTypeIPv6)
			own := netip.PrefixFrom(c.six(), 64).Masked()
			p, excluded := w.dhcp(c, dhcpSolicit, 1, row.exclude)
			if p.Bits() != row.bits || p.Contains(own.Addr()) != row.exclude || row.exclude != bytes.Equal(excluded, []byte{0, 67, 0, 2, 64, 0}) {
				t.Fatalf("%v is offered, without %x, beside %v", p, excluded, own)
			}
			lan := at(p)
			if up, down := w.passes(c, lan); up || down {
				t.Errorf("packets pass that were offered alone: %v, %v", up, down)
			}
			before := w.e.stats.Dropped[SpoofedIPv6]
			if got, _ := w.dhcp(c, dhcpRequest, 1, row.exclude); got != p || len(w.out.Events) != 1 || !slices.Equal(w.out.Events[0].Context.Delegated6, []netip.Prefix{p}) {
				t.Fatalf("%v is delegated, events %+v", got, w.out.Events)
			}
			if up, down := w.passes(c, lan); !up || !down {
				t.Errorf("packets pass: %v, %v; dropped %v", up, down, w.dropped())
			}
			w.up(d, udp6(lan, host6, 64, 0))
			w.silent(SpoofedIPv6, before)
			w.up(c, udp6(lan, p.Addr(), 64, 0)) // what nothing behind the terminal has would come for ever
			w.silent(BadDestination, 0)
			w.down(udp6(lan, c.six(), 64, 0)) // from the network
			w.silent(InsideSource, 0)
			if up, down := w.passes(c, c.six()); !up || !down {
				t.Errorf("packets of the link pass: %v, %v", up, down)
			}
			w.tick(50 * time.Minute)
			if got, _ := w.dhcp(c, dhcpRenew, 1, row.exclude); got != p || len(w.out.Events) != 0 {
				t.Errorf("%v is extended, events %+v", got, w.out.Events)
			}
			w.tick(50 * time.Minute)
			if up, down := w.passes(c, lan); !up || !down {
				t.Errorf("packets pass after it was extended: %v, %v", up, down)
			}
			w.tick(10 * time.Minute)
			if up, down := w.passes(c, lan); up || down {
				t.Errorf("packets pass after its time: %v, %v", up, down)
			}
			if got, _ := w.dhcp(c, dhcpRenew, 1, row.exclude); got.IsValid() {
				t.Errorf("%v is extended after its time", got)
			}
			if got, _ := w.dhcp(c, dhcpRequest, 2, row.exclude); got != p {
				t.Errorf("another client gets %v", got)
			}
			if w.release(c, 2, p); len(w.out.Events) != 1 || len(w.out.Events[0].Context.Delegated6) != 0 {
				t.Errorf("released: events %+v", w.out.Events)
			}
			if up, down := w.passes(c, lan); up || down {
				t.Errorf("packets pass after the release: %v, %v", up, down)
			}
			w.dhcp(c, dhcpRequest, 1, row.exclude)
			w.remove(c.TEIDControl.Value, 5, true)
			w.remove(d.TEIDControl.Value, 5, true)
			w.empty()
		})
	}
}

// TestDelegationReleased: a client keeps what it has where it gives back something else, or leaves something new
// out of it (RFC 8415 section 18.3.7, RFC 6603 section 6.2); its own it has no more, whichever half that is.
func TestDelegationReleased(t *testing.T) {
	noBinding := []byte{0, 25, 0, 18, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13, 0, 2, 0, 3}
	for _, exclude := range []bool{knowsExclude, !knowsExclude} {
		w := delegatingWorld(t)
		c := w.open(1, "inet6", gtp.PDPTypeIPv6)
		if got := w.dhcpWith(c, dhcpRelease, 1, exclude); !bytes.Contains(got, noBinding) {
			t.Errorf("before there is any: %x", got)
		}
		p, _ := w.dhcp(c, dhcpRequest, 1, exclude)
		var own netip.Prefix
		if exclude {
			own = netip.PrefixFrom(c.six(), 64).Masked()
		}
		last := netip.PrefixFrom(at(p), 64).Masked()
		for _, row := range []struct {
			name      string
			client    byte
			names     []byte
			noBinding bool
			left      []netip.Prefix
		}{
			{"nothing", 1, nil, false, []netip.Prefix{p}},
			{"another client", 2, iaPrefix(p, own), true, []netip.Prefix{p}},
			{"another prefix", 1, iaPrefix(netip.MustParsePrefix("2001:db8:f000::/56"), netip.Prefix{}), false, []netip.Prefix{p}},
			{"a new exclusion", 1, iaPrefix(p, last), true, []netip.Prefix{p}},
			{"its own", 1, iaPrefix(p, own), false, nil},
			{"its own again", 1, iaPrefix(p, own), true, nil},
		} {
			got := w.dhcpWith(c, dhcpRelease, row.client, exclude, row.names...)
			if bytes.Contains(got, noBinding) != row.noBinding || !slices.Equal(w.only().Delegated6, row.left) {
				t.Errorf("%s of %v: %x, and it has %v", row.name, p, got, w.only().Delegated6)
			}
		}
	}
}

// TestDelegationsApart: no two contexts have a part of one prefix, whoever comes and goes.
func TestDelegationsApart(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		delegate(s)
		s.APNs[1].Pools6 = prefixes("2001:db8:6000::/51") // of 32 leases
	})
	random := rand.New(rand.NewPCG(1, 2))
	open := map[int]context{}
	has := map[int]netip.Prefix{}
	for range 2000 {
		n := random.IntN(40) + 1
		if c, there := open[n]; there && random.IntN(2) == 0 {
			w.remove(c.TEIDControl.Value, 5, true)
			delete(open, n)
			delete(has, n)
			continue
		}
		m := w.createRequest(testIMSI(n), "inet6", gtp.PDPTypeIPv6)
		m.TEIDData, m.TEIDControl = 0x1000+uint32(n), gtp.Some(0x2000+uint32(n))
		c := w.create(m)
		if !c.Cause.Accepted() {
			if len(open) < 32 {
				t.Fatalf("%v with %d contexts", c.Cause, len(open))
			}
			continue
		}
		open[n] = c
		has[n], _ = w.dhcp(c, dhcpRequest, byte(n), random.IntN(2) == 0)
		w.tick(time.Second)
		lease := netip.PrefixFrom(c.six(), 56).Masked()
		for other, p := range has {
			if other != n && p.Overlaps(lease) {
				t.Fatalf("%d has %v, and %d of %v", other, p, n, lease)
			}
		}
	}
	if len(open) < 10 {
		t.Errorf("%d contexts at the end", len(open))
	}
}

// TestDelegationResumed: what a client has outlives the process, and it is extended after it.
func TestDelegationResumed(t *testing.T) {
	w := delegatingWorld(t)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	p, _ := w.dhcp(c, dhcpRequest, 1, knowsExclude)
	state := w.e.AppendState(nil)
	s := w.e.settings
	e, lost, err := resume(t, s, state, w.now, rand.NewChaCha8([32]byte{2}))
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	w.e = e
	if up, down := w.passes(c, at(p)); !up || !down {
		t.Errorf("packets pass: %v, %v; dropped %v", up, down, w.dropped())
	}
	if got, _ := w.dhcp(c, dhcpRenew, 1, knowsExclude); got != p {
		t.Errorf("%v is extended, want %v", got, p)
	}
	for n := range len(state) { // cut short anywhere it does no harm
		if _, _, err := resume(t, s, state[:n], w.now, rand.NewChaCha8([32]byte{2})); err != nil {
			t.Fatal(n, err)
		}
	}
}

// TestDelegationResumedOfSession: it is the session's, and goes on with that when its first context has gone.
func TestDelegationResumedOfSession(t *testing.T) {
	w := delegatingWorld(t)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	p, _ := w.dhcp(c, dhcpRequest, 1, knowsExclude)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	w.remove(c.TEIDControl.Value, 5, false)
	w.open(2, "inet6", gtp.PDPTypeIPv6)
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	if list := w.list(); len(list) != 2 || !slices.Equal(list[0].Delegated6, []netip.Prefix{p}) || len(list[1].Delegated6) != 0 {
		t.Errorf("%v was delegated, then %+v", p, list)
	}
}

// TestDelegationLengths: settings by which a part of what somebody has could be given to others
// are refused, and nothing is changed by then.
func TestDelegationLengths(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "inet6", gtp.PDPTypeIPv6)
	s := testSettings()
	delegate(&s)
	s.APNs[1].MTU = 1300
	if err := w.e.Reconfigure(s, w.now, &w.out); err == nil || w.e.apns[1].MTU == 1300 {
		t.Errorf("another length: %v", err)
	}
	s = testSettings()
	taken := s.APNs[1].Pools6
	s.APNs[1].Pools6 = prefixes("2001:db8:8000::/44")
	s.APNs = append(s.APNs, s.APNs[1])
	s.APNs[3].Name, s.APNs[3].Pools6, s.APNs[3].Delegate, s.APNs[3].DHCP, s.APNs[3].DelegationTime = "routers", taken, 56, true, time.Hour
	if err := w.e.Reconfigure(s, w.now, &w.out); err == nil {
		t.Error("a pool that is used became one of another length")
	}
	if _, lost, err := resume(t, s, w.e.AppendState(nil), w.now, rand.NewChaCha8([32]byte{2})); err != nil || lost != 1 {
		t.Errorf("after a restart: %d lost, %v", lost, err)
	}
}

// TestDelegationFlood: a client that asks for a prefix and gives it back all the time does not have accounts
// told of each change, which they write to a disk and send to a server; it has its prefix again when it has
// calmed down, and no other terminal is any worse for it.
func TestDelegationFlood(t *testing.T) {
	w := delegatingWorld(t)
	c, d := w.open(1, "inet6", gtp.PDPTypeIPv6), w.open(2, "inet6", gtp.PDPTypeIPv6)
	told := 0
	for i := range 300 { // in a minute, as often as the link has answers
		p, _ := w.dhcp(c, dhcpRequest, byte(i), knowsExclude)
		told += len(w.out.Events)
		if p.IsValid() {
			w.release(c, byte(i), p)
			told += len(w.out.Events)
		}
		w.tick(200 * time.Millisecond)
	}
	if told > 2*(delegationBurst+7) || w.e.stats.DelegationsRefused == 0 {
		t.Errorf("told of %d changes, %d refused", told, w.e.stats.DelegationsRefused)
	}
	if p, _ := w.dhcp(d, dhcpRequest, 1, knowsExclude); !p.IsValid() {
		t.Error("another terminal gets no prefix")
	}
	w.tick(time.Minute)
	if p, _ := w.dhcp(c, dhcpRequest, 1, knowsExclude); !p.IsValid() {
		t.Error("it gets no prefix later")
	}
}
