// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/sctp"
)

// TestPion has the engine talk to pion/sctp, which has one path and lives on a net.Conn, in both roles and both
// directions at a time, on a clock of their own.
func TestPion(t *testing.T) {
	tests := []struct {
		name        string
		unordered   bool
		interleaved bool
		percentLost int
	}{
		{name: "ordered"},
		{name: "unordered", unordered: true},
		{name: "interleaved", interleaved: true},
		{name: "interleaved and unordered", interleaved: true, unordered: true},
		{name: "ordered with loss", percentLost: 3},
		{name: "unordered with loss", percentLost: 3, unordered: true},
		{name: "interleaved with loss", percentLost: 3, interleaved: true},
	}
	for _, tt := range tests {
		for _, server := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, server %t", tt.name, server), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPionWorld(t, tt.percentLost, server, tt.interleaved)
					p.talk(tt.unordered)
					p.end(server)
				})
			})
		}
	}
}

// What each end sends by each stream: the largest message is larger than half of a receive buffer.
const (
	pionStreams  = 4
	pionMessages = 60
	pionLargest  = 60_000
)

func pionMessage(stream, number int) []byte {
	octets := fmt.Appendf(nil, "%d %d ", stream, number)
	return append(octets, bytes.Repeat([]byte{byte(number)}, 1+number*number*7919%pionLargest)...)
}

// pionWorld is an engine of ours, in a goroutine of its own, and one of pion's.
type pionWorld struct {
	t     *testing.T
	net   *memoryNet
	calls chan func(now time.Time)
	ours  *host
	ready chan struct{} // closed when our association is set up
	peer  *sctp.Association
}

