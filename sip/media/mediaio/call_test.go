// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/offer"
)

// A call is what a user agent asks of a call's media.
var _ interface {
	Offer(path int) ([]byte, error)
	Answer(offer []byte, path int) ([]byte, error)
	Accept(answer []byte) error
	Withdraw()
	Hold(on bool)
} = (*Call)(nil)

// party is one end of a call, with what has happened to it.
type party struct {
	*Call
	tally  media.Tally
	events chan media.Event
}

func newParty(t testing.TB, h *Host, origin string, change func(*Settings)) *party {
	t.Helper()
	p := &party{events: make(chan media.Event, 1000)}
	s := Settings{
		Stream: media.Settings{Source: media.Numbered{}, Sink: &p.tally, Latch: true},
		Origin: netip.MustParseAddr(origin), OnEvent: func(e media.Event) { p.events <- e },
	}
	if change != nil {
		change(&s)
	}
	var err error
	if p.Call, err = h.NewCall(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func newHost(t testing.TB, c Config) *Host {
	h := NewHost(c)
	t.Cleanup(h.Close)
	return h
}

// open opens a path.
func (p *party) open(t testing.TB, path int, address string) {
	t.Helper()
	if err := p.Open(path, Local{Address: netip.MustParseAddr(address)}); err != nil {
		t.Fatal(err)
	}
}

// exchange has one offer and the other answer.
func exchange(t testing.TB, from *party, path int, to *party) (offer, answer string) {
	t.Helper()
	o, err := from.Offer(path)
	if err != nil {
		t.Fatal("offer:", err)
	}
	a, err := to.Answer(o, 0)
	if err != nil {
		t.Fatalf("answer: %v\n%s", err, o)
	}
	if err := from.Accept(a); err != nil {
		t.Fatalf("accept: %v\n%s", err, a)
	}
	return string(o), string(a)
}

// stats reads a party's figures.
func (p *party) stats() (s media.Stats, tally media.Tally) {
	p.Do(func(st *media.Stream, _ time.Time, _ *media.Output) { s, tally = st.Stats(), p.tally })
	return s, tally
}

// await waits until something holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// awaitEvent waits for an event.
func (p *party) awaitEvent(t testing.TB, k media.EventKind, path int) {
	t.Helper()
	for timeout := time.After(testutil.Patience); ; {
		select {
		case e := <-p.events:
			if e.Kind == k && (path < 0 || e.Path == path) {
				return
			}
		case <-timeout:
			t.Fatalf("not seen: %s", k)
		}
	}
}

// frames waits until so many more frames have come.
func (p *party) frames(t testing.TB, more uint64) {
	t.Helper()
	_, before := p.stats()
	await(t, "media", func() bool { _, now := p.stats(); return now.Frames >= before.Frames+more })
}

// TestCall moves a call between local addresses, and nothing is lost.
func TestCall(t *testing.T) {
	for _, tt := range []struct {
		name             string
		alice, then, bob string
		secure           bool
	}{
		{"IPv4", "127.0.0.2", "127.0.0.3", "127.0.0.9", false},
		{"IPv4, SRTP", "127.0.0.2", "127.0.0.3", "127.0.0.9", true},
		{"IPv6", "::1", "::1", "::1", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, Config{})
			alice := newParty(t, h, tt.alice, func(s *Settings) { s.Secure = tt.secure })
			bob := newParty(t, h, tt.bob, nil)
			alice.open(t, 0, tt.alice)
			bob.open(t, 0, tt.bob)
			exchange(t, alice, 0, bob)
			alice.frames(t, 10)
			bob.frames(t, 10)

			alice.open(t, 1001, tt.then) // numbers are the caller's
			if err := alice.Move(1001); err != nil {
				t.Fatal(err)
			}
			o, _ := exchange(t, alice, 1001, bob)
			if !strings.Contains(o, " "+tt.then+"\r\nt=") {
				t.Errorf("the second offer is\n%s", o)
			}
			alice.awaitEvent(t, media.PathHeard, 1001)
			alice.ClosePath(0)
			alice.frames(t, 10)
			bob.frames(t, 10)
			for name, p := range map[string]*party{"alice": alice, "bob": bob} {
				s, tally := p.stats()
				if s.Lost != 0 || tally.Damaged+tally.Repeated != 0 || p.Unsent() != 0 {
					t.Errorf("%s: %+v, %+v, %d unsent", name, s, tally, p.Unsent())
				}
			}
			alice.Do(func(s *media.Stream, now time.Time, _ *media.Output) {
				if r := s.Handoff(now); r.Marked.IsZero() || r.FirstSent.Before(r.Marked) || r.FirstHeard.Before(r.FirstSent) {
					t.Errorf("the move: %+v", r)
				}
			})
			alice.Close()
			bob.awaitEvent(t, media.PeerLeft, -1)
		})
	}
}

