// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/rtp"

	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// world is two streams, A and B, and a network between them, in virtual time. A has several
// paths, B one.
type world struct {
	t        *testing.T
	now      time.Time
	a, b     *end
	inFlight []flying
	// delay is how long a packet takes, and lose whether it gets lost; by the path of A.
	delay func(path int, fromA bool) time.Duration
	lose  func(path int, fromA, control bool, p []byte) bool
	// seen is every packet that was sent, media alone.
	seen func(fromA bool, path int, p []byte)
}

type flying struct {
	at     time.Time
	to     *end
	socket int
	from   netip.AddrPort
	p      []byte
}

// end is a stream with its sockets.
type end struct {
	*Stream
	name    string
	address []netip.AddrPort // of RTP, by path
	batch   Output
	events  []Event
	tally   Tally
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var zero netip.AddrPort

// seed is randomness for tests.
func seed(b byte) *bytes.Reader { return bytes.NewReader(bytes.Repeat([]byte{b}, 4096)) }

// newWorld makes two streams that are not connected yet. change may be nil.
func newWorld(t *testing.T, change func(a, b *Settings)) *world {
	t.Helper()
	w := &world{t: t, now: start}
	w.delay = func(int, bool) time.Duration { return 25 * time.Millisecond }
	w.lose = func(int, bool, bool, []byte) bool { return false }
	w.seen = func(bool, int, []byte) {}
	w.a, w.b = &end{name: "A"}, &end{name: "B"}
	for i := range 3 {
		w.a.address = append(w.a.address, netip.MustParseAddrPort(fmt.Sprintf("[2001:db8:%d::1]:5000", i+1)))
	}
	w.b.address = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8:b::1]:6000")}
	as := Settings{Name: "a", Source: Numbered{}, Sink: &w.a.tally, Latch: true}
	bs := Settings{Name: "b", Source: Numbered{}, Sink: &w.b.tally, Latch: true}
	if change != nil {
		change(&as, &bs)
	}
	var err error
	if w.a.Stream, err = New(as, seed(1), start); err != nil {
		t.Fatal(err)
	}
	if w.b.Stream, err = New(bs, seed(2), start); err != nil {
		t.Fatal(err)
	}
	return w
}

// agreed is an agreement with an end at a path of it.
func (w *world) agreed(with *end, path int) Agreement {
	rtp := with.address[path]
	return Agreement{
		RTP: rtp, RTCP: netip.AddrPortFrom(rtp.Addr(), rtp.Port()+1), Send: true, Receive: true,
		Format: Format{Send: DefaultTypes, Receive: DefaultTypes, Digits: AllDigits},
	}
}

// connect has both agree, and send by their first paths.
func (w *world) connect() {
	w.agree(w.a, w.agreed(w.b, 0))
	w.agree(w.b, w.agreed(w.a, 0))
	w.sendBy(w.a, 0)
	w.sendBy(w.b, 0)
}

func (w *world) agree(e *end, a Agreement) {
	w.t.Helper()
	if err := e.Agree(a, w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) sendBy(e *end, path int) {
	w.t.Helper()
	if err := e.SendBy(path, w.now); err != nil {
		w.t.Fatal(err)
	}
}

// put takes what an end has put out.
func (w *world) put(e *end) {
	for _, d := range e.batch.UDP {
		path, control := PathOf(d.Socket)
		from := e.address[path]
		to, socket := w.find(d.To)
		if control {
			from = netip.AddrPortFrom(from.Addr(), from.Port()+1)
		} else {
			w.seen(e == w.a, path, d.Payload)
		}
		place := path // of A, which alone has several
		if e == w.b {
			place, _ = PathOf(socket)
		}
		if to == nil || w.lose(place, e == w.a, control, d.Payload) {
			continue
		}
		w.inFlight = append(w.inFlight, flying{w.now.Add(w.delay(place, e == w.a)), to, socket, from, bytes.Clone(d.Payload)})
	}
	e.events = append(e.events, e.batch.Events...)
	e.batch.Reset()
}

// find is whose address it is.
func (w *world) find(to netip.AddrPort) (*end, int) {
	for _, e := range []*end{w.a, w.b} {
		for path, a := range e.address {
			switch {
			case to == a:
				return e, Socket(path, false)
			case to.Addr() == a.Addr() && to.Port() == a.Port()+1:
				return e, Socket(path, true)
			}
		}
	}
	return nil, 0
}

// run lets time go by.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	until := w.now.Add(d)
	for {
		next := until
		for _, e := range []*end{w.a, w.b} {
			if at := e.Next(); !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		first := -1
		for i, f := range w.inFlight {
			if f.at.Before(next) || f.at.Equal(next) && first < 0 && !f.at.After(until) {
				next, first = f.at, i
			}
		}
		if next.After(w.now) {
			w.now = next
		}
		if first >= 0 {
			f := w.inFlight[first]
			w.inFlight = slices.Delete(w.inFlight, first, first+1)
			f.to.Handle(f.socket, f.from, f.p, w.now, &f.to.batch)
			w.put(f.to)
			continue
		}
		if !w.now.Before(until) {
			return
		}
		for _, e := range []*end{w.a, w.b} {
			e.Tick(w.now, &e.batch)
			w.put(e)
		}
	}
}

// happened are the kinds of events of an end.
func (e *end) happened() (list []EventKind) {
	for _, v := range e.events {
		list = append(list, v.Kind)
	}
	return list
}

// inject has somebody send a packet to an end.
func (w *world) inject(e *end, from string, p []byte) {
	e.Handle(Socket(0, false), netip.MustParseAddrPort(from), p, w.now, &e.batch)
	w.put(e)
}

// forge makes a packet.
func forge(ssrc uint32, sequence uint16, stamp uint32) []byte {
	p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: ssrc, SequenceNumber: sequence, Timestamp: stamp}, Payload: make([]byte, Samples)}
	b, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// secure makes agreements for SRTP with keys for both directions.
func secure(t *testing.T, a, b Agreement, keyA, keyB byte) (Agreement, Agreement) {
	t.Helper()
	key := func(n byte) sdes.Attribute {
		k, err := sdes.NewKey(seed(n))
		if err != nil {
			t.Fatal(err)
		}
		return sdes.Attribute{Tag: 1, Suite: sdes.AES80, Key: k}
	}
	a.Secure, b.Secure = true, true
	a.Sending, a.Receiving = key(keyA), key(keyB)
	b.Sending, b.Receiving = key(keyB), key(keyA)
	return a, b
}
