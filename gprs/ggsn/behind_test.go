// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// routedWorld lets terminals in with routes of some prefixes behind them.
func routedWorld(t testing.TB) *world { return newWorld(t, routedSettings) }

func routedSettings(s *Settings) {
	a := &s.APNs[2]
	a.Authorize, a.DHCP, a.DelegationTime = true, true, time.Hour
	a.Routed = prefixes("172.20.0.0/16", "2001:db8:9000::/40")
}

func routes(list ...string) (all []Route) {
	for _, p := range prefixes(list...) {
		all = append(all, Route{Prefix: p})
	}
	return all
}

// enters opens a context with what it is granted.
func (w *world) enters(n int, kind gtp.PDPType, g Grant) (c context) {
	w.Helper()
	m := w.createRequest(testIMSI(n), "dual", kind)
	m.TEIDData, m.TEIDControl = 0x1000+uint32(n), gtp.Some(0x2000+uint32(n))
	_, a := w.asks(m)
	if w.answer(w.authorize(a.Ticket, g), &c.CreateResponse); !c.Cause.Accepted() {
		w.Fatalf("refused: %v", c.Cause)
	}
	return c
}

// takes applies settings.
func (w *world) takes(s Settings) {
	w.Helper()
	w.out.Reset()
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		w.Fatal(err)
	}
}

// leads reports whether packets from an address behind a terminal, and for it, are carried.
func (w *world) leads(c context, a netip.Addr) (up, down bool) {
	if a.Is6() {
		return w.passes(c, a)
	}
	w.up(c, udp4(a, server, 64, 0))
	up = len(w.out.IP) == 1
	w.down(udp4(server, a, 64, 0))
	h, _ := w.tunnelled()
	return up, h.TEID == 0x1001
}

// TestRoutes leads packets to what is behind a terminal, and takes them from there, until its context
// ends; nobody else may send from there.
func TestRoutes(t *testing.T) {
	w := routedWorld(t)
	c := w.enters(1, gtp.PDPTypeIPv4v6, Grant{Routes: routes("172.20.1.0/24", "172.20.7.0/30", "2001:db8:9000:100::/56")})
	if got := w.out.Events[0].Context.Routes; !slices.Equal(got, prefixes("172.20.1.0/24", "172.20.7.0/30", "2001:db8:9000:100::/56")) {
		t.Errorf("told of %v", got)
	}
	d := w.enters(2, gtp.PDPTypeIPv4v6, Grant{})
	for _, row := range []struct {
		a    string
		want bool
	}{
		{"172.20.1.9", true}, {"172.20.2.9", false}, {"172.20.7.3", true}, {"172.20.7.4", false}, {c.four().String(), true},
		{"2001:db8:9000:1ff::9", true}, {"2001:db8:9000:200::9", false},
	} {
		a := netip.MustParseAddr(row.a)
		if up, down := w.leads(c, a); up != row.want || down != row.want {
			t.Errorf("%v passes: %v, %v; dropped %v", a, up, down, w.dropped())
		}
		if up, _ := w.leads(d, a); up {
			t.Errorf("%v passes from another terminal", a)
		}
	}
	w.up(c, udp4(c.four(), netip.MustParseAddr("172.20.1.9"), 64, 0)) // would go round
	w.silent(BadDestination, 0)
	w.down(udp4(netip.MustParseAddr("172.20.1.9"), c.four(), 64, 0))
	w.silent(InsideSource, 0)
	w.up(d, udp4(d.four(), netip.MustParseAddr("172.20.1.9"), 64, 0)) // from one terminal to what is behind another
	if w.e.stats.Dropped[UserDenied] != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
	if n := w.list(); len(n) != 2 || len(n[0].Routes) != 3 {
		t.Errorf("%+v", n)
	}
	w.out.Reset()
	w.e.Delete(Selection{Address: netip.MustParsePrefix("172.20.1.0/25")}, w.now, &w.out)
	w.tick(time.Minute)
	if n := w.list(); len(n) != 1 {
		t.Errorf("%d contexts after one was deleted by its route", len(n))
	}
	w.remove(d.TEIDControl.Value, 5, true)
	w.empty()
}

