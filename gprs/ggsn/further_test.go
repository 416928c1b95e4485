// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// grantOfPrefixes has the first for the answer and the others beside it.
func grantOfPrefixes(list ...string) Grant {
	all := prefixes(list...)
	return Grant{Prefix6: all[0], Further6: all[1:]}
}

// leased6 are the prefixes of the third access point that are used.
func (w *world) leased6() (all []netip.Prefix) {
	for _, l := range []*leases{&w.e.apns[2].six, &w.e.apns[2].fixed6} {
		for one := range l.pool.Leases() {
			if one.Freed.IsZero() {
				all = append(all, one.Prefix)
			}
		}
	}
	return all
}

// TestFurther: a terminal has all prefixes that it was granted, of pools and static ones, each advertised by
// itself; packets of all of them are the context's, and of no other one, accounts tell of all, and it is found by
// each, also after a restart.
func TestFurther(t *testing.T) {
	settings := func(s *Settings) { s.APNs[2].Authorize, s.APNs[2].Account = true, true }
	w := newWorld(t, settings)
	list := []string{"2001:db8:7000:77::/64", "2001:db8:7100:5::/64", "2001:db8:7000:99::/64"}
	want := prefixes(list...)
	c := w.enters(1, gtp.PDPTypeIPv6, grantOfPrefixes(list...))
	if began := w.told(ContextCreated)[0].Context; began.Prefix6 != want[0] || !slices.Equal(began.Further6, want[1:]) {
		t.Errorf("told of %v and %v", began.Prefix6, began.Further6)
	}
	if got := w.advertised(); !slices.Equal(got, want) {
		t.Errorf("unasked: %v, want %v", got, want)
	}
	d := w.enters(2, gtp.PDPTypeIPv6, Grant{})
	w.tick(time.Minute)
	if w.solicit(c); !slices.Equal(w.advertised(), want) {
		t.Errorf("asked for: %v, want %v", w.advertised(), want)
	}
	check := func(when string) {
		t.Helper()
		for _, p := range want {
			if up, down := w.passes(c, at(p)); !up || !down {
				t.Errorf("%s, packets of %v pass: %v, %v; dropped %v", when, p, up, down, w.dropped())
			}
			before := w.e.stats.Dropped[SpoofedIPv6]
			w.up(d, udp6(at(p), host6, 64, 0))
			w.silent(SpoofedIPv6, before)
			var found []ContextInfo
			w.e.Contexts(Selection{Address: netip.PrefixFrom(at(p), 128)}, 0, 10, func(x ContextInfo) bool { found = append(found, x); return true })
			if len(found) != 1 || found[0].IMSI != testIMSI(1) {
				t.Errorf("%s, by %v there are %d contexts", when, p, len(found))
			}
		}
	}
	check("at first")
	s := testSettings()
	settings(&s)
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	check("after a restart")
	for _, one := range []context{c, d} {
		w.remove(one.TEIDControl.Value, 5, true)
	}
	if used := w.leased6(); len(used) > 0 {
		t.Errorf("%v are used", used)
	}
	w.empty()
}

// TestFurtherRefused gives all prefixes that were granted, or none of them and no context; what it takes of them
// is free again.
func TestFurtherRefused(t *testing.T) {
	many := []string{"2001:db8:7100:10::/64"}
	for n := range uint64(maxLinkPrefixes) {
		many = append(many, prefixAt(0x20010db871000020+n).String())
	}
	for _, one := range []struct {
		what  string
		list  []string
		cause gtp.Cause
	}{
		{"of no pool", []string{"2001:db8:7000:1::/64", "2001:db8:7000:2::/64", "2001:db8:9000::/64"}, gtp.CauseUnknownPDPType},
		{"another's", []string{"2001:db8:7000:1::/64", "2001:db8:7100:3::/64", "2001:db8:7100:4::/64"}, gtp.CauseUnknownPDPType},
		{"another's first", []string{"2001:db8:7000:1::/64", "2001:db8:7000:50::/64"}, gtp.CauseUnknownPDPType},
		{"too many", many, gtp.CauseUnknownPDPType},
		{"as many as there may be", many[:maxLinkPrefixes], gtp.CauseAccepted},
		{"one named twice", []string{"2001:db8:7000:1::/64", "2001:db8:7000:1::/64", "2001:db8:7000:2::/64", "2001:db8:7000:2::/64"}, gtp.CauseAccepted},
	} {
		w := newAuthorized(t, nil)
		w.enters(1, gtp.PDPTypeIPv6, grantOfPrefixes("2001:db8:7000:50::/64", "2001:db8:7100:4::/64"))
		before := w.leased6()
		_, a := w.asks(w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv6))
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, grantOfPrefixes(one.list...)), &r); r.Cause != one.cause {
			t.Errorf("%s: %v, want %v", one.what, r.Cause, one.cause)
		}
		if r.Cause.Accepted() {
			w.remove(r.TEIDControl.Value, 5, true)
		}
		if after := w.leased6(); !slices.Equal(after, before) || len(w.e.vrfs[0].by6) != 2 || len(w.e.further) != 1 {
			t.Errorf("%s: %v are used after %v, %d found, %d have further ones", one.what, after, before, len(w.e.vrfs[0].by6), len(w.e.further))
		}
	}
	w := newAuthorized(t, nil)
	if w.enters(1, gtp.PDPTypeIPv4, grantOfPrefixes("2001:db8:7000:1::/64", "2001:db8:7000:2::/64")); len(w.leased6()) != 0 {
		t.Errorf("a context of IPv4 has %v", w.leased6())
	}
}

