// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

const renumberTime = 3 * time.Hour

var newPool = prefixes("2001:db8:6100::/56")

// renumbering are settings whose second access point has another pool, within a time.
func renumbering(change func(*APN)) Settings {
	s := testSettings()
	a := &s.APNs[1]
	a.Pools6, a.Renumber, a.Account = newPool, renumberTime, true
	if change != nil {
		change(a)
	}
	return s
}

// word is what an advertisement says of a prefix: its lifetimes in seconds.
type word struct{ valid, preferred uint32 }

// words are what the advertisements that have come out say.
func (w *world) words() map[netip.Prefix]word {
	w.Helper()
	said := map[netip.Prefix]word{}
	for _, d := range ofType(w.out.UDP, gtp.TypeGPDU) {
		h, _ := gtp.Decapsulate(d.Payload)
		p, _, ok := packet.ParseIPv6(h.Payload)
		if m, right := p.ICMPv6(); ok && right && m[0] == packet.ICMPv6RouterAdvert && p.Src() == link.RouterAddress {
			said[prefixAt(binary.BigEndian.Uint64(p[72:]))] = word{binary.BigEndian.Uint32(p[60:]), binary.BigEndian.Uint32(p[64:])}
		}
	}
	return said
}

// solicit has a terminal ask for advertisements.
func (w *world) solicit(c context) {
	w.up(c, packet.AppendICMPv6(nil, c.local(), netip.MustParseAddr("ff02::2"), 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
}

func (w *world) only() ContextInfo {
	w.Helper()
	all := w.list()
	if len(all) != 1 {
		w.Fatalf("%d contexts", len(all))
	}
	return all[0]
}

// TestRenumber: a context whose pool is taken away gets a prefix of another one, which is advertised, and the
// former deprecated; packets of both pass until the time of the former is over, also after a restart, and it
// is told of both. The former is nobody's meanwhile, and rests behind.
func TestRenumber(t *testing.T) {
	for _, n := range []int{1, 4} {
		several := func(a *APN) { a.LinkPrefixes = n }
		w := newWorld(t, func(s *Settings) { several(&s.APNs[1]); s.APNs[1].Account = true })
		c := w.open(1, "inet6", gtp.PDPTypeIPv6)
		was := w.only().Prefix6
		s := renumbering(several)
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		for end := w.now.Add(advertSpread); w.e.stats.Renumbered == 0 && w.now.Before(end); {
			w.now = w.e.Next()
			w.out.Reset()
			w.e.Tick(w.now, &w.out)
		}
		is := w.only()
		if !newPool[0].Contains(is.Prefix6.Addr()) || is.Former6 != was || w.e.stats.Renumbered != 1 {
			t.Fatalf("it has %v and had %v, now %v", is.Prefix6, was, is.Former6)
		}
		if told := w.told(ContextUpdated); len(told) != 1 || told[0].Context.Former6 != was || told[0].Context.Account == nil {
			t.Errorf("told %+v", told)
		}
		w.tick(time.Minute)
		w.solicit(c)
		said := w.words()
		for p, what := range said {
			former := was.Contains(p.Addr())
			if left := uint32((renumberTime - w.now.Sub(start)) / time.Second); former && (what.preferred != 0 || what.valid < left || what.valid > left+uint32(advertSpread/time.Second)) || !former && what != (word{packet.Infinite, packet.Infinite}) {
				t.Errorf("of %v it is said %+v", p, what)
			}
		}
		if len(said) != 2*n {
			t.Errorf("advertised are %v", said)
		}
		check := func(when string, formerPasses bool) {
			t.Helper()
			for p := range said {
				want := formerPasses || !was.Contains(p.Addr())
				if up, down := w.passes(c, at(p)); up != want || down != want {
					t.Errorf("%s, packets of %v pass: %v, %v; dropped %v", when, p, up, down, w.dropped())
				}
			}
		}
		check("at first", true)
		if list := w.e.Leaving(); len(list) != 1 {
			t.Errorf("leaving are %v", list)
		}
		if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
			t.Fatalf("%d lost", lost)
		}
		check("after a restart", true)
		if again := w.only(); again.Former6 != was || again.Prefix6 != is.Prefix6 {
			t.Errorf("after a restart it has %v and %v", again.Prefix6, again.Former6)
		}
		for until := start.Add(renumberTime + advertSpread); w.now.Before(until); {
			w.tick(time.Minute)
		}
		check("at the end", false)
		if end := w.only(); end.Former6.IsValid() || end.Prefix6 != is.Prefix6 || len(w.e.Leaving()) != 0 {
			t.Errorf("at the end it has %v and %v, leaving are %v", end.Prefix6, end.Former6, w.e.Leaving())
		}
		if w.remove(c.TEIDControl.Value, 5, true); len(w.e.formers) != 0 {
			t.Error("a former prefix is left")
		}
		w.empty()
	}
}

// TestRenumberEnd: with a context its former prefix ends, too.
func TestRenumberEnd(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	if err := w.e.Reconfigure(renumbering(nil), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	if w.tick(advertSpread); len(w.e.formers) != 1 {
		t.Fatal("it is not renumbered")
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
	if list := w.e.Leaving(); len(list) != 0 {
		t.Errorf("leaving are %v", list)
	}
}

// TestRenumberMany: contexts are renumbered one after the other, each with another prefix, as far as there are
// any; the rest keep theirs and get one when there is.
func TestRenumberMany(t *testing.T) {
	w := newWorld(t, nil)
	const n = 200
	for i := range n {
		m := w.createRequest(testIMSI(i), "inet6", gtp.PDPTypeIPv6)
		m.TEIDData = uint32(i + 1)
		w.create(m)
	}
	for range 20 { // the advertisements after the beginning are over
		w.tick(time.Minute)
	}
	small := renumbering(func(a *APN) { a.Pools6 = prefixes("2001:db8:6100::/58") }) // 64 of them
	if err := w.e.Reconfigure(small, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.tick(advertSpread / 20)
	if at := w.e.stats.Renumbered; at == 0 || at > 30 {
		t.Errorf("%d of %d at once", at, n)
	}
	for range 6 {
		w.tick(time.Minute)
	}
	if w.e.stats.Renumbered != 64 || w.e.stats.RenumberWaits == 0 {
		t.Errorf("%d were renumbered, %d times there was none", w.e.stats.Renumbered, w.e.stats.RenumberWaits)
	}
	if err := w.e.Reconfigure(renumbering(nil), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		w.tick(time.Minute)
	}
	seen := map[netip.Prefix]bool{}
	for _, x := range w.list() {
		if seen[x.Prefix6] || seen[x.Former6] || !newPool[0].Contains(x.Prefix6.Addr()) || !x.Former6.IsValid() {
			t.Fatalf("%v and %v", x.Prefix6, x.Former6)
		}
		seen[x.Prefix6], seen[x.Former6] = true, true
	}
	if len(seen) != 2*n {
		t.Errorf("%d prefixes of %d contexts", len(seen), n)
	}
}

// TestRenumberTwice: while a former prefix lasts, another pool that is taken away waits for its end.
func TestRenumberTwice(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "inet6", gtp.PDPTypeIPv6)
	first := w.only().Prefix6
	third := prefixes("2001:db8:6200::/56")
	for _, pool := range [][]netip.Prefix{newPool, third} {
		if err := w.e.Reconfigure(renumbering(func(a *APN) { a.Pools6 = pool }), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			w.tick(time.Minute)
		}
		if x := w.only(); !newPool[0].Contains(x.Prefix6.Addr()) || x.Former6 != first {
			t.Errorf("it has %v and %v", x.Prefix6, x.Former6)
		}
	}
	second := w.only().Prefix6
	for range 200 {
		w.tick(time.Minute)
	}
	if x := w.only(); !third[0].Contains(x.Prefix6.Addr()) || x.Former6 != second {
		t.Errorf("it has %v and %v", x.Prefix6, x.Former6)
	}
}

// TestRenumberNot: who asked for a prefix keeps it, and so do all where it is not switched on, or where no pool
// is left; settings that cannot be are refused.
func TestRenumberNot(t *testing.T) {
	for name, change := range map[string]func(*APN){
		"switched off": func(a *APN) { a.Renumber = 0 },
		"no pool":      func(a *APN) { a.Pools6, a.Pools4, a.Types = nil, prefixes("10.99.0.0/24"), TypeIPv4 },
	} {
		w := newWorld(t, nil)
		w.open(1, "inet6", gtp.PDPTypeIPv6)
		was := w.only().Prefix6
		if err := w.e.Reconfigure(renumbering(change), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		if w.tick(time.Hour); w.only().Prefix6 != was {
			t.Errorf("%s: it has %v now", name, w.only().Prefix6)
		}
	}
	w := newWorld(t, func(s *Settings) { s.APNs[1].Static6 = prefixes("2001:db8:7200::/56") })
	m := w.createRequest(testIMSI(1), "inet6", gtp.PDPTypeIPv6)
	m.EndUserAddress.Value.IPv6 = netip.MustParseAddr("2001:db8:7200:8::1")
	w.create(m)
	if err := w.e.Reconfigure(renumbering(nil), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	if w.tick(time.Hour); !slices.Contains(prefixes("2001:db8:7200:8::/64"), w.only().Prefix6) {
		t.Errorf("a static one became %v", w.only().Prefix6)
	}
	for name, change := range map[string]func(*APN){
		"too soon":  func(a *APN) { a.Renumber = MinRenumber - 1 },
		"delegates": func(a *APN) { a.Delegate, a.DHCP, a.DelegationTime = 60, true, time.Hour },
	} {
		if s := renumbering(change); s.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