// TestKeysRequired has a call that offers SRTP alone hear nothing before the answer, on whose port a stranger has sent.
func TestKeysRequired(t *testing.T) {
	h := newHost(t, Config{})
	alice := newParty(t, h, "127.0.0.2", func(s *Settings) { s.Secure = true })
	alice.open(t, 0, "127.0.0.2")
	if _, err := alice.Offer(0); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(alice.find(0).rtp.local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range byte(2) { // telephone events, in sequence
		if _, err := conn.Write([]byte{0x80, 101, 0, i, 0, 0, 0, 0, 0, 0, 0, 9, 5, 0x8a, 1, 0}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "packets that are not authentic", func() bool { s, _ := alice.stats(); return s.Drops[media.DropNotAuthentic] == 2 })
	if s, _ := alice.stats(); s.Received != 0 || len(alice.events) != 0 {
		t.Errorf("%+v, %d events", s, len(alice.events))
	}
}

// TestOnlyPathOpenedAgain has the only path lose its address, and the next one be opened after it: the move to that is a
// move.
func TestOnlyPathOpenedAgain(t *testing.T) {
	h := newHost(t, Config{})
	alice, bob := newParty(t, h, "127.0.0.2", nil), newParty(t, h, "127.0.0.9", nil)
	alice.open(t, 0, "127.0.0.2")
	bob.open(t, 0, "127.0.0.9")
	exchange(t, alice, 0, bob)
	alice.awaitEvent(t, media.PathHeard, 0)
	alice.ClosePath(0)
	alice.open(t, 1, "127.0.0.3")
	if err := alice.Move(1); err != nil {
		t.Fatal(err)
	}
	exchange(t, alice, 1, bob)
	alice.awaitEvent(t, media.PathHeard, 1) // maybe before a packet of hers has left by it
	await(t, "the move", func() (told bool) {
		alice.Do(func(s *media.Stream, now time.Time, _ *media.Output) {
			r := s.Handoff(now)
			told = !r.FirstSent.IsZero() && !r.FirstHeard.IsZero()
		})
		return told
	})
}

// TestKeys presses some while the call is up.
func TestKeys(t *testing.T) {
	h := newHost(t, Config{})
	alice, bob := newParty(t, h, "127.0.0.2", nil), newParty(t, h, "127.0.0.9", nil)
	alice.open(t, 0, "127.0.0.2")
	bob.open(t, 0, "127.0.0.9")
	exchange(t, alice, 0, bob)
	alice.Do(func(s *media.Stream, _ time.Time, _ *media.Output) {
		if err := s.Press("1#"); err != nil {
			t.Error(err)
		}
	})
	heard := ""
	for len(heard) < 2 {
		if e := <-bob.events; e.Kind == media.DigitEnded {
			heard += string(media.Key(e.Digit))
		}
	}
	if heard != "1#" {
		t.Errorf("heard %s", heard)
	}
}

// TestUnsent has packets wait for a way, be it for want of an address or of one of the peer's family. They go to where
// media goes when there is one, and hold up none behind them.
func TestUnsent(t *testing.T) {
	h := newHost(t, Config{})
	alice := newParty(t, h, "127.0.0.2", nil)
	alice.open(t, 0, "::1")
	alice.open(t, 1, "127.0.0.2")
	bob, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.9:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer bob.Close()
	at := bob.LocalAddr().(*net.UDPAddr).AddrPort()
	to4, to6 := netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), netip.MustParseAddrPort("[::1]:7000")
	slot6, slot4 := alice.find(0).slot, alice.find(1).slot
	alice.ClosePath(0)
	for _, p := range []struct {
		slot    int
		to      netip.AddrPort
		packet  string
		waiting int
	}{{slot6, to6, "of a path that is closed", 1}, {slot4, to6, "before the answer", 2}, {slot4, to4, "after the answer", 0}} {
		alice.mu.Lock()
		alice.send(p.slot, false, p.to, []byte(p.packet))
		if len(alice.unsent) != p.waiting {
			t.Errorf("%s: %d wait, want %d", p.packet, len(alice.unsent), p.waiting)
		}
		alice.mu.Unlock()
	}
	for _, want := range []string{"of a path that is closed", "before the answer", "after the answer"} {
		b := make([]byte, 100)
		_ = bob.SetReadDeadline(time.Now().Add(testutil.Patience))
		if n, err := bob.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("%q, %v, want %q", b[:n], err, want)
		}
	}
	// What no path would take is lost alone.
	alice.mu.Lock()
	alice.send(slot6, false, to6, make([]byte, 1<<16))
	alice.send(slot4, false, to4, []byte("small"))
	if len(alice.unsent) != 0 || alice.Unsent() != 1 {
		t.Errorf("%d wait, %d unsent", len(alice.unsent), alice.Unsent())
	}
	alice.mu.Unlock()
}

