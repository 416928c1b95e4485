// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
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

// onLinkOf are the prefixes that the link of a context has, the former ones behind.
func onLinkOf(x *ContextInfo) []netip.Prefix {
	return slices.Concat([]netip.Prefix{x.Prefix6}, x.Further6, x.Former6)
}

// TestRenumber: a context whose pool is taken away gets a prefix of another one, which is advertised, and the
// former deprecated; packets of both pass until the time of the former is over, also after a restart, and it
// is told of both.
func TestRenumber(t *testing.T) {
	for _, n := range []int{1, 4} {
		several := func(a *APN) { a.LinkPrefixes = n }
		w := newWorld(t, func(s *Settings) { several(&s.APNs[1]); s.APNs[1].Account = true })
		c := w.open(1, "inet6", gtp.PDPTypeIPv6)
		before := w.only()
		had := onLinkOf(&before)
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
		if !newPool[0].Contains(is.Prefix6.Addr()) || !slices.Equal(is.Former6, had) || w.e.stats.Renumbered != 1 || w.e.Sizes().Former != n {
			t.Fatalf("it has %v and had %v, now %v", is.Prefix6, had, is.Former6)
		}
		if told := w.told(ContextUpdated); len(told) != 1 || !slices.Equal(told[0].Context.Former6, had) || told[0].Context.Account == nil {
			t.Errorf("told %+v", told)
		}
		w.tick(time.Minute)
		w.solicit(c)
		said := w.words()
		for p, what := range said {
			former := slices.Contains(had, p)
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
				want := formerPasses || !slices.Contains(had, p)
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
		if again := w.only(); !slices.Equal(onLinkOf(&again), onLinkOf(&is)) {
			t.Errorf("after a restart it has %v", onLinkOf(&again))
		}
		for until := start.Add(renumberTime + advertSpread); w.now.Before(until); {
			w.tick(time.Minute)
		}
		check("at the end", false)
		if end := w.only(); len(end.Former6) > 0 || end.Prefix6 != is.Prefix6 || len(w.e.Leaving()) != 0 {
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
		if len(x.Former6) != 1 || seen[x.Prefix6] || seen[x.Former6[0]] || !newPool[0].Contains(x.Prefix6.Addr()) {
			t.Fatalf("%v and %v", x.Prefix6, x.Former6)
		}
		seen[x.Prefix6], seen[x.Former6[0]] = true, true
	}
	if len(seen) != 2*n {
		t.Errorf("%d prefixes of %d contexts", len(seen), n)
	}
}

// TestRenumberAgain: pools that are taken away one after the other leave a former prefix each, which is advertised and
// carried for until its own time is over.
func TestRenumberAgain(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	has := []netip.Prefix{w.only().Prefix6}
	const apart = 20 * time.Minute
	for i := range 3 {
		pool := otherPool(i)
		w.takes(renumbering(func(a *APN) { a.Pools6 = []netip.Prefix{pool} }))
		w.tick(apart)
		x := w.only()
		if !pool.Contains(x.Prefix6.Addr()) || !slices.Equal(x.Former6, has) {
			t.Fatalf("it has %v, and had %v, of %v", x.Prefix6, x.Former6, has)
		}
		has = append(has, x.Prefix6)
		w.solicit(c)
		said, end := w.words(), len(has)-1
		for at, p := range has {
			if what := said[p]; (at < end) != (what.preferred == 0) || at > 0 && what.valid <= said[has[at-1]].valid {
				t.Errorf("of %v it is said %+v, number %d of %v", p, what, at, has)
			}
		}
		if len(said) != len(has) {
			t.Errorf("said is %v", said)
		}
	}
	for i := range 3 {
		for _, late := range []time.Duration{0, advertSpread} {
			w.tick(start.Add(renumberTime + time.Duration(i)*apart + late).Sub(w.now))
			left := has[i:3]
			if late > 0 {
				left = left[1:]
			}
			if x := w.only(); !slices.Equal(x.Former6, left) {
				t.Errorf("%v after its %d. prefix was to be another it had %v, want %v", w.now.Sub(start), i+1, x.Former6, left)
			}
			for _, p := range has {
				want := p == has[3] || slices.Contains(left, p)
				if up, down := w.passes(c, at(p)); up != want || down != want {
					t.Errorf("%v after the beginning packets of %v pass: %v, %v", w.now.Sub(start), p, up, down)
				}
			}
		}
	}
}

// otherPool is one of many, of which no two overlap.
func otherPool(i int) netip.Prefix {
	return netip.PrefixFrom(addr6(0x20010db8_61000000+uint64(i)<<16, 0), 56)
}

// TestRenumberBound: a link has so many former prefixes and no more; another pool that is taken away waits for the end
// of one, by itself.
func TestRenumberBound(t *testing.T) {
	for _, n := range []int{1, 8, maxLinkPrefixes} {
		several := func(a *APN) { a.LinkPrefixes, a.Renumber = n, 24*time.Hour }
		w := newWorld(t, func(s *Settings) { several(&s.APNs[1]) })
		w.open(1, "inet6", gtp.PDPTypeIPv6)
		most := maxFormer / n
		for i := range most + 1 {
			w.takes(renumbering(func(a *APN) { several(a); a.Pools6 = []netip.Prefix{otherPool(i)} }))
			w.tick(2 * advertSpread)
			if x := w.only(); otherPool(i).Contains(x.Prefix6.Addr()) != (i < most) || len(x.Former6) != min(i+1, most)*n || w.e.Sizes().Former != len(x.Former6) {
				t.Errorf("of %d prefixes, after %d pools: it has %v and had %v", n, i+1, x.Prefix6, x.Former6)
			}
		}
		if w.e.stats.Renumbered != uint64(most) || w.e.stats.RenumberWaits != 0 {
			t.Errorf("of %d prefixes: %d were renumbered, %d times there was none", n, w.e.stats.Renumbered, w.e.stats.RenumberWaits)
		}
		w.tick(24 * time.Hour)
		if x := w.only(); !otherPool(most).Contains(x.Prefix6.Addr()) || len(x.Former6) != n {
			t.Errorf("of %d prefixes, later: it has %v and had %v", n, x.Prefix6, x.Former6)
		}
	}
}

// TestRenumberPart: of a link with more retired prefixes than there may be former ones, as many become others as may, and
// the rest when those end.
func TestRenumberPart(t *testing.T) {
	w := newAuthorized(t, nil)
	var list []netip.Prefix
	for n := range uint64(12) {
		list = append(list, prefixAt(0x20010db8_70000000+n))
	}
	w.enters(1, gtp.PDPTypeIPv6, Grant{Prefix6: list[0], Further6: list[1:]})
	s := w.e.settings
	wants := func(pool netip.Prefix, of, former int) {
		t.Helper()
		x, n := w.only(), 0
		for _, p := range append(x.Further6, x.Prefix6) {
			if pool.Contains(p.Addr()) {
				n++
			}
		}
		if n != of || len(x.Former6) != former {
			t.Errorf("it has %v and %v, and had %v", x.Prefix6, x.Further6, x.Former6)
		}
	}
	for i, of := range []int{12, maxFormer - 12} {
		s.APNs = slices.Clone(s.APNs)
		s.APNs[2].Pools6, s.APNs[2].Renumber = []netip.Prefix{otherPool(i)}, renumberTime
		w.takes(s)
		w.tick(2 * advertSpread)
		wants(otherPool(i), of, 12+i*of)
	}
	w.tick(renumberTime)
	wants(otherPool(1), 12, 2*12-maxFormer)
}

// TestRenumberFurther: each prefix of a link becomes another when its pool is taken away, the first and those that were
// granted beside it, at once and told once; static ones stay, and those whose pool is there.
func TestRenumberFurther(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) {
		s.APNs[2].Account, s.APNs[2].Pools6 = true, prefixes("2001:db8:7000::/48", "2001:db8:7008::/48")
	})
	had := prefixes("2001:db8:7000:1::/64", "2001:db8:7100:5::/64", "2001:db8:7000:9::/64", "2001:db8:7008:3::/64")
	c := w.enters(1, gtp.PDPTypeIPv6, Grant{Prefix6: had[0], Further6: had[1:]})
	s := w.e.settings
	s.APNs = slices.Clone(s.APNs)
	s.APNs[2].Pools6, s.APNs[2].Renumber = prefixes("2001:db8:7008::/48", "2001:db8:7300::/48"), renumberTime
	w.takes(s)
	for end := w.now.Add(advertSpread); w.e.stats.Renumbered == 0 && w.now.Before(end); {
		w.now = w.e.Next()
		w.out.Reset()
		w.e.Tick(w.now, &w.out)
	}
	former := []netip.Prefix{had[0], had[2]}
	is := w.only()
	if !slices.Equal(is.Former6, former) || len(is.Further6) != 3 || is.Further6[0] != had[1] || is.Further6[2] != had[3] || slices.Contains(had, is.Prefix6) || slices.Contains(had, is.Further6[1]) || w.e.stats.Renumbered != 2 {
		t.Fatalf("it has %v and %v, and had %v", is.Prefix6, is.Further6, is.Former6)
	}
	if told := w.told(ContextUpdated); len(told) != 1 || !slices.Equal(onLinkOf(&told[0].Context), onLinkOf(&is)) {
		t.Errorf("told %+v", told)
	}
	if got := w.advertised(); !slices.Equal(got, onLinkOf(&is)) {
		t.Errorf("advertised are %v", got)
	}
	check := func(when string, formerPasses bool) {
		t.Helper()
		w.solicit(c)
		said := w.words()
		for _, p := range onLinkOf(&is) {
			of := slices.Contains(former, p)
			if what, there := said[p]; there != (!of || formerPasses) || there && of != (what.preferred == 0) {
				t.Errorf("%s, of %v it is said %+v", when, p, what)
			}
			want := !of || formerPasses
			if up, down := w.passes(c, at(p)); up != want || down != want {
				t.Errorf("%s, packets of %v pass: %v, %v; dropped %v", when, p, up, down, w.dropped())
			}
		}
	}
	w.tick(time.Minute)
	check("at first", true)
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	if again := w.only(); !slices.Equal(onLinkOf(&again), onLinkOf(&is)) {
		t.Errorf("after a restart it has %v", onLinkOf(&again))
	}
	check("after a restart", true)
	w.tick(renumberTime)
	check("at the end", false)
	if left := w.e.Leaving(); len(left) != 0 {
		t.Errorf("leaving are %v", left)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
}

// TestFormerKept: a former prefix is no one else's until it is over, whoever may have it by then: its own pool comes
// back, or goes elsewhere, also after a restart.
func TestFormerKept(t *testing.T) {
	for _, row := range []struct {
		name   string
		apn    string
		static bool
		give   func(*Settings, []netip.Prefix)
	}{
		{"its pool comes back", "inet6", false, func(s *Settings, p []netip.Prefix) { s.APNs[1].Pools6, s.APNs[1].Renumber = p, 0 }},
		{"its pool goes to another access point", "dual", false, func(s *Settings, p []netip.Prefix) { s.APNs[2].Pools6 = p }},
		{"it becomes static", "inet6", true, func(s *Settings, p []netip.Prefix) { s.APNs[1].Static6 = p }},
		{"it becomes static elsewhere", "dual", true, func(s *Settings, p []netip.Prefix) { s.APNs[2].Static6 = p }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.open(1, "inet6", gtp.PDPTypeIPv6)
			was := w.only().Prefix6
			s := renumbering(nil)
			w.takes(s)
			if w.tick(advertSpread); !slices.Equal(w.only().Former6, []netip.Prefix{was}) {
				t.Fatal("it is not renumbered")
			}
			row.give(&s, []netip.Prefix{was})
			w.takes(s)
			gets := func(when string, want bool) {
				t.Helper()
				m := w.createRequest(testIMSI(2), row.apn, gtp.PDPTypeIPv6)
				if m.TEIDData = 0x1002; row.static {
					m.EndUserAddress.Value.IPv6 = at(was)
				}
				r := w.create(m)
				if got := r.Cause.Accepted() && was.Contains(r.EndUserAddress.Value.IPv6); got != want || r.Cause.Accepted() != want {
					t.Errorf("%s, another gets it: %v, %v", when, got, r.Cause)
				}
			}
			gets("meanwhile", false)
			if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
				t.Fatalf("%d lost", lost)
			}
			gets("after a restart", false)
			w.tick(renumberTime - advertSpread - time.Second)
			gets("just before its end", false)
			w.tick(advertSpread + time.Second)
			gets("afterwards", true)
		})
	}
}

