// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// ledger adds up charging records.
type ledger struct {
	*world
	of     map[uint32]*entry // by Charging-ID
	closed [NumClosings]int
	// accounts are what these say of contexts that have ended, engines what the counters of all engines say, and wire what
	// has left for terminals.
	accounts, engines struct{ up, down Traffic }
	wire              Traffic
}

// entry is a context by its records.
type entry struct {
	counted
	number   uint32
	duration time.Duration
	closed   time.Time
	ended    bool
}

// enter takes the records of the last call, and compares those of contexts that have ended in it with what these have
// carried.
func (l *ledger) enter() {
	l.Helper()
	for i := range l.out.Records {
		l.add(&l.out.Records[i])
	}
	for _, e := range l.told(ContextDeleted) {
		one, x := l.of[e.Context.ChargingID], &e.Context
		if one == nil || !one.ended || one.counted != (counted{x.Up, x.Down, x.OverUp, x.OverDown}) || one.duration != e.Age.Truncate(time.Second) {
			l.Errorf("records have %+v, the context %v and %v in %v", one, x.Up, x.Down, e.Age)
		}
		delete(l.of, e.Context.ChargingID)
		l.accounts.up, l.accounts.down = l.accounts.up.plus(x.Up), l.accounts.down.plus(x.Down)
	}
	for _, d := range ofType(l.out.UDP, gtp.TypeGPDU) {
		h, err := gtp.Decapsulate(d.Payload)
		if err != nil {
			l.Fatal(err)
		}
		l.wire.add(len(h.Payload))
	}
	l.out.Reset()
}

// settle adds the counters of an engine that ends.
func (l *ledger) settle() {
	s := l.e.Stats()
	l.engines.up, l.engines.down = l.engines.up.plus(s.Up), l.engines.down.plus(s.Down)
}

// add adds a record: it follows the one before it, has what its containers have, and no more of these than any limit
// lets it.
func (l *ledger) add(r *Record) {
	l.Helper()
	one := l.of[r.Context.ChargingID]
	if one == nil {
		one = &entry{closed: r.Context.Created}
		l.of[r.Context.ChargingID] = one
	}
	var up, down Traffic
	for _, in := range r.Containers {
		up, down = up.plus(in.Up), down.plus(in.Down)
	}
	if up != r.Context.Up || down != r.Context.Down {
		l.Errorf("containers have %v and %v, the record %v and %v", up, down, r.Context.Up, r.Context.Down)
	}
	if one.ended || r.Number != one.number+1 || !r.Opened.Equal(one.closed) || len(r.Containers) > maxPlayed || len(r.SGSNs) > maxPlayed || len(r.SGSNs) == 0 {
		l.Errorf("record %s, behind %+v", r.text(), one)
	}
	one.Up, one.Down, one.OverUp, one.OverDown = one.Up.plus(up), one.Down.plus(down), one.OverUp+r.Context.OverUp, one.OverDown+r.Context.OverDown
	one.number, one.duration, one.closed, one.ended = r.Number, one.duration+r.Duration, r.Closed, r.Ended
	l.closed[r.Cause]++
}

// recordPlay is what happens to contexts by chance.
type recordPlay struct {
	ledger
	by       *rand.Rand
	contexts [3]context
}

// maxPlayed is the most containers, and SGSNs, that the limits of a play let a record have.
const maxPlayed = 5

// settings draws limits.
func (p *recordPlay) settings() Settings {
	s := chargedSettings(Charging{
		Volume: []uint64{0, 1, 5000, 20000}[p.by.IntN(4)], Time: []time.Duration{0, time.Minute, time.Hour}[p.by.IntN(3)],
		Changes: 1 + p.by.IntN(maxPlayed), SGSNs: 1 + p.by.IntN(3), Tariffs: []time.Duration{6 * time.Hour, 13 * time.Hour},
	})
	for i := range s.APNs {
		s.APNs[i].MaxUp, s.APNs[i].MaxDown = 8, 8
	}
	return s
}

