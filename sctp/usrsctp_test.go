// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/sctp"
)

// What tests of content send: messages of all sizes up to the largest, by four streams.
const (
	messages = 1000
	largest  = 100_000
)

var (
	ours   = []string{us1, us2}
	theirs = []string{them1, them2}
)

// traffic is what usrsctp has sent or received.
func (w *world) traffic(p *usrsctp.Peer, what string) usrsctp.Traffic {
	w.t.Helper()
	t, err := p.Read(what)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// same holds what has come against what was sent.
func (w *world) same(sent, received usrsctp.Traffic) {
	w.t.Helper()
	if diff := cmp.Diff(sent, received); diff != "" {
		w.t.Errorf("what has come is not what was sent (-sent +received):\n%s", diff)
	}
}

// TestUsrsctpReceives has us set up the association, send, and end it.
func TestUsrsctpReceives(t *testing.T) {
	newWorld(t).eachTransport(func(w *world, by transport) {
		p := w.peer(by, theirs, nil)
		conn := w.dial(by, parameters(), ours, theirs)
		sent, err := writeAll(conn, messages, largest, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := conn.Shutdown(w.ctx); err != nil {
			w.t.Fatal(err)
		}
		w.says(p, "peer shutdown")
		w.says(p, "closed")
		w.same(sent, w.traffic(p, "received"))
	})
}

// TestUsrsctpSends has usrsctp set up the association, send, and end it.
func TestUsrsctpSends(t *testing.T) {
	newWorld(t).eachTransport(func(w *world, by transport) {
		l := w.listen(by, parameters(), ours)
		p := w.peer(by, theirs, ours, "source=1", "count=1000", "size=1", "largest=100000")
		conn := w.accept(l)
		received, err := readAll(conn, messages)
		if err != nil {
			w.t.Fatal(err)
		}
		w.says(p, "done")
		w.order(p, "shutdown")
		if rest, err := readAll(conn, 1); err != nil || rest.Messages != 0 {
			t.Errorf("behind the last message come %d others, %v", rest.Messages, err)
		}
		w.says(p, "closed")
		w.same(w.traffic(p, "sent"), received)
	})
}

// TestUsrsctpInterleaved has both ends send messages of several streams beside each other.
func TestUsrsctpInterleaved(t *testing.T) {
	w := newWorld(t)
	par := parameters()
	par.Interleaving = true
	// It delivers no beginning of a message before that has half of its buffer: several fill it, and all stands still.
	p := w.peer(inUDP, theirs, nil, "interleaving=1", "echo=1", "receive-buffer=1048576")
	stop := w.capture()
	conn := w.dial(inUDP, par, ours, theirs)
	done := make(chan error, 1)
	var sent usrsctp.Traffic
	go func() {
		var err error
		sent, err = writeAll(conn, 200, largest, 0)
		done <- err
	}()
	received, err := readAll(conn, 200)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.same(sent, received)
	if err := conn.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.says(p, "closed")
	files := stop()
	w.dissect(files)
	if out := w.tshark(files, "sctp.chunk_type == 0"); out != "" {
		t.Errorf("DATA beside I-DATA:\n%s", out)
	}
	if w.tshark(files, "sctp.chunk_type == 64") == "" {
		t.Error("no I-DATA")
	}
}

// TestUsrsctpCut cuts one network without a word while data flows, and restores it.
func TestUsrsctpCut(t *testing.T) {
	newWorld(t).eachCut(theirs)
}

// TestUsrsctpOfOneAddress does so to a peer that has one address.
func TestUsrsctpOfOneAddress(t *testing.T) {
	newRoutedWorld(t).eachCut([]string{them3})
}

func (w *world) eachCut(theirs []string) {
	w.eachTransport(func(w *world, by transport) {
		for name, weSend := range map[string]bool{"we send": true, "they send": false} {
			w.t.Run(name, func(t *testing.T) { w.on(t).cut(by, theirs, weSend) })
		}
	})
}

func (w *world) cut(by transport, theirs []string, weSend bool) {
	settings := []string{"source=1", "count=1000", "size=500", "gap=1000"}
	if weSend {
		settings = nil
	}
	p := w.peer(by, theirs, nil, settings...)
	stop := w.capture()
	conn := w.dial(by, parameters(), ours, theirs)
	events := conn.Events()
	var sent, received usrsctp.Traffic
	done := make(chan error, 1)
	go func() {
		var err error
		if weSend {
			sent, err = writeAll(conn, messages, 1000, time.Millisecond)
		} else {
			received, err = readAll(conn, messages)
		}
		done <- err
	}()
	time.Sleep(300 * time.Millisecond)
	w.wires[0].Cut()
	w.happens(events, sctp.PathFailing, us1)
	time.Sleep(300 * time.Millisecond)
	w.wires[0].Restore()
	w.happens(events, sctp.PathActive, us1)
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
	if err := conn.Shutdown(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.says(p, "closed")
	if weSend {
		received = w.traffic(p, "received")
	} else {
		w.says(p, "done")
		sent = w.traffic(p, "sent")
	}
	w.same(sent, received)
	w.dissect(stop())
}

// TestUsrsctpTakesAddresses has our host get an address, data be sent there, and the first address leave.
func TestUsrsctpTakesAddresses(t *testing.T) {
	w := newWorld(t)
	p := w.peer(inUDP, theirs, nil, append(still, "echo=1")...)
	stop := w.capture()
	conn := w.dial(inUDP, stillParameters(), ours, theirs)
	events := conn.Events()
	w.says(p, "path "+us2+" confirmed")
	w.confirmed(conn)
	flow := w.flow(conn)
	for _, step := range []struct {
		what func(netip.Addr) error
		says string
	}{
		{conn.RemoveAddress, "removed"},
		{conn.AddAddress, "added"},
		{conn.Prefer, "primary"},
	} {
		if err := step.what(netip.MustParseAddr(us2)); err != nil {
			t.Fatal(err)
		}
		w.says(p, "path "+us2+" "+step.says)
		w.happens(events, sctp.ChangeDone, us2)
	}
	w.saysBehind(p, "path "+us2+" added", "path "+us2+" confirmed") // again
	if err := conn.RemoveAddress(netip.MustParseAddr(us1)); err != nil {
		t.Fatal(err)
	}
	w.says(p, "path "+us1+" removed")
	flow()
	files := stop()
	w.dissect(files)
	w.authenticated(files)
}

// TestUsrsctpChangesAddresses has usrsctp do the same.
func TestUsrsctpChangesAddresses(t *testing.T) {
	if bearsCrash(t) {
		return
	}
	w := newWorld(t)
	p := w.peer(inUDP, theirs[:1], nil, append(still, "echo=1")...)
	stop := w.capture()
	conn := w.dial(inUDP, stillParameters(), ours, theirs[:1])
	events := conn.Events()
	w.says(p, "up 4 4")
	flow := w.flow(conn)
	w.order(p, "add "+them2)
	w.happens(events, sctp.AddressAdded, them2)
	w.happens(events, sctp.PathConfirmed, them2)
	w.order(p, "peer-primary "+them2)
	w.happens(events, sctp.PrimaryChanged, them2)
	w.order(p, "probe "+us2) // as a heartbeat before came from its other address, which was none of the association
	w.says(p, "path "+us2+" confirmed")
	w.order(p, "primary "+us2) // it sends from where the kernel wants: not from the address that leaves
	w.quiet(0, func() { w.order(p, "probe "+us2) })
	w.order(p, "delete "+them1)
	w.happens(events, sctp.AddressRemoved, them1)
	flow()
	files := stop()
	w.dissect(files)
	w.authenticated(files)
}

// quiet waits until nothing goes to them by a network any more while they answer by the other one, which ask has them do.
// Packets do not keep their order between networks: what is on its way to an address comes behind the word, by the other
// network, that it leaves, and its answer, an ABORT, would end the association.
func (w *world) quiet(network int, ask func()) {
	w.t.Helper()
	carried := func(network int, d lab.Direction) int {
		c := w.wires[network].Counters(d)
		return c.Packets + c.Sent
	}
	for rounds, before := 0, -1; rounds < 20 && w.ctx.Err() == nil; rounds++ {
		if now := carried(network, lab.AtoB); now != before {
			rounds, before = 0, now
		}
		there, back := carried(1-network, lab.AtoB), carried(1-network, lab.BtoA)
		ask()
		for (carried(1-network, lab.AtoB) < there+2 || carried(1-network, lab.BtoA) < back+2) && w.ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// flow has messages go to and fro while something else happens. The result ends that, and the association.
func (w *world) flow(conn *sctp.Conn) (end func()) {
	const many = 300
	type result struct {
		usrsctp.Traffic
		err error
	}
	out, back := make(chan result, 1), make(chan result, 1)
	go func() {
		t, err := writeAll(conn, many, 1000, 2*time.Millisecond)
		out <- result{t, err}
	}()
	go func() {
		t, err := readAll(conn, many)
		back <- result{t, err}
	}()
	return func() {
		w.t.Helper()
		sent, received := <-out, <-back
		if err := errors.Join(sent.err, received.err); err != nil {
			w.t.Fatal(err)
		}
		w.same(sent.Traffic, received.Traffic)
		if err := conn.Shutdown(w.ctx); err != nil {
			w.t.Error(err)
		}
	}
}

// TestUsrsctpAborts has each end abort.
func TestUsrsctpAborts(t *testing.T) {
	w := newWorld(t)
	t.Run("they abort", func(t *testing.T) {
		w := w.on(t)
		p := w.peer(inUDP, theirs, nil)
		conn := w.dial(inUDP, parameters(), ours, theirs)
		w.says(p, "up 4 4")
		w.order(p, "abort")
		if _, _, err := conn.ReadMessage(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want that the peer has reset the association", err)
		}
	})
	t.Run("we abort", func(t *testing.T) {
		w := w.on(t)
		p := w.peer(inUDP, theirs, nil)
		conn := w.dial(inUDP, parameters(), ours, theirs)
		conn.Abort("enough")
		// The cause is that of a user (RFC 9260 section 3.3.10.12), unless the answer to a heartbeat of theirs, which
		// says only that there is no association, comes before by the other network.
		w.says(p, "lost (12|0)")
	})
}

// TestUsrsctpRestarts kills usrsctp, which comes back with the same ports: the association is the same for us, and
// begins again (RFC 9260 section 5.2).
func TestUsrsctpRestarts(t *testing.T) {
	newWorld(t).eachTransport(func(w *world, by transport) {
		// Nothing of ours is to come while it is away: of a host that has no SCTP at the moment the kernel says so, and
		// who begins again does not know the association. Either would end it.
		l := w.listen(by, stillParameters(), ours)
		first := w.peer(by, theirs, ours, "source=1", "count=10", "heartbeat=0")
		conn := w.accept(l)
		events := conn.Events()
		if _, err := readAll(conn, 10); err != nil {
			w.t.Fatal(err)
		}
		w.confirmed(conn)
		w.cutBoth()
		if err := first.Signal(syscall.SIGKILL); err != nil {
			w.t.Fatal(err)
		}
		<-first.Done()
		second := w.peer(by, theirs, ours, "source=1", "count=20", "heartbeat=0")
		w.restoreBoth()
		w.happens(events, sctp.Restarted, "")
		if _, _, err := conn.ReadMessage(make([]byte, 1)); !errors.Is(err, sctp.ErrRestarted) {
			w.t.Errorf("error %v, want that the peer has begun again", err)
		}
		received, err := readAll(conn, 20)
		if err != nil {
			w.t.Fatal(err)
		}
		w.says(second, "done")
		w.same(w.traffic(second, "sent"), received)
	})
}

// TestWeRestart has an association of ours vanish unseen, and another come from the same port.
func TestWeRestart(t *testing.T) {
	newWorld(t).eachTransport(func(w *world, by transport) {
		p := w.peer(by, theirs, nil)
		first := w.open(by, parameters(), ours)
		w.dialFrom(first, theirs)
		w.cutBoth()
		w.close(first)
		end := w.open(by, parameters(), ours)
		dialed := make(chan *sctp.Conn)
		go func() {
			defer close(dialed)
			dialed <- w.dialFrom(end, theirs)
		}()
		w.says(p, "path "+us1+" unreachable") // what was on its way is gone
		w.restoreBoth()
		second := <-dialed
		if second == nil {
			w.t.FailNow()
		}
		w.says(p, "restart")
		sent, err := writeAll(second, 20, 1000, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := second.Shutdown(w.ctx); err != nil {
			w.t.Fatal(err)
		}
		w.says(p, "closed")
		w.same(sent, w.traffic(p, "received"))
	})
}

// dissect has tshark look at what was captured: checksums are right and nothing is malformed.
func (w *world) dissect(files []string) {
	w.t.Helper()
	// A warning is one that tshark finds many TSNs behind gaps.
	const wrong = "_ws.malformed || _ws.expert.severity >= 0x800000 || sctp.checksum.status == 0"
	if out := w.tshark(files, wrong); out != "" {
		w.t.Errorf("tshark complains of:\n%s", out)
	}
}

// authenticated holds that changes of addresses travel behind an AUTH (RFC 5061 section 4.1.1).
func (w *world) authenticated(files []string) {
	w.t.Helper()
	if w.tshark(files, "sctp.chunk_type == 0xc1") == "" {
		w.t.Error("no ASCONF")
	}
	if out := w.tshark(files, "(sctp.chunk_type == 0xc1 || sctp.chunk_type == 0x80) && !(sctp.chunk_type == 0x0f)"); out != "" {
		w.t.Errorf("changes without AUTH:\n%s", out)
	}
}

// tshark returns the packets that a filter chooses.
func (w *world) tshark(files []string, filter string) (out string) {
	w.t.Helper()
	for _, file := range files {
		out += tsharktest.Run(w.t, file, "-o", "sctp.checksum:CRC 32c", "-Y", filter,
			"-T", "fields", "-e", "frame.number", "-e", "sctp.chunk_type", "-e", "_ws.expert.message")
	}
	return out
}