// TestFormerGranted: a terminal that comes again has what a server names for it, also if these are its former prefixes,
// whose pool has come back.
func TestFormerGranted(t *testing.T) {
	w := newAuthorized(t, nil)
	with := w.e.settings
	without := with
	without.APNs = slices.Clone(with.APNs)
	without.APNs[2].Pools6, without.APNs[2].Renumber = prefixes("2001:db8:7300::/56"), renumberTime
	list := prefixes("2001:db8:7000:1::/64", "2001:db8:7000:2::/64")
	w.enters(1, gtp.PDPTypeIPv6, Grant{Prefix6: list[0], Further6: list[1:]})
	w.takes(without)
	if w.tick(advertSpread); !slices.Equal(w.only().Former6, list) {
		t.Fatalf("it had %v", w.only().Former6)
	}
	w.takes(with)
	slices.Reverse(list)
	c := w.enters(1, gtp.PDPTypeIPv6, Grant{Prefix6: list[0], Further6: list[1:]})
	if x := w.only(); !slices.Equal(onLinkOf(&x), list) || len(w.leased6()) != 2 {
		t.Errorf("it has %v, used are %v", onLinkOf(&x), w.leased6())
	}
	for _, p := range list {
		if up, down := w.passes(c, at(p)); !up || !down {
			t.Errorf("packets of %v pass: %v, %v", p, up, down)
		}
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
}

// TestRenumberApart: whatever pools come and go, and engines, no two contexts have one prefix, or had; each leads to its
// context, and lasts as long as it was told to.
func TestRenumberApart(t *testing.T) {
	w := newAuthorized(t, nil)
	random, pools := rand.New(rand.NewPCG(3, 4)), prefixes("2001:db8:7000::/59", "2001:db8:7300::/59", "2001:db8:7400::/59", "2001:db8:7500::/59")
	settings := w.e.settings
	type had struct {
		charging uint32
		prefix   netip.Prefix
	}
	began := map[had]time.Time{}
	renumbered, ended, most := uint64(0), 0, 0
	for range 3000 {
		switch random.IntN(12) {
		case 0:
			named := slices.Clone(pools)
			random.Shuffle(len(named), func(i, j int) { named[i], named[j] = named[j], named[i] })
			settings.APNs = slices.Clone(settings.APNs)
			settings.APNs[2].Pools6, settings.APNs[2].Renumber = named[:1+random.IntN(3)], renumberTime
			w.takes(settings)
		case 1:
			renumbered += w.e.stats.Renumbered
			if lost := w.succeed(settings, w.e.AppendState(nil)); lost != 0 {
				t.Fatalf("%d lost", lost)
			}
		case 2:
			w.out.Reset()
			w.e.Delete(Selection{IMSI: testIMSI(1 + random.IntN(12))}, w.now, &w.out)
			for _, d := range ofType(w.out.UDP, gtp.TypeDeleteRequest) {
				w.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			}
		case 3, 4, 5:
			var g Grant
			for range random.IntN(4) {
				p := prefixAt(prefix6(pools[random.IntN(len(pools))].Addr()) + uint64(random.IntN(32)))
				if g.Prefix6.IsValid() {
					g.Further6 = append(g.Further6, p)
				} else {
					g.Prefix6 = p
				}
			}
			_, a := w.asks(w.createRequest(testIMSI(1+random.IntN(12)), "dual", gtp.PDPTypeIPv6))
			w.authorize(a.Ticket, g)
		}
		w.tick(time.Duration(random.IntN(10)) * time.Minute)
		now := map[had]bool{}
		holders := map[netip.Prefix]uint32{}
		for _, x := range w.list() {
			most = max(most, len(x.Former6))
			for _, p := range onLinkOf(&x) {
				if other, taken := holders[p]; taken {
					t.Fatalf("%d and %d have %v", other, x.ChargingID, p)
				}
				if holders[p] = x.ChargingID; w.e.find6(w.e.vrfs[0], prefix6(p.Addr())) != w.e.contexts.at(handle(x.Record)).session {
					t.Fatalf("%v leads elsewhere", p)
				}
			}
			for _, p := range x.Former6 {
				key := had{x.ChargingID, p}
				if now[key] = true; began[key].IsZero() {
					began[key] = w.now
				}
			}
			for key, at := range began {
				if key.charging != x.ChargingID || now[key] {
					continue
				}
				if lasted := w.now.Sub(at); lasted < renumberTime-10*time.Minute {
					t.Fatalf("%v ended after %v", key.prefix, lasted)
				}
				ended++
				delete(began, key)
			}
		}
	}
	if renumbered += w.e.stats.Renumbered; renumbered < 300 || ended < 100 || most < 3 {
		t.Errorf("%d were renumbered, %d have ended, and no context had more than %d", renumbered, ended, most)
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