// TestRoutesRefused: what a terminal cannot have is counted by name, and nothing is given twice.
func TestRoutesRefused(t *testing.T) {
	many := []Route{}
	for i := range maxRoutesEach + 1 {
		many = append(many, routes(fmt.Sprintf("172.20.%d.0/24", 100+i))...)
	}
	var delegated []Route
	for i := range link.MaxAssociations + 1 {
		delegated = append(delegated, Route{netip.MustParsePrefix(fmt.Sprintf("2001:db8:9000:%x00::/56", 1+i)), true})
	}
	for _, row := range []struct {
		name string
		kind gtp.PDPType
		g    Grant
		why  RouteFault
		has  int
	}{
		{"not of the access point", gtp.PDPTypeIPv4, Grant{Routes: routes("172.21.0.0/24")}, RouteOutside, 0},
		{"more than the access point has", gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.0.0/15")}, RouteOutside, 0},
		{"another's", gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.1.0/24")}, RouteTaken, 0},
		{"a part of another's", gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.1.64/26")}, RouteTaken, 0},
		{"more than another's", gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.0.0/20")}, RouteTaken, 0},
		{"twice its own", gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.9.0/24", "172.20.9.0/24")}, RouteTaken, 1},
		{"of IPv6 without IPv6", gtp.PDPTypeIPv4, Grant{Routes: routes("2001:db8:9000:100::/56")}, RouteFamily, 0},
		{"of IPv4 without IPv4", gtp.PDPTypeIPv6, Grant{Routes: routes("172.20.9.0/24")}, RouteFamily, 0},
		{"too long", gtp.PDPTypeIPv6, Grant{Routes: routes("2001:db8:9000:100::/65")}, RouteLong, 0},
		{"too many", gtp.PDPTypeIPv4, Grant{Routes: many}, RouteMany, maxRoutesEach},
		{"unreadable", gtp.PDPTypeIPv4, Grant{MalformedRoutes: 1}, RouteMalformed, 0},
		{"more for delegation than a message asks for", gtp.PDPTypeIPv6, Grant{Routes: delegated}, RouteMany, link.MaxAssociations},
		{"two for delegation that overlap", gtp.PDPTypeIPv6, Grant{Routes: []Route{{netip.MustParsePrefix("2001:db8:9000:100::/56"), true}, {netip.MustParsePrefix("2001:db8:9000:180::/57"), true}}}, RouteTaken, 1},
		{"a pool's for delegation", gtp.PDPTypeIPv6, Grant{Routes: []Route{{netip.MustParsePrefix("2001:db8:7000:100::/56"), true}}}, RouteOutside, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := routedWorld(t)
			w.enters(1, gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.1.0/24")})
			w.enters(2, row.kind, row.g)
			want := [NumRouteFaults]uint64{}
			want[row.why] = 1
			if w.e.stats.RoutesRefused != want {
				t.Errorf("refused %v, want one %v", w.e.stats.RoutesRefused, row.why)
			}
			if n := w.e.vrfs[0].behind.Size(); n != 1+row.has {
				t.Errorf("there are %d routes", n)
			}
		})
	}
}

// TestDelegatedAlone: DHCPv6 delegates what was granted to the session for that, to it alone, also
// over a restart, and accounts are told.
func TestDelegatedAlone(t *testing.T) {
	w := routedWorld(t)
	mine := netip.MustParsePrefix("2001:db8:9000:4200::/56")
	g := Grant{Routes: []Route{{mine, true}}}
	c := w.enters(1, gtp.PDPTypeIPv6, g)
	if up, down := w.passes(c, at(mine)); up || down {
		t.Errorf("packets pass before it is delegated: %v, %v", up, down)
	}
	for _, kind := range []byte{dhcpSolicit, dhcpRequest, dhcpRenew} {
		p, excluded := w.dhcp(c, kind, 1, knowsExclude)
		if p != mine || len(excluded) != 0 {
			t.Fatalf("step %d: %v without %x", kind, p, excluded)
		}
		if told := len(w.out.Events) == 1 && slices.Equal(w.out.Events[0].Context.Delegated6, []netip.Prefix{mine}); told != (kind == dhcpRequest) {
			t.Errorf("step %d: events %+v", kind, w.out.Events)
		}
	}
	s := testSettings()
	routedSettings(&s)
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	if up, down := w.passes(c, at(mine)); !up || !down {
		t.Errorf("packets pass after a restart: %v, %v; dropped %v", up, down, w.dropped())
	}
	d := w.enters(2, gtp.PDPTypeIPv6, g)
	if w.e.stats.RoutesRefused[RouteTaken] != 1 {
		t.Errorf("refused %v", w.e.stats.RoutesRefused)
	}
	if p, _ := w.dhcp(d, dhcpSolicit, 2, knowsExclude); p.IsValid() {
		t.Errorf("another is offered %v", p)
	}
	w.tick(time.Hour)
	if up, down := w.passes(c, at(mine)); up || down {
		t.Errorf("packets pass when it is over: %v, %v", up, down)
	}
	if p, _ := w.dhcp(c, dhcpRequest, 1, knowsExclude); p != mine {
		t.Errorf("afterwards it gets %v", p)
	}
}

// delegates asks for several associations of a terminal's client in one message, and returns what each is given.
func (w *world) delegates(c context, kind, client byte, iaids ...byte) map[byte]netip.Prefix {
	w.Helper()
	var options []byte
	for _, iaid := range iaids {
		options = append(options, iaPD(iaid)...)
	}
	given := map[byte]netip.Prefix{}
	for o := w.askDHCP(c, kind, client, knowsExclude, options); len(o) >= 4; o = o[4+binary.BigEndian.Uint16(o[2:]):] {
		if v := o[4 : 4+binary.BigEndian.Uint16(o[2:])]; o[1] == link.OptionIAPD && v[13] == link.OptionPrefix {
			given[v[3]] = netip.PrefixFrom(netip.AddrFrom16([16]byte(v[25:41])), int(v[24]))
		}
	}
	return given
}

// TestDelegatedSeveral: each association of a terminal's clients has one of the prefixes that the terminal was granted,
// as many as there are, and keeps it, whichever others the same client asks for; accounts are told once for a message.
func TestDelegatedSeveral(t *testing.T) {
	w := routedWorld(t)
	mine := prefixes("2001:db8:9000:4200::/56", "2001:db8:9000:4300::/60", "2001:db8:9000:4400::/56")
	var g Grant
	for _, p := range mine {
		g.Routes = append(g.Routes, Route{p, true})
	}
	c := w.enters(1, gtp.PDPTypeIPv6, g)
	all := map[byte]netip.Prefix{7: mine[0], 8: mine[1], 9: mine[2]}
	wants := func(what string, got, want map[byte]netip.Prefix, told int, now ...netip.Prefix) {
		t.Helper()
		if !maps.Equal(got, want) || len(w.out.Events) != told || !slices.Equal(w.only().Delegated6, now) {
			t.Errorf("%s: given %v, want %v; told %d times, %v are delegated", what, got, want, len(w.out.Events), w.only().Delegated6)
		}
		for _, p := range mine {
			want := slices.Contains(now, p)
			if up, down := w.passes(c, at(p)); up != want || down != want {
				t.Errorf("%s: packets of %v pass: %v, %v", what, p, up, down)
			}
		}
	}
	wants("offered", w.delegates(c, dhcpSolicit, 1, 7, 8, 9, 10), all, 0)
	wants("one named twice", w.delegates(c, dhcpSolicit, 1, 7, 7), map[byte]netip.Prefix{7: mine[0]}, 0)
	wants("two requested", w.delegates(c, dhcpRequest, 1, 7, 9), map[byte]netip.Prefix{7: mine[0], 9: mine[1]}, 1, mine[0], mine[1])
	wants("a third before them", w.delegates(c, dhcpRequest, 1, 8, 7, 9), map[byte]netip.Prefix{8: mine[2], 7: mine[0], 9: mine[1]}, 1, mine...)
	wants("a fourth before them", w.delegates(c, dhcpRequest, 1, 10, 9, 8, 7), map[byte]netip.Prefix{8: mine[2], 7: mine[0], 9: mine[1]}, 0, mine...)
	if w.e.Sizes().Delegated != 1 {
		t.Errorf("%d contexts have some", w.e.Sizes().Delegated)
	}
	s := testSettings()
	routedSettings(&s)
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	w.tick(10 * time.Minute)
	wants("two extended after a restart", w.delegates(c, dhcpRenew, 1, 7, 8), map[byte]netip.Prefix{7: mine[0], 8: mine[2]}, 0, mine...)
	wants("another client", w.delegates(c, dhcpRequest, 2, 7), map[byte]netip.Prefix{7: mine[1]}, 0, mine...)
	wants("who had it before", w.delegates(c, dhcpRenew, 1, 7, 8, 9), map[byte]netip.Prefix{7: mine[0], 8: mine[2]}, 0, mine...)
	w.askDHCP(c, dhcpRelease, 1, knowsExclude, slices.Concat(iaPD(7, iaPrefix(mine[0], netip.Prefix{})...), iaPD(8, iaPrefix(mine[0], netip.Prefix{})...)))
	wants("one released, and one that is another's", nil, nil, 1, mine[1], mine[2])
	later := func(d time.Duration) {
		w.tick(d)
		w.out.Reset()
		w.e.Tick(w.now, &w.out)
	}
	later(time.Hour - time.Second)
	wants("shortly before the end", nil, nil, 0, mine[1], mine[2])
	later(time.Second)
	wants("at the end", nil, nil, 0)
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
}

// TestDelegatedNotOfLink: prefixes of a link are not delegated, where others may be.
func TestDelegatedNotOfLink(t *testing.T) {
	w := newWorld(t, func(s *Settings) { routedSettings(s); s.APNs[2].LinkPrefixes = 4 })
	c := w.enters(1, gtp.PDPTypeIPv6, Grant{})
	for _, exclude := range []bool{knowsExclude, !knowsExclude} {
		if p, _ := w.dhcp(c, dhcpRequest, 1, exclude); p.IsValid() {
			t.Errorf("%v is delegated beside %v", p, w.only().Further6)
		}
	}
}

// TestRoutesOfTheSame: a terminal that comes anew has its routes again.
func TestRoutesOfTheSame(t *testing.T) {
	w := routedWorld(t)
	for range 2 {
		w.enters(1, gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.1.0/24")})
	}
	if n := w.e.stats.RoutesRefused; n != [NumRouteFaults]uint64{} || w.e.vrfs[0].behind.Size() != 1 {
		t.Errorf("refused %v", n)
	}
}

// TestRoutesStay: a route stays with its session when a reload, or a restart, takes its prefix away,
// which no pool gets meanwhile, and no other session.
func TestRoutesStay(t *testing.T) {
	w := routedWorld(t)
	c := w.enters(1, gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.1.0/24")})
	next := testSettings()
	routedSettings(&next)
	next.APNs[2].Routed = nil
	a := netip.MustParseAddr("172.20.1.9")
	for _, how := range []string{"reload", "restart"} {
		if how == "reload" {
			w.takes(next)
		} else if lost := w.succeed(next, w.e.AppendState(nil)); lost != 0 {
			t.Fatalf("%d lost", lost)
		}
		if up, down := w.leads(c, a); !up || !down {
			t.Errorf("%s: packets pass: %v, %v; dropped %v", how, up, down, w.dropped())
		}
		if left := w.e.Leaving(); len(left) != 1 || left[0].Prefix != netip.MustParsePrefix("172.20.0.0/16") {
			t.Errorf("%s: leaving are %v", how, left)
		}
		w.enters(2, gtp.PDPTypeIPv4, Grant{Routes: routes("172.20.2.0/24")})
		if w.e.stats.RoutesRefused[RouteOutside] != 1 {
			t.Errorf("%s: refused %v", how, w.e.stats.RoutesRefused)
		}
	}
	pool := next
	pool.APNs = slices.Clone(next.APNs)
	pool.APNs[0].Pools4 = prefixes("172.20.0.0/20")
	w.out.Reset()
	if err := w.e.Reconfigure(pool, w.now, &w.out); err == nil {
		t.Error("a pool was made of what is behind a terminal")
	}
	w.remove(c.TEIDControl.Value, 5, true)
	if left := w.e.Leaving(); len(left) != 0 {
		t.Errorf("leaving are %v", left)
	}
	w.takes(pool)
	w.enters(3, gtp.PDPTypeIPv4, Grant{})
	pool.APNs[0].Pools4, pool.APNs[2].Pools4, pool.APNs[2].Routed = prefixes("10.45.0.0/16"), prefixes("172.21.0.0/24"), prefixes("10.46.0.0/16")
	if err := w.e.Reconfigure(pool, w.now, &w.out); err == nil {
		t.Error("there may be routes to what contexts have addresses of")
	}
}

// TestDelegatedPool: the pool that is named for delegated prefixes is that of the whole lease where there are such
// prefixes, and cannot be another than the link's; elsewhere it says nothing. Accounts name the pools, also after a
// restart.
func TestDelegatedPool(t *testing.T) {
	gold := netip.MustParsePrefix("2001:db8:6008::/46")
	w := newAuthorized(t, func(s *Settings) {
		a := &s.APNs[1]
		a.Delegate, a.DHCP, a.DelegationTime = 56, true, time.Hour
		a.Named = []pool.Part{{Name: "gold", Prefix: gold}}
		a.Account, s.APNs[2].Account = true, true
	})
	for n, one := range []struct {
		apn                      string
		named, namedDelegated    string
		cause                    gtp.Cause
		account, accountDelegate string
	}{
		{"inet6", "", "gold", gtp.CauseAccepted, "gold", "gold"},
		{"inet6", "gold", "gold", gtp.CauseAccepted, "gold", "gold"},
		{"inet6", "gold", "", gtp.CauseAccepted, "gold", ""},
		{"inet6", "gold", "silver", gtp.CauseUnknownPDPType, "", ""},
		{"inet6", "", "silver", gtp.CauseUnknownPDPType, "", ""},
		{"dual", "", "silver", gtp.CauseAccepted, "", ""},
	} {
		unknown := w.e.stats.PoolsUnknown
		m := w.createRequest(testIMSI(n), one.apn, gtp.PDPTypeIPv6)
		m.TEIDData = 0x1000 + uint32(n)
		_, a := w.asks(m)
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, Grant{Pool6: one.named, PoolDelegated: one.namedDelegated}), &r); r.Cause != one.cause {
			t.Errorf("%+v: %v", one, r.Cause)
		}
		if !r.Cause.Accepted() {
			if w.e.stats.PoolsUnknown != unknown+1 {
				t.Errorf("%+v: %d are counted", one, w.e.stats.PoolsUnknown-unknown)
			}
			continue
		}
		if in := gold.Contains(r.EndUserAddress.Value.IPv6); in != (one.account != "") {
			t.Errorf("%+v: %v", one, r.EndUserAddress.Value.IPv6)
		}
		if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
			t.Fatal(lost)
		}
		w.e.Contexts(Selection{IMSI: testIMSI(n)}, 0, 10, func(x ContextInfo) bool {
			if of := x.Account; of.Pool6 != one.account || of.PoolDelegated != one.accountDelegate {
				t.Errorf("%+v: its account has %q and %q", one, of.Pool6, of.PoolDelegated)
			}
			return true
		})
	}
}

// TestNamedPools gives addresses of a part of the pools to whom it is named for, and to nobody else; a name
// that there is not refuses the context, and gives nothing.
func TestNamedPools(t *testing.T) {
	gold4, gold6 := netip.MustParsePrefix("10.46.8.0/30"), netip.MustParsePrefix("2001:db8:7008::/62")
	w := newWorld(t, func(s *Settings) {
		routedSettings(s)
		a := &s.APNs[2]
		a.Pools4, a.Pools6 = prefixes("10.46.8.0/29"), prefixes("2001:db8:7008::/61")
		a.Named = []pool.Part{{Name: "gold", Prefix: gold4}, {Name: "gold", Prefix: gold6}}
	})
	g := Grant{Pool4: "gold", Pool6: "gold"}
	refused := func(n int, g Grant, want gtp.Cause) {
		t.Helper()
		_, a := w.asks(w.createRequest(testIMSI(n), "dual", gtp.PDPTypeIPv4v6))
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, g), &r); r.Cause != want {
			t.Errorf("terminal %d: %v, want %v", n, r.Cause, want)
		}
	}
	for n := range 3 { // the network's own address is none
		c := w.enters(1+n, gtp.PDPTypeIPv4v6, g)
		if !gold4.Contains(c.four()) || !gold6.Contains(c.six()) {
			t.Errorf("terminal %d: %v and %v", n, c.four(), c.six())
		}
	}
	refused(4, g, gtp.CauseAddressesOccupied)
	if c := w.enters(2, gtp.PDPTypeIPv4v6, g); !gold4.Contains(c.four()) { // in its own place
		t.Errorf("it comes anew: %v", c.four())
	}
	for n := range 3 {
		if c := w.enters(10+n, gtp.PDPTypeIPv4v6, Grant{}); gold4.Contains(c.four()) || gold6.Contains(c.six()) {
			t.Errorf("nobody named it for terminal %d: %v and %v", n, c.four(), c.six())
		}
	}
	refused(20, Grant{}, gtp.CauseAddressesOccupied)
	before := w.e.Sizes().Pools
	refused(21, Grant{Pool4: "silver"}, gtp.CauseUnknownPDPType)
	if w.e.stats.PoolsUnknown != 1 || !slices.Equal(before, w.e.Sizes().Pools) {
		t.Errorf("%d unknown, pools %+v", w.e.stats.PoolsUnknown, w.e.Sizes().Pools)
	}
}
