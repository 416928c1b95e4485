// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// TestInvited answers INVITE (RFC 3261 section 17.2.1, RFC 6026 section 7.1).
func TestInvited(t *testing.T) {
	const repeated = "1 486, 1.5 486, 2.5 486, 4.5 486, 8.5 486, 12.5 486, 16.5 486, 20.5 486, 24.5 486, 28.5 486, 32.5 486"
	for _, tt := range []struct {
		name string
		from Target
		play func(w *world, s *Server)
		want string
	}{
		{"100 where there is nothing else", udp, func(w *world, s *Server) { w.until(60); w.respond(s, 200) }, "0 request!, 0.2 100, 60 200"},
		{"no 100 behind another response", udp, func(w *world, s *Server) { w.until(0.1); w.respond(s, 180); w.until(60); w.respond(s, 200) }, "0 request!, 0.1 180, 60 200"},
		{"the last response again for each INVITE", udp, func(w *world, s *Server) {
			w.handle(s.Request, udp)
			w.until(0.1)
			w.respond(s, 180)
			w.until(0.5)
			w.handle(s.Request, udp)
			w.respond(s, 200)
		}, "0 request!, 0.1 180, 0.5 180, 0.5 200"},
		{"a refusal until there is an ACK", udp, func(w *world, s *Server) {
			w.until(0.1)
			w.respond(s, 486)
			w.until(2)
			w.handle(request(w.t, "ACK", branch), udp)
			w.handle(request(w.t, "ACK", branch), udp)
			w.handle(s.Request, udp)
			w.until(7)
			w.handle(request(w.t, "ACK", branch), udp) // the transaction is gone
		}, "0 request!, 0.1 486, 0.6 486, 1.6 486, 7 ack!"},
		{"a refusal without an ACK", udp, func(w *world, s *Server) { w.until(1); w.respond(s, 486) }, "0 request!, 0.2 100, " + repeated + ", 33 timeout!"},
		{"a refusal without an ACK, of a spared sender", udp, func(w *world, s *Server) { s.Spare(); w.until(1); w.respond(s, 486) }, "0 request!, 0.2 100, 1 486, 1.5 486, 2.5 486, 4.5 486, 33 timeout!"},
		{"a refusal over TCP", tcp, func(w *world, s *Server) {
			w.respond(s, 486)
			w.until(1)
			w.handle(request(w.t, "ACK", branch), tcp)
		}, "0 request!, 0 486"},
		{"a refusal over TCP without an ACK", tcp, func(w *world, s *Server) { w.respond(s, 486) }, "0 request!, 0 486, 32 timeout!"},
		{"nothing behind a refusal", udp, func(w *world, s *Server) {
			w.respond(s, 486)
			w.handle(request(w.t, "ACK", branch), udp)
			w.respond(s, 200)
			w.respond(s, 180)
		}, "0 request!, 0 486"},
		{"a 2xx is the user's to repeat, and its ACK", udp, func(w *world, s *Server) {
			w.respond(s, 200)
			w.until(0.5)
			w.respond(s, 200)
			w.respond(s, 486)
			w.handle(s.Request, udp)
			w.handle(request(w.t, "ACK", branch+"2"), udp)
			w.handle(request(w.t, "ACK", branch), udp)
		}, "0 request!, 0 200, 0.5 200, 0.5 ack!, 0.5 ack!"},
	} {
		w := newWorld(t, Defaults())
		tt.play(w, w.comes(request(t, "INVITE", branch), tt.from))
		w.until(200)
		w.expect(tt.name, tt.want)
		w.empty()
	}
}