func TestHold(t *testing.T) {
	h := newHost(t, Config{})
	alice, bob := newParty(t, h, "127.0.0.2", nil), newParty(t, h, "127.0.0.9", nil)
	alice.open(t, 0, "127.0.0.2")
	bob.open(t, 0, "127.0.0.9")
	exchange(t, alice, 0, bob)
	alice.frames(t, 5)
	alice.Hold(true)
	o, a := exchange(t, alice, 0, bob)
	if !strings.Contains(o, "a=sendonly") || !strings.Contains(a, "a=recvonly") {
		t.Errorf("the offer is\n%sthe answer\n%s", o, a)
	}
	aliceSent, _ := alice.stats()
	bobSent, _ := bob.stats()
	time.Sleep(5 * media.Frame)
	for p, before := range map[*party]media.Stats{alice: aliceSent, bob: bobSent} {
		if now, _ := p.stats(); now.Sent != before.Sent {
			t.Errorf("%d sent on hold", now.Sent-before.Sent)
		}
	}
	alice.Hold(false)
	if o, a = exchange(t, alice, 0, bob); !strings.Contains(o, "a=sendrecv") || !strings.Contains(a, "a=sendrecv") {
		t.Errorf("the offer is\n%sthe answer\n%s", o, a)
	}
	alice.frames(t, 5)
	bob.frames(t, 5)
}

// TestManyEvents has more of them happen than wait for who is told.
func TestManyEvents(t *testing.T) {
	h := newHost(t, Config{})
	entered, leave, told := make(chan bool, 1), make(chan bool), 0
	alice := newParty(t, h, "127.0.0.2", func(s *Settings) {
		s.OnEvent = func(media.Event) {
			if told++; told == 1 {
				entered <- true
				<-leave
			}
		}
	})
	add := func(n int) {
		alice.Do(func(_ *media.Stream, _ time.Time, out *media.Output) {
			out.Events = append(out.Events, make([]media.Event, n)...)
		})
	}
	done := make(chan bool)
	go func() { add(1); close(done) }()
	<-entered
	add(2 * maxEvents)
	close(leave)
	<-done
	if told != 1+maxEvents || alice.Missed() != maxEvents {
		t.Errorf("%d told, %d missed", told, alice.Missed())
	}
}

// TestOrder refuses what is out of order, and leaves the call as it was.
func TestOrder(t *testing.T) {
	h := newHost(t, Config{})
	alice, bob := newParty(t, h, "127.0.0.2", nil), newParty(t, h, "127.0.0.9", nil)
	if _, err := alice.Offer(0); err == nil {
		t.Error("an offer without a path")
	}
	if err := alice.Move(0); err == nil {
		t.Error("a move to a path that is not open")
	}
	alice.open(t, 0, "127.0.0.2")
	bob.open(t, 0, "127.0.0.9")
	if err := alice.Open(0, Local{Address: netip.MustParseAddr("127.0.0.2")}); err == nil {
		t.Error("a path opened twice")
	}
	for path := range media.MaxPaths {
		if err := alice.Open(100+path, Local{Address: netip.MustParseAddr("127.0.0.2")}); (err == nil) != (path+1 < media.MaxPaths) {
			t.Errorf("path %d: %v", path+1, err)
		}
	}
	alice.ClosePath(100)
	if err := alice.Open(100, Local{Address: netip.MustParseAddr("127.0.0.2")}); err != nil {
		t.Errorf("a path opened again: %v", err)
	}
	if _, err := bob.Answer([]byte("hello"), 0); !errors.Is(err, offer.ErrMalformed) {
		t.Errorf("an answer to no offer: %v", err)
	}
	if _, err := alice.Offer(0); err != nil {
		t.Error(err)
	}
	if _, err := alice.Offer(0); !errors.Is(err, offer.ErrPending) {
		t.Errorf("a second offer: %v", err)
	}
	if err := alice.Accept([]byte("hello")); !errors.Is(err, offer.ErrMalformed) {
		t.Errorf("no answer: %v", err)
	}
	if _, err := alice.Offer(0); err != nil {
		t.Error(err)
	}
	alice.Withdraw()
	exchange(t, alice, 0, bob)
	alice.frames(t, 5)
	alice.Close()
	if err := alice.Open(1, Local{Address: netip.MustParseAddr("127.0.0.2")}); !errors.Is(err, ErrClosed) {
		t.Errorf("a path of a call that is over: %v", err)
	}
}

