// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// TestNoResponse repeats requests and gives up (RFC 3261 sections 17.1.1.2 and 17.1.2.2).
func TestNoResponse(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		to           Target
		want         string
	}{
		{"INVITE", "INVITE", udp, "0 INVITE, 0.5 INVITE, 1.5 INVITE, 3.5 INVITE, 7.5 INVITE, 15.5 INVITE, 31.5 INVITE, 32 timeout!"},
		{"INVITE over TCP", "INVITE", tcp, "0 INVITE, 32 timeout!"},
		{"another", "BYE", udp, "0 BYE, 0.5 BYE, 1.5 BYE, 3.5 BYE, 7.5 BYE, 11.5 BYE, 15.5 BYE, 19.5 BYE, 23.5 BYE, 27.5 BYE, 31.5 BYE, 32 timeout!"},
		{"another over TCP", "BYE", tcp, "0 BYE, 32 timeout!"},
	} {
		w := newWorld(t, Defaults())
		w.start(request(t, tt.method, branch), tt.to)
		w.until(100)
		w.expect(tt.name, tt.want)
		w.empty()
	}
}

// TestFaster repeats for the first time when it is told to.
func TestFaster(t *testing.T) {
	w := newWorld(t, Defaults())
	if _, err := w.layer.Start(request(t, "INVITE", branch), udp, 100*time.Millisecond, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.note()
	w.until(1)
	w.expect("faster", "0 INVITE, 0.1 INVITE, 0.3 INVITE, 0.7 INVITE")
	if _, err := w.layer.Start(request(t, "INVITE", branch+"2"), udp, time.Minute, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.note()
	w.until(1.5)
	w.expect("never slower than T1", "1 INVITE, 1.5 INVITE, 1.5 INVITE")
}

// TestResponses takes responses as they come.
func TestResponses(t *testing.T) {
	type response struct {
		at     float64
		status int
	}
	for _, tt := range []struct {
		name, method string
		to           Target
		responses    []response
		want         string
	}{
		{"a provisional one stops repetitions of INVITE, and its end", "INVITE", udp, []response{{0.6, 180}, {90, 200}},
			"0 INVITE, 0.5 INVITE, 0.6 response180!, 90 response200!"},
		{"a provisional one slows down others", "BYE", udp, []response{{1, 100}, {9, 100}, {20, 200}},
			"0 BYE, 0.5 BYE, 1 response100!, 5 BYE, 9 BYE, 9 response100!, 13 BYE, 17 BYE, 20 response200!"},
		{"further 2xx are told, until 64 T1 have passed", "INVITE", udp, []response{{1, 200}, {2, 200}, {32.9, 200}, {33.1, 200}},
			"0 INVITE, 0.5 INVITE, 1 response200!, 2 response200!, 32.9 response200!, 33.1 stray200!"},
		{"behind a 2xx nothing else is told", "INVITE", tcp, []response{{1, 200}, {2, 180}, {3, 486}}, "0 INVITE, 1 response200!"},
		{"a refusal is acknowledged, each time it comes", "INVITE", udp, []response{{0.1, 486}, {0.6, 486}, {32, 486}, {32.2, 486}},
			"0 INVITE, 0.1 ACK, 0.1 response486!, 0.6 ACK, 32 ACK, 32.2 stray486!"},
		{"a refusal over TCP ends it", "INVITE", tcp, []response{{0.1, 486}, {0.2, 486}}, "0 INVITE, 0.1 ACK, 0.1 response486!, 0.2 stray486!"},
		{"a 2xx behind a refusal is told to no one", "INVITE", udp, []response{{0.1, 486}, {0.2, 200}}, "0 INVITE, 0.1 ACK, 0.1 response486!"},
		{"an answer to another is told once", "BYE", udp, []response{{0.1, 200}, {5, 200}, {5.2, 200}}, "0 BYE, 0.1 response200!, 5.2 stray200!"},
		{"an answer to another over TCP ends it", "BYE", tcp, []response{{0.1, 481}, {0.2, 481}}, "0 BYE, 0.1 response481!, 0.2 stray481!"},
	} {
		w := newWorld(t, Defaults())
		c := w.start(request(t, tt.method, branch), tt.to)
		for _, r := range tt.responses {
			w.until(r.at)
			w.handle(message.Reply(c.Request, r.status, "Reason", "tag"), tt.to)
		}
		w.until(200)
		w.expect(tt.name, tt.want)
		w.empty()
	}
}

// TestMatching tells responses apart by branch and method (section 17.1.3).
func TestMatching(t *testing.T) {
	w := newWorld(t, Defaults())
	invite := w.start(request(t, "INVITE", branch), udp)
	w.handle(message.Reply(invite.Request, 180, "Ringing", "tag"), udp)
	if !invite.Provisional() || invite.Done() {
		t.Error("the INVITE cannot be cancelled")
	}
	cancel := w.start(Cancel(invite.Request), udp)
	w.handle(message.Reply(cancel.Request, 200, "OK", "tag"), udp)
	if invite.Done() || !invite.Provisional() {
		t.Error("the answer to CANCEL has ended the INVITE")
	}
	w.handle(message.Reply(request(t, "INVITE", branch+"2"), 200, "OK", "tag"), udp)
	w.handle(message.Reply(invite.Request, 487, "Request Terminated", "tag"), udp)
	w.expect("both", "0 INVITE, 0 response180!, 0 CANCEL, 0 response200!, 0 stray200!, 0 ACK, 0 response487!")
	for name, m := range map[string]*message.Message{"the same branch": request(t, "INVITE", branch), "no branch": request(t, "INVITE", "")} {
		if _, err := w.layer.Start(m, udp, 0, w.now, &w.out); !errors.Is(err, ErrBranch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDerived makes ACK and CANCEL of an INVITE (sections 9.1 and 17.1.1.3).
func TestDerived(t *testing.T) {
	invite := request(t, "INVITE", branch)
	ack := Acknowledge(invite, message.Reply(invite, 486, "Busy Here", "tag"))
	cancel := Cancel(invite)
	for _, tt := range []struct {
		name, cseq, to string
		m              *message.Message
	}{{"ACK", "7 ACK", "<sip:bob@example.com>;tag=tag", ack}, {"CANCEL", "7 CANCEL", "<sip:bob@example.com>", cancel}} {
		m := tt.m
		if m.Method != tt.name || m.URI != invite.URI || len(m.All("Via")) != 1 || m.Get("Via") != invite.Get("Via") || m.Get("CSeq") != tt.cseq || m.Get("To") != tt.to ||
			m.Get("From") != invite.Get("From") || m.CallID() != "call" || strings.Join(m.All("Route"), " ") != "<sip:p;lr> <sip:q;lr>" {
			t.Errorf("%s is\n%s", tt.name, m)
		}
		if _, f := message.Parse(m.Append(nil)); f != nil {
			t.Errorf("%s: %v", tt.name, f)
		}
	}
}

// TestReroute sends what no one has answered by another transport, as a repetition (section 18.1.1).
func TestReroute(t *testing.T) {
	w := newWorld(t, Defaults())
	c := w.start(request(t, "INVITE", branch), tcp)
	w.until(1)
	c.Reroute(udp, w.now, &w.out)
	if s := w.out.Sends[0]; s.To != udp || s.Message.Get("Via") != "SIP/2.0/UDP client.example.com:5070;branch="+branch {
		t.Errorf("to %v:\n%s", s.To, s.Message)
	}
	w.note()
	w.until(2)
	w.handle(message.Reply(c.Request, 180, "Ringing", "tag"), udp)
	c.Reroute(tcp, w.now, &w.out)
	w.expect("by UDP", "0 INVITE, 1 INVITE, 1.5 INVITE, 2 response180!")
}

// TestCancel gives an INVITE up (section 9.1).
func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(w *world, c *Client, respond func(status int))
		want string
	}{
		{"before any response it waits for one", func(w *world, c *Client, respond func(int)) {
			c.Cancel(udp, w.now, &w.out)
			w.until(0.1)
			respond(100)
			respond(180)
			w.until(0.2)
			respond(487)
		}, "0 INVITE, 0.1 CANCEL, 0.1 response100!, 0.1 response180!, 0.2 ACK, 0.2 response487!"},
		{"behind a provisional one it goes at once, and once", func(w *world, c *Client, respond func(int)) {
			respond(180)
			c.Cancel(udp, w.now, &w.out)
			c.Cancel(udp, w.now, &w.out)
			w.note()
			w.until(0.1)
			respond(487)
		}, "0 INVITE, 0 response180!, 0 CANCEL, 0.1 ACK, 0.1 response487!"},
		{"who ignores it is waited for no longer than 64 T1", func(w *world, c *Client, respond func(int)) {
			respond(180)
			w.until(60)
			c.Cancel(tcp, w.now, &w.out)
			w.note()
			w.until(90)
			respond(180)
		}, "0 INVITE, 0 response180!, 60 CANCEL, 90 response180!, 92 timeout!, 92 timeout!"},
		{"behind a final one there is nothing to cancel", func(w *world, c *Client, respond func(int)) {
			respond(200)
			c.Cancel(udp, w.now, &w.out)
		}, "0 INVITE, 0 response200!"},
	} {
		w := newWorld(t, Defaults())
		c := w.start(request(t, "INVITE", branch), udp)
		tt.play(w, c, func(status int) {
			w.handle(message.Reply(c.Request, status, "Reason", "tag"), udp)
			if status < 200 {
				return
			}
			for _, cancel := range w.layer.Matching(func(c *Client) bool { return c.Request.Method == "CANCEL" }) {
				cancel.Forget()
			}
		})
		w.until(200)
		w.expect(tt.name, tt.want)
		w.empty()
	}
}

// TestForget tells nothing of what no one wants to know any more.
func TestForget(t *testing.T) {
	w := newWorld(t, Defaults())
	c := w.start(request(t, "INVITE", branch), udp)
	c.User = "someone"
	c.Fail(&w.out) // is told when the user comes to it
	c.Forget()
	if e := w.out.Events[0]; e.Client.User != nil || !c.Done() || c.Waiting() {
		t.Errorf("%+v", e.Client)
	}
	w.start(request(t, "INVITE", branch), udp).Forget()
	w.until(100)
	w.expect("forgotten", "0 INVITE, 0 INVITE, 0 unreachable!")
	w.empty()
}

// TestFail ends what could not be sent, at once (section 17.1.4).
func TestFail(t *testing.T) {
	w := newWorld(t, Defaults())
	w.start(request(t, "INVITE", branch+"a"), udp)
	w.start(request(t, "BYE", branch+"b"), udp) // whose key is the lesser
	other := w.start(request(t, "INVITE", branch+"c"), tcp)
	answered := w.start(request(t, "INVITE", branch+"d"), udp)
	w.handle(message.Reply(answered.Request, 200, "OK", "tag"), udp)
	w.told()
	w.layer.FailAll(func(c *Client) bool { return c.To.Transport == "UDP" }, &w.out)
	if first := w.out.Events[0].Message.Method; first != "INVITE" {
		t.Errorf("%s is told first, want the oldest", first)
	}
	w.expect("all of UDP", "0 unreachable!, 0 unreachable!")
	if _, clients := w.layer.Len(); clients != 1 || other.Done() || !answered.Done() {
		t.Errorf("%d clients are left", clients)
	}
	other.Fail(&w.out)
	w.expect("the other", "0 unreachable!")
	w.until(100)
	w.expect("nothing more", "")
	w.empty()
}