// open makes a session of two contexts, in the place of the one that there is.
func (p *recordPlay) open(i int) {
	p.from = sgsn
	c := p.world.open(i+1, "dual", gtp.PDPTypeIPv4v6)
	p.enter()
	p.createSecondary(c.TEIDControl.Value, p.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	p.contexts[i] = c
}

// passes lets time pass.
func (p *recordPlay) passes(d time.Duration) {
	until := p.now.Add(d)
	for next := p.e.Next(); !next.IsZero() && !next.After(until); next = p.e.Next() {
		if next.After(p.now) {
			p.now = next
		}
		p.e.Tick(p.now, &p.out)
		p.enter()
	}
	p.now = until
}

// restart has another engine go on, after a time, with other limits.
func (p *recordPlay) restart() {
	state := p.e.AppendState(nil)
	p.settle()
	p.now = p.now.Add(time.Duration(p.by.IntN(7200)) * time.Second)
	if lost := p.succeed(p.settings(), state); lost > 0 {
		p.Fatalf("%d contexts are lost", lost)
	}
}

// step has one thing happen to one of the contexts.
func (p *recordPlay) step() {
	i := p.by.IntN(len(p.contexts))
	c := &p.contexts[i]
	p.from = p.e.peers.at(p.e.sessions.at(p.e.byControl[c.TEIDControl.Value]).peer).addr
	switch p.by.IntN(14) {
	case 0, 1, 2:
		p.up(*c, udp6(c.six(), host6, 64, p.by.IntN(1200)))
	case 3, 4, 5: // by the secondary context
		p.down(udp4(server, c.four(), 64, p.by.IntN(1200)))
	case 6, 7:
		p.moves(c, []netip.Addr{sgsn, other}[p.by.IntN(2)], func(m *gtp.UpdateRequest) {
			m.RATType, m.QoS = gtp.Some(gtp.RATType(1+p.by.IntN(2))), gtp.Some(qosOf(2, 0x0b, byte(0x92+p.by.IntN(2)), 0x1f))
		})
	case 8:
		p.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, infoChange(gtp.RATUTRAN, uint16(p.by.IntN(3))), &gtp.InfoChangeResponse{})
	case 9:
		p.passes(time.Duration(p.by.IntN(3600)) * time.Second)
	case 10:
		p.e.CloseRecords(p.refs(Selection{IMSI: testIMSI(i + 1)}), p.now, &p.out)
	case 11:
		if err := p.e.Reconfigure(p.settings(), p.now, &p.out); err != nil {
			p.Fatal(err)
		}
	case 12:
		p.restart()
	default:
		if p.by.IntN(2) == 0 { // else it comes anew
			p.remove(c.TEIDControl.Value, 5, true)
			p.enter()
		}
		p.open(i)
	}
	p.enter()
}

// TestRecordSums adds up all records of contexts that carry packets, move, change, end and are closed by chance, over
// restarts and changes of all limits: they are what the contexts have carried, to the octet, and so are accounts, the
// counters of the engines, and, of what goes to terminals, the packets that have left.
func TestRecordSums(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := &recordPlay{by: rand.New(rand.NewPCG(seed, 1))}
			p.ledger = ledger{world: newWorld(t, func(s *Settings) { *s = p.settings() }), of: map[uint32]*entry{}}
			for i := range p.contexts {
				p.open(i)
			}
			for range 1000 {
				p.step()
			}
			p.e.Close(p.now, &p.out)
			p.enter()
			p.settle()
			p.empty()
			if p.accounts != p.engines || p.wire != p.engines.down || p.accounts.up.Octets == 0 || p.accounts.down.Octets == 0 {
				t.Errorf("accounts have %v, counters %v; %v has left for terminals", p.accounts, p.engines, p.wire)
			}
			for cause, n := range p.closed {
				if n == 0 && Closing(cause) != CloseAbnormal {
					t.Errorf("none was closed by %v", Closing(cause))
				}
			}
			if len(p.of) != 0 {
				t.Errorf("%d contexts have no last record", len(p.of))
			}
		})
	}
}
