// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// beside is two worlds in which the same happens: the one has no program, in the other it carries what it can.
type beside struct {
	testing.TB
	by           *rand.Rand
	alone, mixed *world
	contexts     [4]playedContext
	records      [2]map[uint32][]string // by Charging-ID
	did          [3]int                 // by handling
}

type playedContext struct {
	imsi  int
	nsapi uint8
	apn   string
	kind  gtp.PDPType
	context
}

// settings draws settings.
func (p *beside) settings() Settings {
	s := chargedSettings(Charging{Volume: []uint64{0, 1, 5000, 20000}[p.by.IntN(4)], Changes: 1 + p.by.IntN(5), Tariffs: []time.Duration{13 * time.Hour}})
	for i := range s.APNs {
		a, chance := &s.APNs[i], func(n int) bool { return p.by.IntN(n) == 0 }
		a.MaxUp, a.MaxDown = uint32(p.by.IntN(3))*90, uint32(p.by.IntN(3))*90
		a.AMBRUp, a.AMBRDown = uint32(p.by.IntN(3))*100, uint32(p.by.IntN(3))*100
		a.MTU = 1300 + p.by.IntN(3)*50
		a.Marks, a.ClearECN, a.AnyOuterSource = DefaultMarks, chance(2), chance(2)
		a.SequenceNumbers, a.MarkInner, a.Apart = chance(10), chance(10), chance(10)
		a.IdleLimit, a.Interim = 2*time.Minute, 30*time.Second
	}
	s.APNs[1].Renumber, s.APNs[1].Pools6 = MinRenumber, prefixes([]string{"2001:db8:6000::/56", "2001:db8:6100::/56"}[p.by.IntN(2)])
	return s
}

// both has the same happen in both, and compares what comes of it.
func (p *beside) both(f func(w *world)) {
	p.Helper()
	for _, w := range []*world{p.alone, p.mixed} {
		w.out.Reset()
		f(w)
	}
	a, b := &p.alone.out, &p.mixed.out
	same := func(d, e packet.Datagram) bool { return reflect.DeepEqual(d, e) }
	if !slices.EqualFunc(a.UDP, b.UDP, same) || !slices.EqualFunc(a.IP, b.IP, slices.Equal) {
		p.Errorf("datagrams %x and packets %x, want %x and %x", b.UDP, b.IP, a.UDP, a.IP)
	}
	if !reflect.DeepEqual(a.Events, b.Events) && len(a.Events)+len(b.Events) > 0 {
		p.Errorf("events\n%+v, want\n%+v", b.Events, a.Events)
	}
	p.enter()
}

// enter notes the records of the last call.
func (p *beside) enter() {
	for i, w := range []*world{p.alone, p.mixed} {
		for _, r := range w.out.Records {
			id := r.Context.ChargingID
			p.records[i][id] = append(p.records[i][id], untimed(&r))
		}
	}
}

// untimed is what a record says but for when it was closed: the engine learns with the next packet that programs have
// filled it.
func untimed(r *Record) string {
	text := fmt.Sprint(r.Number, r.Cause, r.Conditions, r.Context.Up, r.Context.Down, r.Context.OverUp, r.Context.OverDown, r.Ended, r.End, r.Last, r.SGSNs)
	for _, one := range r.Containers {
		text += fmt.Sprint(" ", one.Conditions, one.Up, one.Down, one.Why.Names())
	}
	return text
}

// opened makes the context at a place if there is none.
func (p *beside) opened(i int) *playedContext {
	p.Helper()
	x := &p.contexts[i]
	if x.TEIDData.Present && p.alone.e.byTEID[x.TEIDData.Value] != 0 {
		return x
	}
	class := gtp.ClassBackground
	if p.by.IntN(4) == 0 {
		class = gtp.ClassConversational
	}
	p.both(func(w *world) {
		w.from = sgsn
		m := w.createRequest(testIMSI(x.imsi), x.apn, x.kind)
		m.NSAPI, m.TEIDData, m.TEIDControl, m.QoS = x.nsapi, 0x1000+uint32(i), gtp.Some(0x2000+uint32(i)), profile(class, 900, 900)
		if x.context = w.create(m); !x.Cause.Accepted() {
			p.Fatal(x.Cause)
		}
	})
	return x
}

// at is the node of a context's user plane, and the prefix that it has now.
func (p *beside) at(x *playedContext) (node netip.Addr, own netip.Addr) {
	u := p.alone.e.contexts.at(p.alone.e.byTEID[x.TEIDData.Value])
	s := p.alone.e.sessions.at(u.session)
	own = x.six()
	if p.by.IntN(4) > 0 {
		own = addr6(s.prefix, 0x55)
	}
	return p.alone.e.peers.at(u.user).addr, own
}