// TestAsked answers other requests (RFC 3261 section 17.2.2).
func TestAsked(t *testing.T) {
	for _, tt := range []struct {
		name string
		from Target
		play func(w *world, s *Server)
		want string
	}{
		{"no answer", udp, func(w *world, s *Server) { w.handle(s.Request, udp) }, "0 request!, 32 timeout!"},
		{"a provisional answer alone", udp, func(w *world, s *Server) { w.respond(s, 100); w.until(1); w.handle(s.Request, udp) }, "0 request!, 0 100, 1 100, 32 timeout!"},
		{"the answer again for each request, until 64 T1 have passed", udp, func(w *world, s *Server) {
			w.until(1)
			w.respond(s, 200)
			w.until(32.9)
			w.handle(s.Request, udp)
			w.respond(s, 500)
			w.until(33.1)
			w.handle(s.Request, udp)
		}, "0 request!, 1 200, 32.9 200, 33.1 request!, 65.1 timeout!"},
		{"an answer over TCP ends it", tcp, func(w *world, s *Server) { w.respond(s, 200) }, "0 request!, 0 200"},
		{"no answer is wanted", udp, func(_ *world, s *Server) { s.End(); s.End() }, "0 request!"},
	} {
		w := newWorld(t, Defaults())
		tt.play(w, w.comes(request(t, "OPTIONS", branch), tt.from))
		w.until(200)
		w.expect(tt.name, tt.want)
		w.empty()
	}
}

// TestRepeat sends a reliable provisional response again as its user says (RFC 3262 section 3), and a
// 2xx behind which there is no ACK (RFC 3261 section 13.3.1.4).
func TestRepeat(t *testing.T) {
	w := newWorld(t, Defaults())
	s := w.comes(request(t, "INVITE", branch), udp)
	s.Repeat(&w.out)
	var timer Timer
	timer.Fire = func(now time.Time, out *Output) {
		s.Repeat(out)
		if now.Before(start.Add(2 * time.Second)) {
			w.layer.SetTimer(&timer, now.Add(time.Second))
		}
	}
	w.respond(s, 183)
	w.layer.SetTimer(&timer, start.Add(10*time.Second))
	w.layer.SetTimer(&timer, start.Add(500*time.Millisecond)) // in place of that
	w.until(5)
	w.respond(s, 200)
	w.layer.SetTimer(&timer, start.Add(6*time.Second))
	w.until(7)
	w.layer.SetTimer(&timer, start.Add(8*time.Second))
	w.layer.StopTimer(&timer)
	if timer.IsSet() {
		t.Error("it is set")
	}
	w.until(200)
	w.expect("repeated", "0 request!, 0 183, 0.5 183, 1.5 183, 2.5 183, 5 200, 6 200")
	w.empty()
}

// TestMoveServers has responses leave by another address when theirs is gone.
func TestMoveServers(t *testing.T) {
	w := newWorld(t, Defaults())
	s := w.comes(request(t, "OPTIONS", branch), udp)
	other := netip.MustParseAddrPort("[2001:db8::7]:5060")
	w.layer.MoveServers(func(local netip.AddrPort) bool { return local == other }, netip.AddrPort{})
	w.layer.MoveServers(func(local netip.AddrPort) bool { return local == udp.Local }, other)
	s.Respond(message.Reply(s.Request, 200, "OK", "tag"), w.now, &w.out)
	w.layer.Handle(request(t, "OPTIONS", branch), udp, w.now, &w.out)
	for _, one := range w.out.Sends {
		if one.To.Local != other || one.To.Remote.Addr() != udp.Remote.Addr() {
			t.Errorf("%d leaves by %v", one.Message.Status, one.To)
		}
	}
	if len(w.out.Sends) != 2 {
		t.Errorf("%d responses", len(w.out.Sends))
	}
}

// TestWhereResponsesGo is back to the source (sections 18.2.1 and 18.2.2, RFC 3581).
func TestWhereResponsesGo(t *testing.T) {
	for _, tt := range []struct{ name, via, transport, to, in string }{
		{"the port of Via", "[2001:db8::9]:5070", "UDP", "[2001:db8::9]:5070", "[2001:db8::9]:5070;branch"},
		{"no port is 5060", "[2001:db8::9]", "UDP", "[2001:db8::9]:5060", "[2001:db8::9];branch"},
		{"from elsewhere", "[2001:db8::5]:5070", "UDP", "[2001:db8::9]:5070", ";received=2001:db8::9"},
		{"rport", "[2001:db8::9]:5070;rport", "UDP", "[2001:db8::9]:40000", ";rport=40000;branch=" + branch + ";received=2001:db8::9"},
		{"TCP: the connection", "[2001:db8::9]:5070", "TCP", "[2001:db8::9]:40000", "[2001:db8::9]:5070;branch"},
	} {
		w := newWorld(t, Defaults())
		m := request(t, "OPTIONS", branch)
		m.Set("Via", "SIP/2.0/"+tt.transport+" "+tt.via+";branch="+branch)
		w.layer.Handle(m, Target{Transport: tt.transport, Local: udp.Local, Remote: netip.MustParseAddrPort("[2001:db8::9]:40000")}, w.now, &w.out)
		s := w.out.Events[0].Server
		s.Respond(message.Reply(s.Request, 200, "OK", "tag"), w.now, &w.out)
		if one := w.out.Sends[0]; one.To.Remote.String() != tt.to || !strings.Contains(one.Message.Get("Via"), tt.in) {
			t.Errorf("%s: to %v:\n%s", tt.name, one.To, one.Message)
		}
	}
}

