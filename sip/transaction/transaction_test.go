// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	peer  = netip.MustParseAddrPort("[2001:db8::2]:5060")
)

// bench is a layer with a clock of its own, and what came out of it.
type bench struct {
	*Layer
	t   *testing.T
	now time.Time
	out Output
	// what handlers were told
	statuses []int
	err      error
}

func newBench(t *testing.T, s Settings) *bench { return &bench{Layer: New(s), t: t, now: start} }

func message(t *testing.T, lines ...string) sip.Message {
	t.Helper()
	m, err := sip.ParseMessage([]byte(strings.Join(lines, "\r\n") + "\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func request(t *testing.T, method, branch, via string) *sip.Request {
	t.Helper()
	return message(t, method+" sip:bob@[2001:db8::2] SIP/2.0", "Via: SIP/2.0/UDP "+via+";branch="+branch, "Route: <sip:proxy.example;lr>",
		"From: <sip:alice@example.com>;tag=a", "To: <sip:bob@example.com>", "Call-ID: c1", "CSeq: 7 "+method, "Max-Forwards: 70").(*sip.Request)
}

func (b *bench) hop(tr Transport) Hop { return Hop{Socket: 1, Transport: tr, Remote: peer} }

func (b *bench) send(method string, tr Transport) *Client {
	b.t.Helper()
	c, err := b.Send(request(b.t, method, Cookie+"x", "[2001:db8::1]:5060;rport"), b.hop(tr), func(res *sip.Response, err error, _ time.Time, _ *Output) {
		if res != nil {
			b.statuses = append(b.statuses, res.StatusCode)
		}
		b.err = errors.Join(b.err, err)
	}, b.now, &b.out)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) respond(c *Client, status int) {
	b.HandleResponse(Response(c.Request, status, "Some Reason", "b"), b.now, &b.out)
}

// pass lets time pass, and returns when what was sent in it, as offsets from its begin.
func (b *bench) pass(d time.Duration) []string {
	var sent []string
	from, until := b.now, b.now.Add(d)
	for at := b.Next(); !at.IsZero() && !at.After(until); at = b.Next() {
		b.now = at
		b.Tick(at, &b.out)
		for _, p := range b.sent() {
			sent = append(sent, p+" "+at.Sub(from).String())
		}
	}
	b.now = until
	return sent
}

// sent is the first word of each packet since the last call.
func (b *bench) sent() []string {
	var words []string
	for _, p := range b.out.Packets {
		line, _, _ := strings.Cut(string(p.Data), "\r\n")
		words = append(words, strings.TrimPrefix(strings.Fields(line)[0]+" "+strings.Fields(line)[1], "SIP/2.0 "))
	}
	b.out.Packets = nil
	for i := range words {
		words[i], _, _ = strings.Cut(words[i], " sip:")
	}
	return words
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestClientRepeats(t *testing.T) {
	for _, row := range []struct {
		name, method string
		transport    Transport
		first        []time.Duration
		want         []string
	}{
		{"INVITE by UDP doubles from T1: timer A", "INVITE", UDP, nil, []string{"INVITE 500ms", "INVITE 1.5s", "INVITE 3.5s", "INVITE 7.5s", "INVITE 15.5s", "INVITE 31.5s"}},
		{"others by UDP double up to T2: timer E", "BYE", UDP, nil, []string{"BYE 500ms", "BYE 1.5s", "BYE 3.5s", "BYE 7.5s", "BYE 11.5s", "BYE 15.5s", "BYE 19.5s", "BYE 23.5s", "BYE 27.5s", "BYE 31.5s"}},
		{"TCP repeats by itself", "INVITE", TCP, nil, nil},
		{"first repeats of a closed network come before T1", "INVITE", UDP, []time.Duration{60 * time.Millisecond, 180 * time.Millisecond}, []string{"INVITE 60ms", "INVITE 180ms", "INVITE 500ms", "INVITE 1.5s", "INVITE 3.5s", "INVITE 7.5s", "INVITE 15.5s", "INVITE 31.5s"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, Settings{FirstRepeats: row.first})
			b.send(row.method, row.transport)
			expect(t, "at once", b.sent(), row.method)
			expect(t, "repeats", b.pass(time.Minute), row.want...)
			if !errors.Is(b.err, ErrTimeout) {
				t.Errorf("after 64*T1: %v, want a timeout", b.err)
			}
			if b.Len() != 0 || !b.Next().IsZero() {
				t.Error("a transaction is left")
			}
		})
	}
}

func TestInviteClientResponses(t *testing.T) {
	t.Run("a provisional response ends repeats and timer B", func(t *testing.T) {
		b := newBench(t, Settings{})
		c := b.send("INVITE", UDP)
		b.sent()
		b.respond(c, 180)
		expect(t, "ringing for long", b.pass(3*time.Minute))
		if b.err != nil || !c.Waiting() {
			t.Errorf("ended: %v", b.err)
		}
	})
	t.Run("each repeat of a refusal is acknowledged and told once", func(t *testing.T) {
		b := newBench(t, Settings{})
		c := b.send("INVITE", UDP)
		b.sent()
		for range 3 {
			b.respond(c, 486)
		}
		ack := string(b.out.Packets[0].Data)
		for _, has := range []string{"branch=" + Cookie + "x", "Route: <sip:proxy.example;lr>", "CSeq: 7 ACK", "tag=b", "ACK sip:bob@[2001:db8::2] SIP/2.0"} {
			if !strings.Contains(ack, has) {
				t.Errorf("the ACK lacks %q:\n%s", has, ack)
			}
		}
		expect(t, "acknowledged", b.sent(), "ACK", "ACK", "ACK")
		if !slices.Equal(b.statuses, []int{486}) {
			t.Errorf("told of %v", b.statuses)
		}
		b.pass(31 * time.Second)
		if b.Len() != 1 {
			t.Error("timer D is shorter than 32 s")
		}
		if b.pass(time.Second); b.Len() != 0 {
			t.Error("timer D is longer than 32 s")
		}
	})
	t.Run("each 2xx is told, for 64*T1 (RFC 6026)", func(t *testing.T) {
		b := newBench(t, Settings{})
		c := b.send("INVITE", UDP)
		b.respond(c, 200)
		b.pass(31 * time.Second)
		b.respond(c, 200)
		if !slices.Equal(b.statuses, []int{200, 200}) {
			t.Errorf("told of %v", b.statuses)
		}
		b.pass(2 * time.Second)
		if b.Len() != 0 {
			t.Error("timer M does not end it")
		}
	})
}

func TestCancel(t *testing.T) {
	t.Run("before any response it waits for one", func(t *testing.T) {
		b := newBench(t, Settings{})
		c := b.send("INVITE", UDP)
		b.sent()
		b.Cancel(c, c.Hop, b.now, &b.out)
		expect(t, "at once", b.sent())
		b.respond(c, 100)
		expect(t, "after a provisional response", b.sent(), "CANCEL")
		b.respond(c, 487)
		expect(t, "after the refusal", b.sent(), "ACK")
	})
	t.Run("who ignores it is waited for no longer than 64*T1", func(t *testing.T) {
		b := newBench(t, Settings{})
		c := b.send("INVITE", UDP)
		b.respond(c, 180)
		b.Cancel(c, c.Hop, b.now, &b.out)
		b.pass(33 * time.Second)
		if !errors.Is(b.err, ErrTimeout) {
			t.Errorf("%v, want a timeout", b.err)
		}
	})
}

func TestDeadSocketEndsItsRequests(t *testing.T) {
	b := newBench(t, Settings{})
	c := b.send("INVITE", UDP)
	b.FailSocket(2, b.now, &b.out)
	if b.err != nil {
		t.Error("another socket's end ended it")
	}
	b.FailSocket(1, b.now, &b.out)
	if !errors.Is(b.err, ErrTransport) || c.Waiting() || b.Len() != 0 {
		t.Errorf("%v, want a transport error", b.err)
	}
}

func TestRerouteKeepsTheBranch(t *testing.T) {
	b := newBench(t, Settings{})
	c := b.send("INVITE", TCP)
	b.sent()
	b.pass(time.Second)
	b.Reroute(c, b.hop(UDP), b.now, &b.out)
	text := string(b.out.Packets[0].Data)
	if !strings.Contains(text, "SIP/2.0/UDP") || !strings.Contains(text, "branch="+Cookie+"x") {
		t.Errorf("rerouted:\n%s", text)
	}
	b.sent()
	expect(t, "repeats by UDP", b.pass(600*time.Millisecond), "INVITE 500ms")
}

func (b *bench) receive(method, branch, via string, tr Transport) (*Server, Verdict) {
	return b.HandleRequest(request(b.t, method, branch, via), Hop{Socket: 3, Transport: tr, Remote: netip.MustParseAddrPort("[2001:db8::9]:40000")}, b.now, &b.out)
}

func (b *bench) answer(s *Server, status int) {
	b.Respond(s, Response(s.Request, status, "Some Reason", "b"), b.now, &b.out)
}

func TestInviteServer(t *testing.T) {
	via := "[2001:db8::9]:5070"
	t.Run("100 after 200 ms if no one answers", func(t *testing.T) {
		b := newBench(t, Settings{})
		b.receive("INVITE", Cookie+"1", via, UDP)
		expect(t, "sent", b.pass(time.Second), "100 200ms")
	})
	t.Run("a refusal is repeated until acknowledged: timers G and H", func(t *testing.T) {
		b := newBench(t, Settings{})
		s, _ := b.receive("INVITE", Cookie+"1", via, UDP)
		b.answer(s, 486)
		expect(t, "at once", b.sent(), "486")
		expect(t, "repeats", b.pass(9*time.Second), "486 500ms", "486 1.5s", "486 3.5s", "486 7.5s")
		if _, v := b.receive("ACK", Cookie+"1", via, UDP); v != Absorbed {
			t.Error("the ACK of a refusal is not the transaction's")
		}
		expect(t, "after the ACK", b.pass(4*time.Second))
		if b.pass(time.Second); b.Len() != 0 {
			t.Error("timer I does not end it")
		}
	})
	t.Run("after a 2xx, repeats are absorbed and ACKs told (RFC 6026)", func(t *testing.T) {
		b := newBench(t, Settings{})
		s, _ := b.receive("INVITE", Cookie+"1", via, UDP)
		b.answer(s, 200)
		b.sent()
		if _, v := b.receive("INVITE", Cookie+"1", via, UDP); v != Absorbed {
			t.Error("a repeat started a transaction")
		}
		expect(t, "for a repeat", b.sent())
		if _, v := b.receive("ACK", Cookie+"1", via, UDP); v != Ack {
			t.Error("an ACK with the branch of the INVITE is not told")
		}
		if _, v := b.receive("ACK", Cookie+"2", via, UDP); v != Ack {
			t.Error("an ACK with a branch of its own is not told")
		}
		b.pass(33 * time.Second)
		if b.Len() != 0 {
			t.Error("timer L does not end it")
		}
	})
	t.Run("CANCEL finds its INVITE", func(t *testing.T) {
		b := newBench(t, Settings{})
		s, _ := b.receive("INVITE", Cookie+"1", via, UDP)
		c, v := b.receive("CANCEL", Cookie+"1", via, UDP)
		if v != Started || b.Cancelled(c.Request) != s {
			t.Error("not found")
		}
		other, _ := b.receive("CANCEL", Cookie+"2", via, UDP)
		if b.Cancelled(other.Request) != nil {
			t.Error("another's CANCEL found it")
		}
	})
}

func TestServerRepeatsItsAnswer(t *testing.T) {
	b := newBench(t, Settings{})
	s, _ := b.receive("BYE", Cookie+"1", "[2001:db8::9]:5070", UDP)
	b.receive("BYE", Cookie+"1", "[2001:db8::9]:5070", UDP)
	expect(t, "before an answer", b.sent())
	b.answer(s, 200)
	b.receive("BYE", Cookie+"1", "[2001:db8::9]:5070", UDP)
	expect(t, "after it", b.sent(), "200", "200")
	if _, v := b.receive("BYE", Cookie+"1", "[2001:db8::8]:5070", UDP); v != Started {
		t.Error("the same branch of another sender is the same transaction")
	}
	b.MoveServers(func(socket int) bool { return socket == 3 }, 4)
	b.receive("BYE", Cookie+"1", "[2001:db8::9]:5070", UDP)
	if p := b.out.Packets[0]; p.Socket != 4 {
		t.Errorf("leaves by socket %d", p.Socket)
	}
}

func TestOldBranches(t *testing.T) {
	b := newBench(t, Settings{})
	b.receive("BYE", "1", "[2001:db8::9]:5070", UDP)
	if _, v := b.receive("BYE", "1", "[2001:db8::9]:5070", UDP); v != Absorbed {
		t.Error("a repeat by RFC 2543 is not known")
	}
	r := request(t, "BYE", "1", "[2001:db8::9]:5070")
	r.CSeq().SeqNo++
	if _, v := b.HandleRequest(r, b.hop(UDP), b.now, &b.out); v != Started {
		t.Error("another CSeq is taken for a repeat")
	}
}

func TestWhereResponsesGo(t *testing.T) {
	for _, row := range []struct {
		name, via string
		transport Transport
		to, in    string
	}{
		{"as sent", "[2001:db8::9]:5070", UDP, "[2001:db8::9]:5070", "[2001:db8::9]:5070;branch"},
		{"no port is 5060", "[2001:db8::9]", UDP, "[2001:db8::9]:5060", "[2001:db8::9];branch"},
		{"from elsewhere", "[2001:db8::5]:5070", UDP, "[2001:db8::9]:5070", ";received=2001:db8::9"},
		{"by name", "ua.example:5070", UDP, "[2001:db8::9]:5070", ";received=2001:db8::9"},
		{"rport", "[2001:db8::9]:5070;rport", UDP, "[2001:db8::9]:40000", ";rport=40000;branch=z9hG4bK1;received=2001:db8::9"},
		{"TCP: the connection", "[2001:db8::9]:5070", TCP, "[2001:db8::9]:40000", "[2001:db8::9]:5070;branch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, Settings{})
			s, _ := b.receive("BYE", Cookie+"1", row.via, row.transport)
			b.answer(s, 200)
			p := b.out.Packets[0]
			if p.Remote.String() != row.to || !strings.Contains(string(p.Data), row.in) {
				t.Errorf("to %v:\n%s", p.Remote, p.Data)
			}
		})
	}
}

func TestTablesAreBounded(t *testing.T) {
	b := newBench(t, Settings{Max: 1})
	b.send("BYE", UDP)
	if _, err := b.Send(request(t, "BYE", Cookie+"y", "h"), b.hop(UDP), nil, b.now, &b.out); !errors.Is(err, ErrBusy) {
		t.Errorf("a second request: %v", err)
	}
	b.receive("BYE", Cookie+"1", "h", UDP)
	if _, v := b.receive("BYE", Cookie+"2", "h", UDP); v != Refused {
		t.Error("a second transaction was made")
	}
	if b.Stats().RefusedClients != 1 || b.Stats().RefusedServers != 1 {
		t.Errorf("counted %+v", b.Stats())
	}
}
