// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/port/porttest"
)

// mirror is an engine that sends what it gets back where it came from, and has
// its ticks set by the test.
type mirror struct {
	due   []time.Time
	ticks []time.Time
}

func (m *mirror) Tick(now time.Time, out *packet.Batch) {
	m.ticks = append(m.ticks, now)
	m.due = m.due[1:]
	out.SendIP([]byte("tick"))
}

func (m *mirror) Next() time.Time {
	if len(m.due) == 0 {
		return time.Time{}
	}
	return m.due[0]
}

var (
	loopPeer  = netip.MustParseAddrPort("198.51.100.7:40000")
	loopLocal = netip.MustParseAddrPort("192.0.2.3:3545")
)

func newMirrorLoop() (*Loop[*packet.Batch], *mirror, *porttest.Tun) {
	m, tun := &mirror{}, porttest.NewTun()
	return &Loop[*packet.Batch]{Engine: m, IP: tun, NewOutput: func() *packet.Batch { return new(packet.Batch) }}, m, tun
}

func TestLoopCarriesBothWays(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		l, _, tun := newMirrorLoop()
		l.Ordered = ordered
		first, second := porttest.NewUDP(loopLocal), porttest.NewUDP(loopLocal)
		l.SetSocket(1, second)
		l.SetSocket(0, first)
		var loops sync.WaitGroup
		loops.Go(func() {
			if err := l.ReadUDP(first, func(m *port.Message, _ time.Time, out *packet.Batch) {
				out.SendUDP(0, m.From, m.Payload)
				out.SendUDP(1, m.From, m.Payload)
				out.SendUDP(1, m.From, []byte("again"))
				out.SendUDP(7, m.From, []byte("no such socket"))
				out.SendIP(m.Payload)
			}); err != nil {
				t.Error(err)
			}
		})
		loops.Go(func() {
			if err := l.ReadTun(tun, func(ip []byte, _ time.Time, out *packet.Batch) { out.SendUDP(1, loopPeer, ip) }); err != nil {
				t.Error(err)
			}
		})

		first.Deliver(loopPeer, []byte("in"))
		if d := <-first.Out; d.To != loopPeer || string(d.Payload) != "in" {
			t.Errorf("first socket sent %v", d)
		}
		if a, b := <-second.Out, <-second.Out; string(a.Payload) != "in" || string(b.Payload) != "again" {
			t.Errorf("second socket sent %q, %q", a.Payload, b.Payload)
		}
		if p := <-tun.ToHost; string(p) != "in" {
			t.Errorf("device got %q", p)
		}
		tun.FromHost <- []byte("out")
		if d := <-second.Out; string(d.Payload) != "out" {
			t.Errorf("second socket sent %q", d.Payload)
		}
		l.Do(func(_ time.Time, out *packet.Batch) { out.SendIP([]byte("done")) })
		if p := <-tun.ToHost; string(p) != "done" {
			t.Errorf("device got %q", p)
		}

		l.SetSocket(1, nil)
		l.Do(func(_ time.Time, out *packet.Batch) {
			out.SendUDP(1, loopPeer, []byte("gone"))
			out.SendUDP(0, loopPeer, []byte("still"))
		})
		if d := <-first.Out; string(d.Payload) != "still" {
			t.Errorf("first socket sent %q", d.Payload)
		}
		first.Close()
		tun.Close()
		loops.Wait()
		if len(second.Out) != 0 {
			t.Error("a socket that was taken away was written to")
		}
	}
}

func TestLoopWithoutSockets(t *testing.T) {
	l, _, _ := newMirrorLoop()
	l.Do(func(_ time.Time, out *packet.Batch) { out.SendUDP(0, loopPeer, []byte("nowhere")) })
}

// failing is a socket that breaks.
type failing struct {
	port.UDPConn
	err error
}

func (f failing) ReadBatch([]port.Message) (int, error) { return 0, f.err }

