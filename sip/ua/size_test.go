// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// sized calls with an INVITE of just so many octets, on a path of an MTU, and returns it.
func sized(t *testing.T, w *world, a *agent, size int) flight {
	t.Helper()
	u, err := message.ParseURI(toBob)
	if err != nil {
		t.Fatal(err)
	}
	padding := 100
	for {
		w.seen = nil
		id, err := a.engine.Invite(u, &fakeMedia{name: "alice", padding: padding}, w.now, &a.out)
		if err != nil {
			t.Fatal(err)
		}
		n := len(a.out.Packets[0].Data)
		if n == size {
			a.flush()
			return w.find("INVITE")[0]
		}
		a.out.Reset()
		a.engine.HangUp(id, w.now, &a.out)
		a.out.Reset()
		padding += size - n
	}
}

func TestSizeChoosesTheTransport(t *testing.T) {
	for _, row := range []struct {
		name      string
		mtu, size int
		want      string
	}{
		{"Teredo: the last by UDP", 1280, 1080, "UDP"},
		{"Teredo: the first by TCP", 1280, 1081, "TCP"},
		{"Ethernet: the last by UDP", 1500, 1300, "UDP"},
		{"Ethernet: the first by TCP", 1500, 1301, "TCP"},
		{"not known: the first by TCP", 0, 1301, "TCP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.agent("alice", aliceA, nil)
			a.addMTU(2, aliceB, row.mtu)
			a.use(2)
			f := sized(t, w, a, row.size)
			if f.transport != row.want || !strings.Contains(string(f.data), "SIP/2.0/"+row.want+" ") {
				t.Errorf("by %v:\n%.80s", f.transport, f.data)
			}
		})
	}
}

func TestBackToUDP(t *testing.T) {
	for _, row := range []struct {
		name   string
		size   int
		broken bool
		want   bool // by UDP
	}{
		{"refused, fits", 1200, true, true},
		{"the last that fits", 1232, true, true},
		{"refused, would be a fragment", 1233, true, false},
		{"swallowed, fits", 1200, false, true},
		{"swallowed, would be a fragment", 1233, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.agent("alice", aliceA, nil)
			a.addMTU(2, aliceB, 1280)
			a.use(2)
			if row.broken {
				w.broken = "TCP"
			}
			first := sized(t, w, a, row.size)
			w.pass(1200 * time.Millisecond)
			again := false
			for _, f := range w.find("INVITE") {
				if f.transport != "UDP" {
					continue
				}
				if len(f.data) > 1232 {
					t.Errorf("%d octets by UDP", len(f.data))
				}
				again = again || f.branch() == first.branch()
			}
			if again != row.want {
				t.Errorf("by UDP with the same branch: %t", again)
			}
			if _, ended := a.told(Ended); row.broken && !row.want && !ended {
				t.Error("the call does not end")
			}
		})
	}
}

// A response by TCP whose connection is gone goes to the port that its Via names, or the usual one, of the
// address that the request came from (RFC 3261 section 18.2.2).
func TestResponseWithoutConnection(t *testing.T) {
	for _, row := range []struct{ name, transport, via, fallback string }{
		{"the port of Via", "TCP", "[2001:db8::1]:5070", "[2001:db8:66::6]:5070"},
		{"rport is that of the connection", "TCP", "[2001:db8:66::6]:5070;rport", "[2001:db8:66::6]:5070"},
		{"no port", "TCP", "[2001:db8:66::6]", stranger},
		{"by UDP there is no connection", "UDP", "[2001:db8:66::6]:5070", "invalid AddrPort"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			bob := w.agent("bob", bobA, nil)
			lines := plain()
			lines[1] = "Via: SIP/2.0/" + row.transport + " " + row.via + ";branch=z9hG4bK1"
			from := transaction.Target{Transport: row.transport, Local: bob.paths[1], Remote: netip.MustParseAddrPort("[2001:db8:66::6]:40000")}
			bob.engine.Handle([]byte(strings.Join(lines, "\r\n")), from, w.now, &bob.out)
			if got := bob.out.Packets[0].Fallback.String(); got != row.fallback {
				t.Errorf("to %s, want %s", got, row.fallback)
			}
		})
	}
	w := newWorld(t)
	alice := w.agent("alice", aliceA, nil)
	to := message.URI{Scheme: "sip", Host: "2001:db8:c::2", Params: message.Params{}.With("transport", "tcp")}
	if _, err := alice.engine.Invite(to, &fakeMedia{}, w.now, &alice.out); err != nil {
		t.Fatal(err)
	}
	if p := alice.out.Packets[0]; p.To.Transport != "TCP" || p.Fallback.IsValid() {
		t.Errorf("a request by %s to %v", p.To.Transport, p.Fallback)
	}
}

func TestTeredoIsWrittenInShort(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
	alice.addMTU(2, aliceB, 1280)
	alice.use(2)
	alice.call(toBob)
	w.pass(time.Second)
	bob.do(bob.engine.HangUp(1, w.now, &bob.out))
	w.pass(time.Second)
	invite, answers := string(w.find("INVITE")[0].data), w.find("200")
	if !strings.Contains(invite, "\r\ni: ") || !strings.Contains(string(answers[1].data), "\r\nv: ") || strings.Contains(string(answers[0].data), "\r\nv: ") {
		t.Errorf("%s\n%s\n%s", invite, answers[0].data, answers[1].data)
	}
}

// The ACK of a 2xx goes by UDP where its INVITE did, if it is whole then: nothing shows whether TCP works
// there, and an ACK is not tried by one after the other.
func TestLargeAck(t *testing.T) {
	for _, row := range []struct {
		name   string
		invite int // octets of padding
		route  int // octets that make the ACK large
		broken string
		want   string
	}{
		{"the INVITE by UDP", 0, 1000, "", "UDP"},
		{"the last that fits", 0, 1131, "", "UDP"},
		{"one that would be a fragment", 0, 1132, "", "TCP"},
		{"the INVITE by TCP", 900, 1000, "", "TCP"},
		{"the INVITE back by UDP, for TCP is refused", 900, 1000, "TCP", "UDP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.broken = row.broken
			s := &script{w: w, agent: w.agent("alice", aliceA, nil)}
			u, err := message.ParseURI(toBob)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.agent.engine.Invite(u, &fakeMedia{name: "alice", padding: row.invite}, w.now, &s.agent.out); err != nil {
				t.Fatal(err)
			}
			s.agent.flush()
			s.next("INVITE")
			invite := s.at
			for range 2 { // repeats as well
				s.at = invite
				s.answer(200, "b", "answer", "Record-Route", "<sip:"+strings.Repeat("x", row.route)+"@[2001:db8:c::2];lr>")
				acks := w.find("ACK")
				if len(acks) != 1 || acks[0].transport != row.want || !strings.Contains(string(acks[0].data), "Via: SIP/2.0/"+row.want+" ") {
					t.Errorf("%d ACKs, want one by %s", len(acks), row.want)
				}
			}
		})
	}
}