// TestSame tells requests apart (section 17.2.3).
func TestSame(t *testing.T) {
	change := func(method, branch string, f func(*message.Message)) *message.Message {
		m := request(t, method, branch)
		f(m)
		return m
	}
	for _, tt := range []struct {
		name string
		m    *message.Message
		same bool
	}{
		{"the same", request(t, "INVITE", branch), true},
		{"the same from elsewhere on the way", change("INVITE", branch, func(m *message.Message) { m.RemoveFirst("Route") }), true},
		{"another branch", request(t, "INVITE", branch+"2"), false},
		{"another sender with that branch", change("INVITE", branch, func(m *message.Message) { m.Set("Via", "SIP/2.0/UDP other;branch="+branch) }), false},
		{"another method", request(t, "OPTIONS", branch), false},
		{"a CANCEL is a transaction of its own", request(t, "CANCEL", branch), false},
	} {
		w := newWorld(t, Defaults())
		s := w.comes(request(t, "INVITE", branch), udp)
		w.told()
		w.handle(tt.m, udp)
		if got := w.told() == ""; got != tt.same {
			t.Errorf("%s: absorbed %t", tt.name, got)
		}
		if tt.m.Method == "CANCEL" && (w.layer.Cancelled(tt.m) != s || s.Answered()) {
			t.Error("the CANCEL does not find its INVITE")
		}
	}
	// Without branches, as in RFC 2543.
	w := newWorld(t, Defaults())
	old := w.comes(request(t, "INVITE", ""), udp)
	w.handle(request(t, "INVITE", ""), udp)
	w.respond(old, 486)
	w.handle(change("ACK", "", func(m *message.Message) { m.Set("To", "<sip:bob@example.com>;tag=tag") }), udp)
	w.until(20)
	w.expect("of RFC 2543", "0 request!, 0 486")
	w.handle(change("INVITE", "", func(m *message.Message) { m.Set("CSeq", "8 INVITE") }), udp)
	w.expect("a later one", "20 request!")
}

