// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestStrict has happen what goes beyond the RFCs, each by its switch, and nothing of it in strict mode.
func TestStrict(t *testing.T) {
	for name, c := range map[string]struct {
		on      func(*Parameters)
		happens func(*testing.T, Parameters) bool
	}{
		"copies go another way before T3": {func(p *Parameters) { p.EarlyProbe = true }, func(t *testing.T, par Parameters) bool {
			par.HeartbeatInterval = 30 * time.Second // without heartbeats nobody could tell that the path is back
			w := pair(t, par)
			w.lost = func(_ int, p Packet) bool { return path1(p.Pair) }
			w.hosts[0].say(0, []byte("x"), false)
			w.run(par.RTOMin - 10*time.Millisecond)
			return w.hosts[0].end.Counters.EarlyCopies > 0
		}},
		"a path that has failed is asked when the peer asks": {func(p *Parameters) { p.EarlyProbe = true }, func(t *testing.T, par Parameters) bool {
			s := accepted(t, par, 2, 2).confirmAll()
			s.a.par = par // the script's are strict
			p := s.a.path(Pair{s.local[1], s.remote[1]})
			p.state, p.Parameters.HeartbeatInterval = Inactive, time.Hour
			s.raw(p.Pair, s.a.tag, chunk.AppendHeartbeat(nil, []byte("x")))
			return slices.ContainsFunc(s.take(), func(p Packet) bool { return has(p, chunk.TypeHeartbeat) })
		}},
		"a timeout is taken back": {func(p *Parameters) { p.SpuriousTimeouts = true }, func(t *testing.T, par Parameters) bool {
			s := accepted(t, par, 1, 1)
			s.a.paths[0].cwnd, s.a.par.MaxBurst = 8*pmdcs, 100
			s.say(8 * full)
			s.run(time.Second)
			s.peer(s.sack(4, large))
			return s.e.Counters.Spurious > 0
		}},
		"an INIT does not wait for T1": {func(p *Parameters) { p.SetupRace = true }, func(t *testing.T, par Parameters) bool {
			s := connecting(t, par, 1, 2)
			s.run(par.RTOInitial - time.Millisecond)
			return len(s.packets) > 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			par := quiet()
			if c.happens(t, par) {
				t.Error("it happens in strict mode")
			}
			if c.on(&par); !c.happens(t, par) {
				t.Error("it does not where it is switched on")
			}
		})
	}
}

// TestStrictLeavesNoSwitchOn finds what Strict has forgotten: all that may be on are extensions of the RFCs.
func TestStrictLeavesNoSwitchOn(t *testing.T) {
	par := Defaults()
	par.Strict()
	for field, value := range reflect.ValueOf(par).Fields() {
		if value.Kind() == reflect.Bool && value.Bool() && field.Name != "PartialReliability" && field.Name != "AddressChanges" {
			t.Errorf("%s is on", field.Name)
		}
	}
}
