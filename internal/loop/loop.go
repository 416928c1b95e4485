// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package loop drives a pure engine between the ports of one instance: it reads
// batches, takes the engine's mutex once for each, sends what came out, wakes the
// engine by its timers, and shows what passes to whoever traces. The run packages of
// all roles stand on it.
package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
)

// Output is what an engine call fills: [packet.Batch], or a struct that embeds
// it and adds the engine's events.
type Output interface {
	Packets() *packet.Batch
	Reset()
}

// Divided is an [Output] whose IP packets go to several devices.
type Divided interface {
	// Device is the number of the device of each packet in [packet.Batch.IP].
	Device(packet int) int
}

// Engine is the part of an engine that every role has alike.
type Engine[O Output] interface {
	// Tick does what is due.
	Tick(now time.Time, out O)
	// Next is when Tick has something to do next; zero is never.
	Next() time.Time
}

// Loop guards one engine with a mutex and drives it: each loop reads a batch,
// takes the mutex once for all packets of it, and sends what came out after
// letting go, so that the loops of two directions keep two cores busy. Set the
// fields before the first loop starts.
type Loop[O Output] struct {
	// Engine is called with the mutex held.
	Engine Engine[O]
	// IP takes the IP packets of the output, but for those of a [Divided] one; see
	// [Loop.SetDevice].
	IP port.IPWriter
	// NewOutput makes the output of one loop.
	NewOutput func() O
	// Settled, if set, sees the output of each batch before it is sent, with
	// the mutex held, so that events arrive in their order. It must not call
	// Do.
	Settled func(out O)
	// Ordered makes the loops that read UDP send their datagrams before they
	// let the engine go, so that no newer packet from the TUN overtakes those
	// of a queue that a received packet has released.
	Ordered bool
	// Sent, if set, is called with the mutex held when the datagrams of an
	// ordered batch have been sent.
	Sent func()
	// EachDropped calls f for every drop reason, in a fixed order. [Loop.Trace]
	// needs it; it is called with the mutex held.
	EachDropped func(f func(reason string, n uint64))

	mu      sync.Mutex
	sockets numbered[port.UDPConn]
	devices numbered[port.IPWriter]
	timer   timer
	tap     atomic.Pointer[tap] // nil when no one traces
}

// SetSocket makes conn the socket that [packet.Datagram] calls i; nil takes it
// away. It may be called at any time.
func (l *Loop[O]) SetSocket(i int, conn port.UDPConn) { l.sockets.set(i, conn) }

// SetDevice makes to the device that a [Divided] output calls i; nil takes it away. It may
// be called at any time.
func (l *Loop[O]) SetDevice(i int, to port.IPWriter) { l.devices.set(i, to) }

// numbered are ports by their numbers, which may change at any time.
type numbered[P comparable] struct{ list atomic.Pointer[[]P] }

func (n *numbered[P]) set(i int, p P) {
	for {
		old := n.list.Load()
		var next []P
		if old != nil {
			next = append(next, *old...)
		}
		for len(next) <= i {
			var none P
			next = append(next, none)
		}
		next[i] = p
		if n.list.CompareAndSwap(old, &next) {
			return
		}
	}
}