func TestLoopReportsBrokenPort(t *testing.T) {
	l, _, _ := newMirrorLoop()
	broken := errors.New("broken")
	err := l.ReadUDP(failing{err: broken}, func(*port.Message, time.Time, *packet.Batch) {})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

// Packets of a queue that a received packet released must leave before the engine
// can be asked about a newer one.
func TestLoopOrdered(t *testing.T) {
	l, _, _ := newMirrorLoop()
	l.Ordered = true
	udp := porttest.NewUDP(loopLocal)
	l.SetSocket(0, lockCheck{udp, &l.mu, t})
	done := make(chan error)
	go func() {
		done <- l.ReadUDP(udp, func(m *port.Message, _ time.Time, out *packet.Batch) { out.SendUDP(0, m.From, m.Payload) })
	}()
	udp.Deliver(loopPeer, []byte("in"))
	<-udp.Out
	udp.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// lockCheck is a socket that wants a mutex held while it sends.
type lockCheck struct {
	port.UDPConn
	mu *sync.Mutex
	t  *testing.T
}

func (c lockCheck) WriteBatch(d []packet.Datagram) error {
	if c.mu.TryLock() {
		c.mu.Unlock()
		c.t.Error("sent with the engine let go")
	}
	return c.UDPConn.WriteBatch(d)
}

// The quick way takes what it can without the mutex; what it leaves, and all that
// comes behind it in the batch, goes to the engine, so that the order stays.
func TestLoopQuick(t *testing.T) {
	l, _, _ := newMirrorLoop()
	l.Ordered = true
	sent := 0
	l.Sent = func() { sent++ }
	udp := porttest.NewUDP(loopLocal)
	var out packet.Batch
	done := 0
	quick := Quick[string, *packet.Batch]{
		Handle: func(p string, _ time.Time, out *packet.Batch) bool {
			if p == "slow" {
				return false
			}
			out.SendUDP(0, loopPeer, []byte("quick "+p))
			return true
		},
		Done: func() { done++ },
	}
	handle := func(p string, _ time.Time, out *packet.Batch) { out.SendUDP(0, loopPeer, []byte("engine "+p)) }
	ports := Ports{Sockets: []port.UDPConn{udp}}

	l.mu.Lock() // held by another: quick packets pass
	pass(l, []string{"a", "b"}, &out, true, &ports, &quick, &view[string]{}, handle)
	l.mu.Unlock()
	if sent != 0 || done != 1 {
		t.Errorf("%d ordered batches, %d done", sent, done)
	}
	pass(l, []string{"c", "slow", "d"}, &out, true, &ports, &quick, &view[string]{}, handle)
	if sent != 1 || done != 2 {
		t.Errorf("%d ordered batches, %d done", sent, done)
	}
	for _, want := range []string{"quick a", "quick b", "quick c", "engine slow", "engine d"} {
		if got := string((<-udp.Out).Payload); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
}

func TestLoopSettled(t *testing.T) {
	l, _, _ := newMirrorLoop()
	seen := 0
	l.Settled = func(out *packet.Batch) {
		seen = len(out.IP)
		out.Packets().IP = nil // what is taken here is not sent
	}
	l.Do(func(_ time.Time, out *packet.Batch) { out.SendIP(nil) })
	if seen != 1 {
		t.Errorf("%d packets seen, want 1", seen)
	}
}

func TestLoopTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m, tun := newMirrorLoop()
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loops.Go(func() { l.RunTimer(ctx) })
		synctest.Wait()
		start := time.Now()
		at := func(d time.Duration) time.Time { return start.Add(d) }

		// Set, moved forward, and one more after it.
		l.Do(func(time.Time, *packet.Batch) { m.due = []time.Time{at(time.Hour)} })
		l.Do(func(time.Time, *packet.Batch) { m.due = []time.Time{at(time.Second), at(3 * time.Second)} })
		time.Sleep(10 * time.Second)
		// Moved backward: the first alarm finds nothing due.
		l.Do(func(time.Time, *packet.Batch) { m.due = []time.Time{at(20 * time.Second)} })
		l.Do(func(time.Time, *packet.Batch) { m.due = []time.Time{at(30 * time.Second)} })
		time.Sleep(30 * time.Second)
		// Taken back.
		l.Do(func(time.Time, *packet.Batch) { m.due = []time.Time{at(50 * time.Second)} })
		l.Do(func(time.Time, *packet.Batch) { m.due = nil })
		time.Sleep(time.Hour)
		// Overdue already.
		l.Do(func(now time.Time, _ *packet.Batch) { m.due = []time.Time{now.Add(-time.Second)} })
		synctest.Wait()

		want := []time.Time{at(time.Second), at(3 * time.Second), at(30 * time.Second), at(time.Hour + 40*time.Second)}
		if !slices.EqualFunc(m.ticks, want, time.Time.Equal) {
			t.Errorf("ticks at %v, want %v", m.ticks, want)
		}
		if len(tun.ToHost) != len(want) {
			t.Errorf("%d ticks were sent, want %d", len(tun.ToHost), len(want))
		}
		cancel()
		loops.Wait()
	})
}

func TestLoopNoAllocation(t *testing.T) {
	l, m, _ := newMirrorLoop()
	l.SetSocket(0, sink{})
	out := l.NewOutput()
	m.due = []time.Time{time.Now().Add(time.Hour)}
	payload := []byte("x")
	if n := testing.AllocsPerRun(100, func() {
		out.Reset()
		l.batch(out, true, &Ports{}, func(time.Time) { out.SendUDP(0, loopPeer, payload) })
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// sink is a socket that takes everything.
type sink struct{ port.UDPConn }

func (sink) WriteBatch([]packet.Datagram) error { return nil }

// divided is an output whose packets go to the devices that they name.
type divided struct{ packet.Batch }

func (d *divided) Device(i int) int { return int(d.IP[i][0] - '0') }

// dividing is an engine with such an output, and without timers.
type dividing struct{}

func (*dividing) Tick(time.Time, *divided) {}
func (*dividing) Next() time.Time          { return time.Time{} }

// TestLoopDivides has the packets of one output go to several devices, in their order, and
// those of none be lost.
func TestLoopDivides(t *testing.T) {
	zero, one := porttest.NewTun(), porttest.NewTun()
	l := &Loop[*divided]{Engine: new(dividing), NewOutput: func() *divided { return new(divided) }}
	l.SetDevice(1, one)
	l.SetDevice(0, zero)
	send := func(pkts ...string) {
		l.Do(func(_ time.Time, out *divided) {
			for _, p := range pkts {
				out.SendIP([]byte(p))
			}
		})
	}
	send("0a", "0b", "1c", "7 nowhere", "0d", "1e")
	l.SetDevice(1, nil)
	send("1 gone", "0f")
	for _, c := range []struct {
		tun  *porttest.Tun
		want []string
	}{{zero, []string{"0a", "0b", "0d", "0f"}}, {one, []string{"1c", "1e"}}} {
		var got []string
		for len(c.tun.ToHost) > 0 {
			got = append(got, string(<-c.tun.ToHost))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("a device got %q, want %q", got, c.want)
		}
	}
}