// TestFurtherAgain has a terminal that comes again go on with what it was granted before, in another order, with
// more and with less.
func TestFurtherAgain(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.APNs[2].Hold = time.Hour })
	const a, b, c, d = "2001:db8:7000:1::/64", "2001:db8:7000:2::/64", "2001:db8:7100:3::/64", "2001:db8:7100:4::/64"
	for _, list := range [][]string{{a, b, c}, {a, b, c}, {b, a, c}, {c, d, a}, {d, b}, {b}, {a, b, c, d}} {
		x := w.enters(1, gtp.PDPTypeIPv6, grantOfPrefixes(list...))
		want := prefixes(list...)
		for _, p := range prefixes(a, b, c, d) {
			if up, down := w.passes(x, at(p)); up != slices.Contains(want, p) || down != up {
				t.Errorf("granted %v, packets of %v pass: %v, %v", list, p, up, down)
			}
		}
		used := w.leased6()
		slices.SortFunc(want, netip.Prefix.Compare)
		slices.SortFunc(used, netip.Prefix.Compare)
		if !slices.Equal(used, want) {
			t.Errorf("granted %v, used %v", list, used)
		}
		// One that is refused leaves all as it was.
		_, ask := w.asks(w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv6))
		var r gtp.CreateResponse
		w.answer(w.authorize(ask.Ticket, grantOfPrefixes(d, c, b, a, "2001:db8:9000::/64")), &r)
		if left := w.leased6(); r.Cause.Accepted() || len(left) != len(want) {
			t.Errorf("granted %v, after a refusal (%v) %v are used", list, r.Cause, left)
		}
	}
	w.remove(w.only().TEIDControl, 5, true)
	if used := w.leased6(); len(used) > 0 {
		t.Errorf("%v are used", used)
	}
	w.empty()
}

// TestFurtherGone: what a reload takes away is given to no one again, not to who has it and comes anew either: he is
// refused, and what he has stays his alone until that ends, also when the pool comes back.
func TestFurtherGone(t *testing.T) {
	const static, dynamic, other = "2001:db8:7100:5::/64", "2001:db8:7000:5::/64", "2001:db8:7200:5::/64"
	for _, list := range [][]string{{static}, {dynamic}, {other, static}, {other, dynamic}} {
		w := newAuthorized(t, func(s *Settings) { s.APNs[2].Static6 = prefixes("2001:db8:7100::/56", "2001:db8:7200::/56") })
		enter := func(n int) gtp.Cause {
			_, a := w.asks(w.createRequest(testIMSI(n), "dual", gtp.PDPTypeIPv6))
			var r gtp.CreateResponse
			w.answer(w.authorize(a.Ticket, grantOfPrefixes(list...)), &r)
			return r.Cause
		}
		c := w.enters(1, gtp.PDPTypeIPv6, grantOfPrefixes(list...))
		before, with := w.leased6(), w.e.settings
		without := with
		without.APNs = slices.Clone(with.APNs)
		without.APNs[2].Pools6, without.APNs[2].Static6 = prefixes("2001:db8:7300::/56"), prefixes("2001:db8:7200::/56")
		w.takes(without)
		if cause := enter(1); cause != gtp.CauseUnknownPDPType {
			t.Errorf("%v: anew without the pool: %v", list, cause)
		}
		w.takes(with)
		if cause := enter(2); cause != gtp.CauseUnknownPDPType {
			t.Errorf("%v: another, with the pool: %v", list, cause)
		}
		if used := w.leased6(); !slices.Equal(used, before) {
			t.Errorf("%v: %v are used, before %v", list, used, before)
		}
		w.remove(c.TEIDControl.Value, 5, true)
		w.empty()
	}
}

// TestFurtherReleased gives a terminal that comes after its SGSN has restarted what it had before.
func TestFurtherReleased(t *testing.T) {
	w := newAuthorized(t, nil)
	grant := grantOfPrefixes("2001:db8:7000:1::/64", "2001:db8:7100:3::/64")
	for n := range uint8(2) {
		m := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv6)
		m.NSAPI, m.TEIDData, m.Recovery = 5+n, 0x1001+uint32(n), gtp.Some(n)
		_, a := w.asks(m)
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, grant), &r); !r.Cause.Accepted() {
			t.Fatalf("by NSAPI %d: %v", 5+n, r.Cause)
		}
	}
}

// TestFurtherControl lets a terminal speak to its router from each of its prefixes.
func TestFurtherControl(t *testing.T) {
	w := newAuthorized(t, nil)
	c := w.enters(1, gtp.PDPTypeIPv6, grantOfPrefixes("2001:db8:7000:1::/64", "2001:db8:7100:3::/64"))
	for _, p := range prefixes("2001:db8:7000:1::/64", "2001:db8:7100:3::/64") {
		w.tick(time.Minute)
		w.up(c, packet.AppendICMPv6(nil, at(p), netip.MustParseAddr("ff02::2"), 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
		if got := w.advertised(); len(got) != 2 {
			t.Errorf("from %v: %v; dropped %v", p, got, w.dropped())
		}
	}
}