// packet sends one, in the one world by a program if that takes it.
func (p *beside) packet(x *playedContext, up bool) {
	p.Helper()
	node, six := p.at(x)
	n := p.by.IntN(1200)
	four := x.has(gtp.PDPTypeIPv4) && (!x.has(gtp.PDPTypeIPv6) || p.by.IntN(2) == 0)
	ip := udp6(host6, six, 64, n)
	switch {
	case four && up:
		ip = udp4(x.four(), server, 64, n)
	case four:
		ip = udp4(server, x.four(), 64, n)
	case up:
		ip = udp6(six, host6, 64, n)
	}
	if p.by.IntN(20) == 0 {
		node = other
	}
	if p.by.IntN(5) > 0 && p.mixed.e.shared != nil && p.byProgram(x, up, node, ip) {
		return
	}
	p.did[punted]++
	p.both(func(w *world) { w.send(x, up, node, slices.Clone(ip)) })
}

func (x *playedContext) has(kind gtp.PDPType) bool {
	return x.kind == kind || x.kind == gtp.PDPTypeIPv4v6
}

func (w *world) send(x *playedContext, up bool, node netip.Addr, ip []byte) {
	if w.from = node; up {
		w.up(x.context, ip)
	} else {
		w.down(ip)
	}
}

// byProgram has a program take a packet, and the engine alone as well, which must do the same; false: it takes none.
func (p *beside) byProgram(x *playedContext, up bool, node netip.Addr, ip []byte) bool {
	p.Helper()
	by := &program{p.mixed.e.shared, p.mixed.e.Epoch()}
	var did handling
	var v view
	if up {
		did, v = by.up(x.TEIDData.Value, node, ip, p.mixed.now)
	} else {
		did, v = by.down(ip, p.mixed.now)
	}
	if did == punted {
		return false
	}
	p.did[did]++
	over := p.alone.e.stats.Dropped[OverRate]
	p.mixed.out.Reset()
	p.alone.send(x, up, node, slices.Clone(ip))
	p.enter()
	switch out := &p.alone.out; {
	case did == policed && p.alone.e.stats.Dropped[OverRate] != over+1:
		p.Errorf("a packet was dropped above the rate, and %d pass without the program", len(out.UDP)+len(out.IP))
	case did == policed:
	case len(out.UDP)+len(out.IP) != 1:
		p.Errorf("a packet was carried that is dropped without the program: %v", p.alone.dropped())
	case !up:
		d := out.UDP[0]
		h, err := gtp.Decapsulate(d.Payload)
		if err != nil || wire32(h.TEID) != v.nodeTEID || d.To.Addr() != addr4(wire32(v.node)) || h.HasSequence || uint32(d.Class) != v.class {
			p.Errorf("a G-PDU is for %v with class %d: %+v, and the record has %+v", d.To, d.Class, h, v)
		}
	}
	return true
}

// passes lets time pass.
func (p *beside) passes(d time.Duration) {
	p.Helper()
	until := p.alone.now.Add(d)
	for {
		next := p.alone.e.Next()
		if other := p.mixed.e.Next(); !other.Equal(next) {
			p.Fatalf("the next deadline is %v, want %v", other, next)
		}
		if next.IsZero() || next.After(until) {
			break
		}
		p.both(func(w *world) {
			if next.After(w.now) {
				w.now = next
			}
			w.e.Tick(w.now, &w.out)
		})
	}
	p.alone.now, p.mixed.now = until, until
}

// compare wants the same of all contexts, to the octet.
func (p *beside) compare() {
	p.Helper()
	if a, b := p.alone.list(), p.mixed.list(); !reflect.DeepEqual(a, b) {
		p.Errorf("contexts\n%+v, want\n%+v", b, a)
	}
}

// restart has other engines take over.
func (p *beside) restart() {
	s := p.settings()
	p.both(func(w *world) { w.e.Settle(w.now, &w.out) })
	p.both(func(w *world) {
		s.RestartCounter = w.e.RestartCounter()
		if lost := w.succeed(s, w.e.AppendState(nil)); lost > 0 {
			p.Fatalf("%d contexts are lost", lost)
		}
	})
	p.alone.e.shareBy(nil)
}