func newPionWorld(t *testing.T, percentLost int, server, interleaved bool) *pionWorld {
	p := &pionWorld{t: t, net: newMemoryNet(percentLost), calls: make(chan func(time.Time)), ready: make(chan struct{})}
	at := addresses("2001:db8::1", "2001:db8::2")
	par := Defaults()
	par.Interleaving, par.ReceiveBuffer, par.AssociationMaxRetrans = interleaved, 100_000, 30
	random := rand.NewChaCha8([32]byte{1})
	p.ours = &host{w: &world{}, parts: map[part][]byte{}, end: New(Config{
		Port: 5000, Addresses: at[:1], Parameters: par, Listen: server, MaxAssociations: 1, Hidden: true, Random: func(b []byte) { random.Read(b) },
	})}
	var running sync.WaitGroup
	running.Go(func() { p.run(Pair{at[0], at[1]}) })
	t.Cleanup(func() {
		close(p.calls)
		p.net.close()
		running.Wait()
	})
	conn, mix := sctp.WithNetConn(p.net.conn()), sctp.WithEnableInterleaving(interleaved)
	buffer, largest := sctp.WithMaxReceiveBufferSize(1<<20), sctp.WithMaxMessageSize(2*pionLargest)
	var err error
	if server {
		p.peer, err = sctp.ClientWithOptions(conn, mix, buffer, largest)
	} else {
		p.calls <- func(now time.Time) {
			p.ours.a, _ = p.ours.end.Connect(at[1:], 5000, 0, par, now, &p.ours.out)
		}
		p.peer, err = sctp.ServerWithOptions(conn, mix, buffer, largest)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-p.ready
	p.do(func(time.Time) {
		if p.ours.a.interleaved != interleaved {
			t.Errorf("interleaved: %t, want %t", p.ours.a.interleaved, interleaved)
		}
	})
	return p
}

// run calls the engine when something comes, when it is time, and when the test wants something.
func (p *pionWorld) run(pair Pair) {
	timer := time.NewTimer(time.Hour)
	h, up := p.ours, false
	for {
		now := time.Now()
		for len(h.out.Packets)+len(h.out.Events) > 0 {
			up = p.flush(now, up)
		}
		if next := h.end.Next(); !next.IsZero() {
			timer.Reset(max(0, next.Sub(now)))
		}
		select {
		case octets := <-p.net.toUs:
			h.end.Handle(Packet{Pair: pair, Octets: octets}, time.Now(), &h.out)
		case <-timer.C:
			h.end.Tick(time.Now(), &h.out)
		case call, open := <-p.calls:
			if !open {
				return
			}
			call(time.Now())
		}
	}
}

// flush puts what the engine has sent on its way, and reads.
func (p *pionWorld) flush(now time.Time, up bool) bool {
	h, read := p.ours, 0
	for _, packet := range h.out.Packets {
		p.net.send(toPion, packet.Octets)
	}
	for _, e := range h.out.Events {
		read += h.note(e)
		if !up && (e.Kind == Accepted || e.Kind == Connected) {
			up = true
			close(p.ready)
		}
	}
	h.out.Reset()
	if read > 0 {
		h.a.Read(read, now, &h.out)
	}
	return up
}

// do has the goroutine of the engine do something.
func (p *pionWorld) do(what func(now time.Time)) {
	done := make(chan struct{})
	p.calls <- func(now time.Time) {
		what(now)
		close(done)
	}
	<-done
}

// talk has both ends send by all streams at once, and compares what has come.
func (p *pionWorld) talk(unordered bool) {
	var all sync.WaitGroup
	var want []string
	got := make([][]string, pionStreams) // at pion's end, by stream
	for i := range pionStreams {
		stream, err := p.peer.OpenStream(uint16(i), sctp.PayloadTypeWebRTCBinary)
		if err != nil {
			p.t.Fatal(err)
		}
		stream.SetReliabilityParams(unordered, sctp.ReliabilityTypeReliable, 0)
		for k := range pionMessages {
			want = append(want, fmt.Sprintf("%d:%s", i, pionMessage(i, k)))
		}
		all.Go(func() {
			for k := range pionMessages {
				if _, err := stream.Write(pionMessage(i, k)); err != nil {
					p.t.Error(err)
				}
			}
		})
		all.Go(func() { got[i] = p.readPion(stream, i) })
	}
	for k := range pionMessages {
		for i := range pionStreams {
			p.say(Message{Stream: uint16(i), Unordered: unordered, User: pionMessage(i, k)})
		}
	}
	all.Wait()
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(100 * time.Millisecond) {
		var ours []string
		p.do(func(time.Time) { ours = slices.Clone(p.ours.got) })
		if len(ours) >= len(want) || time.Now().After(deadline) {
			p.compare("to us", ours, want, unordered)
			break
		}
	}
	p.compare("to pion", slices.Concat(got...), want, unordered)
}

// say sends a message, waiting for room.
func (p *pionWorld) say(m Message) {
	for {
		var err error
		p.do(func(now time.Time) { err = p.ours.a.Send(m, now, &p.ours.out) })
		if err == nil {
			return
		}
		if err != ErrBlocked {
			p.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *pionWorld) readPion(stream *sctp.Stream, number int) (got []string) {
	b := make([]byte, 2*pionLargest)
	for range pionMessages {
		n, err := stream.Read(b)
		if err != nil {
			p.t.Error(err)
			break
		}
		got = append(got, fmt.Sprintf("%d:%s", number, b[:n]))
	}
	return got
}

// compare holds what has come against what was sent, stream by stream if it is ordered.
func (p *pionWorld) compare(way string, got, want []string, unordered bool) {
	got, want = slices.Clone(got), slices.Clone(want)
	byStream := func(a, b string) int { return int(a[0]) - int(b[0]) }
	slices.SortStableFunc(got, byStream)
	if unordered {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("%s: %d messages of %d have come, or they are not what was sent", way, len(got), len(want))
	}
}

// end has the client shut down, and both ends learn of it.
func (p *pionWorld) end(server bool) {
	if server {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.peer.Shutdown(ctx); err != nil {
			p.t.Errorf("pion's shutdown: %v", err)
		}
	} else {
		p.do(func(now time.Time) { p.ours.a.Shutdown(now, &p.ours.out) })
	}
	time.Sleep(time.Hour)
	p.do(func(time.Time) {
		// Of an association that is over pion answers nothing: when its SHUTDOWN COMPLETE is lost, we give up.
		if !p.ours.saw(Closed) && (p.net.percentLost == 0 || !p.ours.saw(Failed)) {
			p.t.Error("we have not seen the end")
		}
	})
}

// memoryNet carries packets between the two, 5 ms each way, and loses some.
type memoryNet struct {
	toUs, toPion chan []byte
	ways         [2]chan parcel
	closed       chan struct{}
	once         sync.Once
	percentLost  int
}

// Directions.
const (
	toUs = iota
	toPion
)

// parcel is a packet on its way.
type parcel struct {
	at     time.Time
	octets []byte
}

func newMemoryNet(percentLost int) *memoryNet {
	const room = 1 << 14 // more than windows let out
	n := &memoryNet{
		toUs: make(chan []byte, room), toPion: make(chan []byte, room),
		ways: [2]chan parcel{make(chan parcel, room), make(chan parcel, room)}, closed: make(chan struct{}), percentLost: percentLost,
	}
	for i, to := range []chan []byte{n.toUs, n.toPion} {
		go n.carry(n.ways[i], to, rand.New(rand.NewPCG(1, uint64(i))))
	}
	return n
}

func (n *memoryNet) carry(way chan parcel, to chan []byte, dice *rand.Rand) {
	for {
		select {
		case p := <-way:
			time.Sleep(time.Until(p.at))
			if dice.IntN(100) >= n.percentLost {
				to <- p.octets
			}
		case <-n.closed:
			return
		}
	}
}

func (n *memoryNet) send(way int, octets []byte) {
	n.ways[way] <- parcel{time.Now().Add(5 * time.Millisecond), slices.Clone(octets)}
}

func (n *memoryNet) close() { n.once.Do(func() { close(n.closed) }) }

// conn is pion's end.
func (n *memoryNet) conn() net.Conn { return &memoryConn{memoryNet: n} }

type memoryConn struct {
	net.Conn // has no addresses and no deadlines
	*memoryNet
}

func (c *memoryConn) Read(b []byte) (int, error) {
	select {
	case octets := <-c.toPion:
		return copy(b, octets), nil
	case <-c.closed:
		return 0, io.EOF
	}
}

func (c *memoryConn) Write(b []byte) (int, error) {
	c.send(toUs, b)
	return len(b), nil
}

func (c *memoryConn) Close() error {
	c.close()
	return nil
}
