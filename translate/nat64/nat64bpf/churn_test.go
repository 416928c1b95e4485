// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestFlowsWhileTheyEnd lets programs make bindings and sessions on all cores while Go
// ends them, in a table that is often full. What both have made and ended must leave
// nothing behind: no entry of an index, no record, no port, no count, no lock.
func TestFlowsWhileTheyEnd(t *testing.T) {
	z := someSizes
	z.Sessions = 64
	r := newFlowRig(t, z)
	c := r.client(flowHost, 40)
	ports := bytes.Clone(r.Memory()[state.SlabPortsUsed])
	before := r.counts()

	const cores, packets = 2, 3000
	var running, ended atomic.Int32
	var all sync.WaitGroup
	for core := range uint64(cores) {
		running.Add(1)
		all.Add(1)
		go func() {
			defer all.Done()
			defer running.Add(-1)
			random := rand.New(rand.NewPCG(1, core))
			// Go may get no time to end any of so many.
			for n := 0; n < packets || ended.Load() == 0; n++ {
				p := outward(state.Transport(random.IntN(3)), 2000+uint16(random.IntN(8)), 53)
				p.peer = netip.AddrFrom4([4]byte{198, 51, 100, byte(random.IntN(4))})
				r.run(p, 1)
			}
		}()
	}
	random, changes := rand.New(rand.NewPCG(2, 2)), make([]state.Change, 8)
	for running.Load() > 0 {
		r.table.WalkSessions(0, z.Sessions, func(s *state.Session) {
			if random.IntN(3) == 0 && r.table.End(s) == state.Made {
				ended.Add(1)
			}
		})
		r.table.WalkBindings(0, z.Sessions, func(b *state.Binding) {
			switch random.IntN(8) {
			case 0:
				r.table.Reap(b)
			case 1:
				r.table.EndBinding(b)
			}
		})
		r.table.Feed().Changes(changes)
	}
	all.Wait()
	if made := r.counts()[To4Forwarded] - before[To4Forwarded]; made == 0 {
		t.Error("no packet was forwarded")
	}
	t.Logf("%d sessions ended", ended.Load())
	r.checkFound()
	r.table.WalkBindings(0, z.Sessions, func(b *state.Binding) {
		if o := r.table.EndBinding(b); o != state.Made {
			t.Errorf("EndBinding: %s", o)
		}
	})
	for _, name := range []string{
		state.SlabSessions6, state.SlabSessions4, state.SlabBindings6, state.SlabBindings4,
		state.SlabSessionsUsed, state.SlabBindingsUsed,
	} {
		if left := len(bytes.ReplaceAll(r.Memory()[name], []byte{0}, nil)); left != 0 {
			t.Errorf("%s: %d bytes are not zero", name, left)
		}
	}
	if !bytes.Equal(ports, r.Memory()[state.SlabPortsUsed]) {
		t.Error("ports are not as they were")
	}
	for i := range uint32(z.Sessions) {
		if b := recordAt[nat64Binding](r.Memory()[state.SlabBindings], i); b.Lock != 0 || b.Sessions != 0 {
			t.Errorf("binding %d has lock %d, sessions %d", i, b.Lock, b.Sessions)
		}
	}
	if r.table.ViewSubscriber(c.Index, &c); c.Sessions != 0 || c.Bindings != 0 {
		t.Errorf("the client counts %d sessions, %d bindings", c.Sessions, c.Bindings)
	}
}

// checkFound looks each session and binding up by both its keys.
func (r *flowRig) checkFound() {
	r.Helper()
	n := r.table.Sizes().Sessions
	r.table.WalkSessions(0, n, func(s *state.Session) {
		var found state.Session
		k6, k4 := s.Key6(), s.Key4()
		if !r.table.Find6(&k6, &found) || found != *s || !r.table.Find4(&k4, &found) || found != *s {
			r.Errorf("session %+v is not found", s)
		}
	})
	r.table.WalkBindings(0, n, func(b *state.Binding) {
		var found state.Binding
		in, out := b.Inside(), b.Outside()
		if !r.table.FindBinding6(&in, &found) || found != *b || !r.table.FindBinding4(&out, &found) || found != *b {
			r.Errorf("binding %+v is not found", b)
		}
	})
}