// step has one thing happen.
func (p *beside) step() {
	p.Helper()
	x := p.opened(p.by.IntN(len(p.contexts)))
	header := gtp.Header{TEID: x.TEIDControl.Value}
	from := p.alone.e.peers.at(p.alone.e.sessions.at(p.alone.e.contexts.at(p.alone.e.byTEID[x.TEIDData.Value]).session).peer).addr
	p.alone.from, p.mixed.from = from, from
	node := addrs("198.51.100.1", "198.51.100.2", "2001:db8:51::1")[p.by.IntN(3)]
	teid, class, wait := p.by.Uint32(), []gtp.TrafficClass{gtp.ClassBackground, gtp.ClassConversational}[p.by.IntN(2)], time.Duration(p.by.IntN(100))*time.Second
	switch p.by.IntN(40) {
	default:
		up, gap := p.by.IntN(2) == 0, time.Duration(p.by.IntN(20))*time.Millisecond
		for range 1 + p.by.IntN(20) {
			p.packet(x, up)
			p.passes(gap)
			if p.alone.e.byTEID[x.TEIDData.Value] == 0 {
				break
			}
		}
	case 0, 1:
		p.both(func(w *world) {
			w.from = node
			m := w.updateRequest(teid)
			m.NSAPI, m.QoS = x.nsapi, gtp.Some(profile(class, 900, 900))
			w.ask(pathControl, header, m, &gtp.UpdateResponse{})
		})
	case 2:
		p.both(func(w *world) {
			m := w.secondaryRequest(7, template(gtp.TFTCreate, portFilter(1, 10, 5000)))
			m.LinkedNSAPI = gtp.Some(x.nsapi)
			w.createSecondary(x.TEIDControl.Value, m)
		})
	case 3, 4:
		p.both(func(w *world) { w.remove(x.TEIDControl.Value, 7, false) })
	case 5, 6:
		p.passes(wait)
	case 7:
		refs := p.alone.refs(Selection{})
		p.both(func(w *world) { w.e.CloseRecords(refs, w.now, &w.out) })
	case 8, 9:
		s := p.settings()
		p.both(func(w *world) {
			if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
				p.Fatal(err)
			}
		})
	case 10:
		p.restart()
	case 11:
		p.mixed.e.shareBy(nil)
	case 12, 13:
		p.mixed.e.shareBy(newShared(p.TB))
	case 14:
		p.both(func(w *world) { w.remove(x.TEIDControl.Value, x.nsapi, true) })
	case 15:
		p.both(func(w *world) {
			w.ask(pathControl, header, infoChange(gtp.RATUTRAN, uint16(teid%3)), &gtp.InfoChangeResponse{})
		})
	case 16, 17:
		p.compare()
	}
}

// TestSharedAccounts has packets go by program and engine in any mix, while contexts move, change, end, are idle, get
// other rates and limits, are shared or not, and engines take over: all that is told of them, listed, and in their
// charging records is what it is without a program, to the packet, and so is what is dropped above rates.
func TestSharedAccounts(t *testing.T) {
	var did [3]int // by handling
	seeds := uint64(10)
	if testing.Short() || testutil.UnderRace {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := &beside{TB: t, by: rand.New(rand.NewPCG(seed, 2)), records: [2]map[uint32][]string{{}, {}}}
			s := p.settings()
			p.alone, p.mixed = newWorld(t, func(to *Settings) { *to = s }), newWorld(t, func(to *Settings) { *to = s })
			p.alone.e.shareBy(nil)
			p.contexts = [4]playedContext{
				{imsi: 1, nsapi: 5, apn: "dual", kind: gtp.PDPTypeIPv4v6}, {imsi: 1, nsapi: 6, apn: "dual", kind: gtp.PDPTypeIPv4v6},
				{imsi: 2, nsapi: 5, apn: "internet", kind: gtp.PDPTypeIPv4}, {imsi: 3, nsapi: 5, apn: "inet6", kind: gtp.PDPTypeIPv6},
			}
			for range 2000 {
				if p.step(); t.Failed() {
					return
				}
			}
			p.compare()
			p.both(func(w *world) { w.e.Close(w.now, &w.out) })
			if !reflect.DeepEqual(p.records[0], p.records[1]) {
				p.wrongRecord()
			}
			for i, n := range p.did {
				did[i] += n
			}
		})
	}
	for i, n := range did {
		if n < 100 {
			t.Errorf("%d packets were handled as %d", n, i)
		}
	}
}

// wrongRecord tells of the first one.
func (p *beside) wrongRecord() {
	for id, list := range p.records[0] {
		for i, want := range list {
			if has := p.records[1][id]; i >= len(has) || has[i] != want {
				p.Fatalf("record %d is\n%s, want\n%s", i+1, slices.Concat(has, []string{"missing"})[min(i, len(has))], want)
			}
		}
	}
	p.Errorf("%d contexts have records, want %d", len(p.records[1]), len(p.records[0]))
}
