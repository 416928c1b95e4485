// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/port/porttest"
)

// TestProcessors starts loops and ends them: while they wait there are processors left,
// and afterwards there are as many as before.
func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	for _, tt := range []struct {
		name        string
		own, loops  int
		while, then int
	}{
		{"a small machine", 1, 2, 4, 1},
		{"by twos", 2, 3, 6, 2},
		{"a large one has enough", 16, 2, 16, 16},
		{"bounded, however many sockets are open", 2, 40, mostProcessors, 2},
		{"never less than its own", 12, 40, 12, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runtime.GOMAXPROCS(tt.own)
			removes := make(chan func(), tt.loops)
			var wait sync.WaitGroup
			for range tt.loops {
				wait.Go(func() { removes <- AddProcessor() })
			}
			wait.Wait()
			if got := runtime.GOMAXPROCS(0); got != tt.while {
				t.Errorf("%d processors for %d loops, want %d", got, tt.loops, tt.while)
			}
			for range tt.loops {
				wait.Go(func() { (<-removes)() })
			}
			wait.Wait()
			if got := runtime.GOMAXPROCS(0); got != tt.then {
				t.Errorf("%d processors are left, want %d", got, tt.then)
			}
		})
	}
}

// TestLoopsTakeProcessors has both loops of an instance wait on a machine with a single
// processor.
func TestLoopsTakeProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, _, tun := newMirrorLoop()
	conn := porttest.NewUDP(loopLocal)
	l.SetSocket(0, conn)
	var loops sync.WaitGroup
	loops.Go(func() {
		_ = l.ReadUDP(conn, func(m *port.Message, _ time.Time, out *packet.Batch) { out.SendIP(m.Payload) })
	})
	loops.Go(func() {
		_ = l.ReadTun(tun, func(ip []byte, _ time.Time, out *packet.Batch) { out.SendUDP(0, loopPeer, ip) })
	})
	conn.Deliver(loopPeer, []byte("in"))
	<-tun.ToHost
	tun.FromHost <- []byte("out")
	<-conn.Out
	if got := runtime.GOMAXPROCS(0); got != 2+spareProcessors {
		t.Errorf("%d processors while two loops wait", got)
	}
	_, _ = conn.Close(), tun.Close()
	loops.Wait()
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("%d processors are left", got)
	}
}

// TestTurn has a loop let others run when its turn is long, and not before.
func TestTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var other atomic.Bool
	young := turn{began: time.Now().Add(time.Hour)}
	began := young.began
	if young.next(); young.began != began {
		t.Error("a short turn ended")
	}
	go other.Store(true)
	for range 100 { // the scheduler looks at one of its queues first, now at this, now at that
		now := time.Now()
		long := turn{began: now.Add(-longestTurn)}
		if long.next(); long.began.Before(now) {
			t.Fatal("no turn began")
		}
		if other.Load() {
			return
		}
	}
	t.Error("no one else ran")
}