// TestCloseWhenTold closes a call when something happens to it.
func TestCloseWhenTold(t *testing.T) {
	h := newHost(t, Config{})
	var alice *party
	closed := make(chan bool)
	alice = newParty(t, h, "127.0.0.2", func(s *Settings) {
		s.OnEvent = func(e media.Event) {
			if e.Kind == media.MediaBegan {
				alice.Close()
				close(closed)
			}
		}
	})
	bob := newParty(t, h, "127.0.0.9", nil)
	alice.open(t, 0, "127.0.0.2")
	bob.open(t, 0, "127.0.0.9")
	exchange(t, alice, 0, bob)
	select {
	case <-closed:
	case <-time.After(testutil.Patience):
		t.Fatal("the call waits for itself")
	}
}

func TestPorts(t *testing.T) {
	// An address of its own, since the same test may run beside it, under the race detector; and
	// ports that the kernel gives to no one who does not ask for one.
	pid := os.Getpid()
	at := netip.AddrFrom4([4]byte{127, 7, byte(pid >> 8), byte(pid)})
	var pairs []*pair
	defer func() {
		for _, p := range pairs {
			p.close()
		}
	}()
	// A range that begins and ends at odd ports has two pairs.
	for range 2 {
		p, err := openPair(Local{Address: at}, 20001, 20006, 7)
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, p)
		if port := p.rtp.local.Port(); port != 20002 && port != 20004 || p.rtcp.local.Port() != port+1 {
			t.Errorf("ports %d and %d", port, p.rtcp.local.Port())
		}
	}
	if _, err := openPair(Local{Address: at}, 20001, 20006, 7); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a third pair: %v", err)
	}
	for range 20 {
		p, err := openPair(Local{Address: at}, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, p)
		if p.rtp.local.Port()&1 != 0 || p.rtcp.local.Port() != p.rtp.local.Port()+1 {
			t.Errorf("ports %d and %d", p.rtp.local.Port(), p.rtcp.local.Port())
		}
	}
	for name, l := range map[string]Local{
		"no address": {}, "any address": {Address: netip.IPv4Unspecified()}, "a zone": {Address: netip.MustParseAddr("fe80::1%lo")},
		"an address of somebody else": {Address: netip.MustParseAddr("192.0.2.1")}, "no such device": {Address: at, Device: "nowhere0"},
	} {
		if _, err := openPair(l, 0, 0, 0); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for _, r := range [][2]uint16{{20005, 20005}, {65535, 65535}, {20007, 20003}, {20005, 20006}} {
		if p, err := openPair(Local{Address: at}, r[0], r[1], 0); err == nil {
			p.close()
			t.Errorf("ports %d to %d", r[0], r[1])
		}
	}
}

// TestService marks media as voice in both families.
func TestService(t *testing.T) {
	for address, option := range map[string][2]int{"127.0.0.1": {unix.IPPROTO_IP, unix.IP_TOS}, "::1": {unix.IPPROTO_IPV6, unix.IPV6_TCLASS}} {
		p, err := openPair(Local{Address: netip.MustParseAddr(address)}, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for _, s := range []*socket{p.rtp, p.rtcp} {
			_ = s.raw.Control(func(fd uintptr) {
				if class, err := unix.GetsockoptInt(int(fd), option[0], option[1]); err != nil || class != 0xb8 {
					t.Errorf("%s: class %#x, %v", address, class, err)
				}
			})
		}
	}
}

func TestSettings(t *testing.T) {
	h := newHost(t, Config{})
	if _, err := h.NewCall(Settings{}); err == nil {
		t.Error("a call without an origin")
	}
	if _, err := h.NewCall(Settings{Stream: media.Settings{Name: string(make([]byte, 300))}, Origin: netip.IPv6Loopback()}); err == nil {
		t.Error("a call with too long a name")
	}
}