// all are the ports now.
func (n *numbered[P]) all() []P {
	if list := n.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Ports are where the output of one of several loops goes; what is nil is that of
// the [Loop].
type Ports struct {
	Sockets []port.UDPConn // by the numbers of [packet.Datagram]
	IP      port.IPWriter
	Devices []port.IPWriter // by the numbers of a [Divided] output
}

// Quick is a way past the engine's mutex for the packets of one loop. The zero
// value is none.
type Quick[P any, O Output] struct {
	// Handle takes a packet, or returns false and leaves it, and in its place
	// what comes behind it in the batch, to the engine.
	Handle func(p P, now time.Time, out O) bool
	// Done ends a batch.
	Done func()
}

// ReadUDP gives the engine what conn receives, until conn is closed; then it
// returns nil.
func (l *Loop[O]) ReadUDP(conn port.UDPConn, handle func(m *port.Message, now time.Time, out O)) error {
	return l.ReadUDPQuick(conn, Ports{}, Quick[*port.Message, O]{}, handle)
}

// ReadUDPQuick is ReadUDP for one of several loops.
func (l *Loop[O]) ReadUDPQuick(conn port.UDPConn, ports Ports, quick Quick[*port.Message, O], handle func(m *port.Message, now time.Time, out O)) error {
	msgs := make([]port.Message, port.MaxBatch)
	batch := make([]*port.Message, port.MaxBatch)
	for i := range msgs {
		batch[i] = &msgs[i]
	}
	out := l.NewOutput()
	shown := udpView(conn)
	defer AddProcessor()()
	for {
		n, err := conn.ReadBatch(msgs)
		if err != nil {
			return UntilClosed(err)
		}
		pass(l, batch[:n], out, l.Ordered, &ports, &quick, &shown, handle)
	}
}

// ReadTun gives the engine what the host's stack sends to tun, until tun is
// closed; then it returns nil.
func (l *Loop[O]) ReadTun(tun port.Tun, handle func(ip []byte, now time.Time, out O)) error {
	return l.ReadTunQuick(tun, Ports{}, Quick[[]byte, O]{}, handle)
}

// ReadTunQuick is ReadTun for one of several loops.
func (l *Loop[O]) ReadTunQuick(tun port.Tun, ports Ports, quick Quick[[]byte, O], handle func(ip []byte, now time.Time, out O)) error {
	pkts := make([][]byte, port.MaxBatch)
	out := l.NewOutput()
	defer AddProcessor()()
	for {
		n, err := tun.ReadBatch(pkts)
		if err != nil {
			return UntilClosed(err)
		}
		pass(l, pkts[:n], out, false, &ports, &quick, &tunView, handle)
	}
}

// pass handles one batch: without the mutex as far as the quick way goes.
func pass[P any, O Output](l *Loop[O], items []P, out O, ordered bool, ports *Ports, quick *Quick[P, O], shown *view[P], handle func(p P, now time.Time, out O)) {
	out.Reset()
	if quick.Handle != nil && l.tap.Load() == nil {
		now := time.Now()
		for len(items) > 0 && quick.Handle(items[0], now, out) {
			items = items[1:]
		}
		quick.Done()
	}
	if len(items) == 0 {
		l.sendUDP(out.Packets().UDP, ports)
		l.sendIP(out, ports)
		return
	}
	l.batch(out, ordered, ports, func(now time.Time) {
		tap := l.tap.Load()
		for _, p := range items {
			if tap != nil {
				traced(l, tap, shown, p, now, out, handle)
			} else {
				handle(p, now, out)
			}
		}
	})
}

// Do runs f with the engine to itself, for whatever is neither a packet nor a
// timer: reloads, events, snapshots. It sends what f puts into out.
func (l *Loop[O]) Do(f func(now time.Time, out O)) {
	out := l.NewOutput()
	l.batch(out, false, &Ports{}, func(now time.Time) { f(now, out) })
}

// Idle waits until no one is at work with the engine.
func (l *Loop[O]) Idle() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// With is Do with an output of the caller, which is reset first.
func (l *Loop[O]) With(out O, f func(now time.Time)) {
	out.Reset()
	l.batch(out, false, &Ports{}, f)
}

// RunTimer calls the engine's Tick when it is due, until ctx is done.
func (l *Loop[O]) RunTimer(ctx context.Context) {
	out := l.NewOutput()
	tick := func(now time.Time) { l.Engine.Tick(now, out) }
	for l.timer.wait(ctx) {
		out.Reset()
		l.batch(out, false, &Ports{}, tick)
	}
}

// batch runs work with the mutex held and sends what is in out then.
func (l *Loop[O]) batch(out O, ordered bool, ports *Ports, work func(now time.Time)) {
	l.mu.Lock()
	work(time.Now())
	if l.Settled != nil {
		l.Settled(out)
	}
	sooner := l.timer.set(l.Engine.Next())
	b := out.Packets()
	if ordered {
		l.sendUDP(b.UDP, ports)
		if l.Sent != nil {
			l.Sent()
		}
	}
	l.mu.Unlock()
	if !ordered {
		l.sendUDP(b.UDP, ports)
	}
	l.sendIP(out, ports)
	if sooner {
		l.timer.rouse()
	}
}

// sendIP gives IP packets to the host's stack. A port that is closed belongs to an instance
// that is ending.
func (l *Loop[O]) sendIP(out O, ports *Ports) {
	pkts := out.Packets().IP
	if len(pkts) == 0 {
		return
	}
	if d, several := any(out).(Divided); several {
		l.divide(pkts, d, ports)
		return
	}
	to := ports.IP
	if to == nil {
		to = l.IP
	}
	_ = to.WriteBatch(pkts)
}

// divide sends runs of packets that go to the same device.
func (l *Loop[O]) divide(pkts [][]byte, d Divided, ports *Ports) {
	devices := ports.Devices
	if devices == nil {
		devices = l.devices.all()
	}
	for first := 0; first < len(pkts); {
		i, end := d.Device(first), first+1
		for end < len(pkts) && d.Device(end) == i {
			end++
		}
		if i < len(devices) && devices[i] != nil {
			_ = devices[i].WriteBatch(pkts[first:end])
		}
		first = end
	}
}

// sendUDP sends runs of datagrams that leave by the same socket.
func (l *Loop[O]) sendUDP(dgrams []packet.Datagram, ports *Ports) {
	if len(dgrams) == 0 {
		return
	}
	sockets := ports.Sockets
	if sockets == nil {
		sockets = l.sockets.all()
	}
	for len(dgrams) > 0 {
		i, n := dgrams[0].Socket, 1
		for n < len(dgrams) && dgrams[n].Socket == i {
			n++
		}
		// A socket may have gone since the engine named it.
		if i < len(sockets) && sockets[i] != nil {
			_ = sockets[i].WriteBatch(dgrams[:n])
		}
		dgrams = dgrams[n:]
	}
}

// UntilClosed makes the closing of a port a normal end: it returns nil for it, and
// any other error as it is.
func UntilClosed(err error) error {
	if errors.Is(err, port.ErrClosed) {
		return nil
	}
	return err
}