// TestBounds turns away what there is no room for, and lets no source take all of it.
func TestBounds(t *testing.T) {
	s := Defaults()
	s.Servers, s.Clients, s.PerSource = 5, 2, 3
	w := newWorld(t, s)
	begin := func(from, branch string) string {
		target := udp
		target.Remote = netip.MustParseAddrPort(from)
		w.handle(request(t, "OPTIONS", message.Cookie+branch), target)
		return w.told()
	}
	for i, tt := range []struct{ from, want string }{
		{"[2001:db8:0:1::1]:1", "request"}, {"[2001:db8:0:1::2]:2", "request"}, {"[2001:db8:0:1::3]:3", "request"}, {"[2001:db8:0:1::4]:4", "overload"},
		{"192.0.2.1:1", "request"}, {"[::ffff:192.0.2.1]:1", "request"}, {"192.0.2.2:1", "overload"},
	} {
		if got := begin(tt.from, fmt.Sprint(i)); got != "0 "+tt.want+"!" {
			t.Errorf("%d, from %s: %s", i, tt.from, got)
		}
	}
	if st := w.layer.Stats(); st.Overloads != 1 || st.SourceOverloads != 1 {
		t.Errorf("%+v", st)
	}
	for i := range 3 {
		_, err := w.layer.Start(request(t, "BYE", fmt.Sprint(branch, i)), udp, 0, w.now, &w.out)
		if (err == nil) != (i < 2) {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if n := w.layer.Stats().Unsent; n != 1 {
		t.Errorf("%d requests had no room, want one", n)
	}
	w.until(100)
	w.told()
	w.empty()
	if got := begin("192.0.2.2:1", "again"); got != "100 request!" {
		t.Errorf("when all have ended: %s", got)
	}
}

// TestLoss has two layers speak to each other over a path that loses half of everything, repeats
// and delays: each request gets one final answer or a timeout at its client, and nothing is left.
func TestLoss(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	finals, timeouts := 0, 0
	for round := range 80 {
		method, status := [...]string{"INVITE", "OPTIONS"}[round%2], [...]int{200, 486}[round/2%2]
		a, b := newWorld(t, Defaults()), newWorld(t, Defaults())
		type flight struct {
			at   time.Time
			to   *world
			data []byte
		}
		var air []flight
		requests, answers, over := 0, 0, 0
		settle := func(w, other *world, now time.Time) {
			for _, s := range w.out.Sends {
				for range 1 + dice.IntN(2) {
					if dice.IntN(2) == 0 {
						air = append(air, flight{now.Add(time.Duration(1+dice.IntN(300)) * time.Millisecond), other, s.Message.Append(nil)})
					}
				}
			}
			events := append([]Event{}, w.out.Events...)
			w.out.Reset()
			for _, e := range events {
				switch {
				case e.Kind == Request:
					requests++
					e.Server.Respond(message.Reply(e.Message, status, "Reason", "tag"), now, &w.out)
				case e.Kind == Response && e.Message.Status >= 200:
					answers++
				case e.Kind == Timeout && e.Client != nil:
					over++
				}
			}
			for _, s := range w.out.Sends {
				air = append(air, flight{now.Add(time.Millisecond), other, s.Message.Append(nil)})
			}
			w.out.Reset()
		}
		a.layer.Handle(request(t, "ACK", branch+"stray"), udp, start, &a.out)
		a.out.Reset()
		if _, err := a.layer.Start(request(t, method, branch), udp, 0, start, &a.out); err != nil {
			t.Fatal(err)
		}
		settle(a, b, start)
		for now := start; now.Before(start.Add(2 * time.Minute)); now = now.Add(20 * time.Millisecond) {
			for _, w := range []*world{a, b} {
				other := map[bool]*world{true: b, false: a}[w == a]
				w.layer.Tick(now, &w.out)
				settle(w, other, now)
			}
			landed := air
			air = nil
			for _, f := range landed {
				if f.at.After(now) {
					air = append(air, f)
					continue
				}
				m, fault := message.Parse(f.data)
				if fault != nil {
					t.Fatal(fault)
				}
				other := map[bool]*world{true: b, false: a}[f.to == a]
				f.to.layer.Handle(m, udp, now, &f.to.out)
				settle(f.to, other, now)
			}
		}
		if requests > 1 || answers == 0 && over != 1 || answers > 0 && over != 0 || answers > 1 && (method != "INVITE" || status != 200) {
			t.Errorf("round %d, %s: %d requests, %d answers, %d timeouts", round, method, requests, answers, over)
		}
		a.empty()
		b.empty()
		finals, timeouts = finals+min(answers, 1), timeouts+over
	}
	if finals < 60 {
		t.Errorf("%d answers and %d timeouts of 80", finals, timeouts)
	}
}

// BenchmarkServer answers a request, from its arrival to its end.
func BenchmarkServer(b *testing.B) {
	l := New(Defaults())
	var out Output
	requests := make([]*message.Message, 1000)
	for i := range requests {
		requests[i] = request(b, "OPTIONS", fmt.Sprint(branch, i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		now := start.Add(time.Duration(i) * time.Second) // so that each has ended when its like comes
		l.Tick(now, &out)
		l.Handle(requests[i%len(requests)], udp, now, &out)
		out.Events[len(out.Events)-1].Server.Respond(message.Reply(requests[i%len(requests)], 200, "OK", "tag"), now, &out)
		out.Reset()
	}
}
