// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// BenchmarkTransfer has one end send messages as fast as the other takes them, in memory: what a packet of data costs
// both ends and a SACK in the other direction. Nothing may be allocated.
func BenchmarkTransfer(b *testing.B) {
	for name, size := range map[string]int{"64": 64, "1400": 1400, "64k": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			w := pair(b, Defaults())
			w.run(10 * time.Second)
			h, octets := w.hosts[0], make([]byte, size)
			sent := 0
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				for h.a.Send(Message{User: octets, Unordered: false}, w.now, &h.out) == ErrBlocked {
					w.swap()
				}
				sent += size
			}
			for h.a.sent.length > 0 {
				w.swap()
			}
		})
	}
}

// swap hands over what each end has sent, without copies and without delay, and reads what has come.
func (w *world) swap() {
	w.now = w.now.Add(10 * time.Microsecond)
	for i, h := range w.hosts {
		to := w.hosts[1-i]
		for _, p := range h.out.Packets {
			p.Local, p.Remote = p.Remote, p.Local
			to.end.Handle(p, w.now, &to.out)
		}
		h.out.Reset()
		read := 0
		for _, e := range to.out.Events {
			if e.Kind == Received {
				read += e.Data.Cost()
			}
		}
		if read > 0 {
			to.a.Read(read, w.now, &to.out)
		}
		if next := h.end.Next(); !next.IsZero() && !next.After(w.now) {
			h.end.Tick(w.now, &h.out)
		}
	}
}

// crowd is an endpoint with many associations to peers of two addresses each.
type crowd struct {
	server  *Endpoint
	clients map[netip.Addr]*Endpoint
	list    []*Endpoint
	now     time.Time
	out     [2]Output // of the clients, and of the server
}

func newCrowd(b *testing.B, n int) *crowd {
	b.Helper()
	random, par, at := rand.NewChaCha8([32]byte{1}), Defaults(), dual()[1]
	end := func(at []netip.Addr, listen bool) *Endpoint {
		return New(Config{Port: 5000, Addresses: at, Parameters: par, Listen: listen, MaxAssociations: n + 1, Random: func(p []byte) { random.Read(p) }})
	}
	c := &crowd{server: end(at, true), clients: map[netip.Addr]*Endpoint{}, now: start}
	for i := range n {
		own := []netip.Addr{numbered(dual()[0][0], i), numbered(dual()[0][1], i)}
		client := end(own, false)
		c.list = append(c.list, client)
		for _, address := range own {
			c.clients[address] = client
		}
		if _, err := client.Connect(at, 5000, 0, par, c.now, &c.out[0]); err != nil {
			b.Fatal(err)
		}
		c.exchange()
	}
	if len(c.server.byTag) != n {
		b.Fatalf("%d associations of %d", len(c.server.byTag), n)
	}
	return c
}

// numbered is the address with a number in its middle.
func numbered(a netip.Addr, n int) netip.Addr {
	octets := a.As16()
	octets[8], octets[9] = byte(n>>8), byte(n)
	return netip.AddrFrom16(octets)
}

// exchange has packets travel until none is left.
func (c *crowd) exchange() {
	for len(c.out[0].Packets)+len(c.out[1].Packets) > 0 {
		for _, p := range c.out[0].Packets {
			p.Local, p.Remote = p.Remote, p.Local
			c.server.Handle(p, c.now, &c.out[1])
		}
		c.out[0].Reset()
		for _, p := range c.out[1].Packets {
			p.Local, p.Remote = p.Remote, p.Local
			c.clients[p.Local].Handle(p, c.now, &c.out[0])
		}
		c.out[1].Reset()
	}
}

// run lets time pass.
func (c *crowd) run(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(20 * time.Millisecond) {
		c.server.Tick(c.now, &c.out[1])
		for _, client := range c.list {
			if next := client.Next(); !next.IsZero() && !next.After(c.now) {
				client.Tick(c.now, &c.out[0])
			}
		}
		c.exchange()
	}
}

// BenchmarkMemory says what an association at rest takes of the endpoint that has it.
func BenchmarkMemory(b *testing.B) {
	const n = 2000
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := newCrowd(b, n)
		c.run(time.Minute)
		c.clients, c.list, c.out = nil, nil, [2]Output{}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/association")
		runtime.KeepAlive(c)
	}
}

// BenchmarkHeartbeats has associations ask after each other's four paths each 30 seconds, a second of that each time,
// and says what 10,000 of them cost one end. The looks at the clients' clocks are in it.
func BenchmarkHeartbeats(b *testing.B) {
	const n = 2000
	c := newCrowd(b, n)
	c.run(time.Minute)
	b.ResetTimer()
	for range b.N {
		c.run(time.Second)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)*10000/n/2/float64(time.Second)*100, "%core")
}

// BenchmarkForward has a peer give up, by one packet, all that a receive buffer of 1 MiB holds of the middles of unordered
// messages, an octet each: so long no other association is served.
func BenchmarkForward(b *testing.B) {
	par := quiet()
	par.ReceiveBuffer = 1 << 20
	s := newScript(b, par, 1, 1)
	s.init.ForwardTSN = true
	s.accept()
	tsn := scriptTSN
	handle := func(c []byte) {
		s.e.Handle(Packet{Pair: s.pair, Octets: s.packet(c)}, s.now, &s.out)
		s.out.Reset()
	}
	for range b.N {
		b.StopTimer()
		for ; s.a.window() > 0; tsn++ {
			handle((&chunk.Data{TSN: tsn, Unordered: true, User: []byte("x")}).Append(nil, false))
		}
		b.StartTimer()
		tsn++
		handle(chunk.AppendForwardTSN(nil, tsn-1, nil, false))
	}
}
