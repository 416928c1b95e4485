// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// TestRepetitions answers a REGISTER that comes again as before, if it has changed something, and
// keeps nothing of one that was refused.
func TestRepetitions(t *testing.T) {
	r := newRig(t)
	p := newPhone(t, r.p.Engine, "bob")
	c := p.challenged()
	register := p.request("Contact: <sip:bob@[2001:db8::1]>")
	r.send(register.Clone(), caller)
	if servers, _ := r.p.layer.Len(); servers != 0 {
		t.Error("what was refused is remembered")
	}
	r.expect("without credentials", "401 :1")
	a := c.Answer("bob", c.Algorithm.HA1("bob", realm, "bob"), "REGISTER", register.URI, "cnonce", 1)
	register.Add("Authorization", a.String())
	r.send(register.Clone(), caller)
	first := r.got("200", "2001:db8::1")
	r.send(register.Clone(), caller)
	if again := r.got("200", "2001:db8::1"); again.String() != first.String() {
		t.Errorf("the second answer is\n%s\nwant\n%s", again, first)
	}
	r.empty()
}

// TestOverload answers what there is no room for, without remembering it.
func TestOverload(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) { p.Transactions.Servers = 1 })
	r.bind("bob", "<sip:[2001:db8::2]>")
	for i := range 3 {
		r.send(r.make("OPTIONS", bob, fmt.Sprint(i)), caller)
	}
	r.expect("three", "OPTIONS :2, 503 :1, 503 :1")
}

// TestStrangersLeaveRoom keeps half of all places from who proves nothing, and the last quarter for what goes on with a
// call that there is, and for REGISTER.
func TestStrangersLeaveRoom(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ProxySettings)
	}{
		{"requests that have come", func(p *ProxySettings) { p.Transactions.Servers = 8 }},
		{"requests that were sent", func(p *ProxySettings) { p.Transactions.Clients = 8 }},
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/128")}
			tt.change(p)
		})
		r.bind("bob", "<sip:[2001:db8::2]>")
		refused := func(from string, begin, end int) (n int) {
			for i := begin; i < end; i++ {
				r.send(r.make("INVITE", bob, fmt.Sprint(i)), from)
				if got := r.told(); !strings.Contains(got, "INVITE :2") {
					n++
				}
			}
			return n
		}
		r.send(r.make("INVITE", bob, "0"), caller)
		invite := r.got("INVITE", "2001:db8::2")
		if n := refused(caller, 1, 10); n != 6 {
			t.Errorf("%s: of ten strangers' calls %d are refused, want 6", tt.name, n)
		}
		if n := refused("[2001:db8::8]:5060", 10, 20); n != 8 {
			t.Errorf("%s: of ten others then %d are refused, want 8", tt.name, n)
		}
		r.send(r.make("BYE", "sip:[2001:db8::2]", "bye", "Route: "+invite.Get("Record-Route")), caller)
		r.expect(tt.name+", BYE", "BYE :2")
		r.send(message.Reply(invite, 180, "Ringing", "b"), "[2001:db8::2]:5060")
		r.told()
		r.send(r.make("CANCEL", bob, "0"), caller)
		r.expect(tt.name+", CANCEL", "200 :1, CANCEL :2")
		r.until(time.Second)
		r.told()
	}
	r := newRig(t, func(_ *Settings, p *ProxySettings) { p.Transactions.Servers = 4 })
	r.bind("bob", "<sip:[2001:db8::2]>")
	for i := range 10 {
		r.send(r.make("INVITE", bob, fmt.Sprint(i)), caller)
	}
	r.told()
	r.send(newPhone(t, r.p.Engine, "bob").request(), caller)
	r.expect("REGISTER", "401 :1")
	r.empty()
	if n := r.p.layer.Spared(); n != 0 {
		t.Errorf("%d are spared, and there are none", n)
	}
}

// TestNoStrangers has calls take three quarters of all places where nobody is asked for a proof.
func TestNoStrangers(t *testing.T) {
	for name, change := range map[string]func(*ProxySettings){
		"requests that have come": func(p *ProxySettings) { p.Transactions.Servers = 8 },
		"requests that were sent": func(p *ProxySettings) { p.Transactions.Clients = 8 },
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Prove = false
			change(p)
		})
		r.bind("bob", "<sip:[2001:db8::2]>")
		taken := 0
		for i := range 10 {
			r.send(r.make("INVITE", bob, fmt.Sprint(i)), caller)
			taken += strings.Count(r.told(), "INVITE :2")
		}
		if taken != 6 {
			t.Errorf("%s: of ten calls %d are taken, want 6", name, taken)
		}
		r.empty()
	}
}

// TestCallsToTerminalsLeaveRoom has new calls that come by Path leave the last quarter to those that there are.
func TestCallsToTerminalsLeaveRoom(t *testing.T) {
	for name, change := range map[string]func(*ProxySettings){
		"requests that have come": func(p *ProxySettings) { p.Transactions.Servers = 8 },
		"requests that were sent": func(p *ProxySettings) { p.Transactions.Clients = 8 },
	} {
		r := edge(t)
		r.send(r.make("REGISTER", "sip:example.com", "1", "Contact: <sip:carol@10.0.0.1>"), "192.0.2.9:40000")
		path := "Route: " + r.got("REGISTER", "2001:db8::7").Get("Path")
		r.empty()
		ps := r.p.settings
		change(&ps)
		if err := r.p.Reconfigure(r.p.Engine.settings, ps); err != nil {
			t.Fatal(err)
		}
		taken := 0
		for i := range 10 {
			r.send(r.make("INVITE", "sip:carol@10.0.0.1", fmt.Sprint("i", i), path), "[2001:db8::7]:5060")
			taken += strings.Count(r.told(), "INVITE 192.0.2.9")
		}
		if taken != 6 {
			t.Errorf("%s: of ten calls %d are taken, want 6", name, taken)
		}
		notify := r.make("NOTIFY", "sip:carol@10.0.0.1", "n", path)
		notify.Set("To", notify.Get("To")+";tag=t")
		r.send(notify, "[2001:db8::7]:5060")
		r.expect(name+", NOTIFY", "NOTIFY 192.0.2.9")
		r.told()
		r.empty()
	}
}

// FuzzProxy sends requests to nobody but those that are registered here.
func FuzzProxy(f *testing.F) {
	f.Add([]byte("INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP x;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nRoute: <sip:x@[2001:db8::5];lr>\r\n\r\n"))
	f.Add([]byte("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP [2001:db8::5];branch=z9hG4bK1, SIP/2.0/UDP 255.255.255.255\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, fault := message.Parse(text)
		if fault != nil {
			return
		}
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>")
		r.p.Handle(m, target(caller), r.now, &r.out)
		for _, s := range r.out.Sends {
			if to := s.To.Remote.Addr().String(); s.Message.IsRequest() && to != "2001:db8::2" || !s.Message.IsRequest() && to != "2001:db8::1" {
				t.Errorf("%q\nsends to %s\n%s", text, to, s.Message)
			}
		}
	})
}

// TestAmplification bounds what an answer to a forged source has more than the request.
func TestAmplification(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		want          string // the status
		most          float64
	}{
		{"a challenge", "REGISTER sip:example.com SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKx\r\nf:<sip:bob@example.com>\r\nt:<sip:bob@example.com>\r\ni:1\r\nCSeq:1 REGISTER\r\n\r\n", "401", 5},
		{"a refusal", "BYE sip:a@b SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKx\r\nf:<sip:a@b>\r\nt:<sip:a@b>\r\ni:1\r\nCSeq:1 BYE\r\n\r\n", "403", 1.9},
	} {
		m, f := message.Parse([]byte(tt.request))
		if f != nil {
			t.Fatal(f)
		}
		r := newRig(t)
		r.send(m, caller)
		if len(r.inbox) != 1 || fmt.Sprint(r.inbox[0].Message.Status) != tt.want {
			t.Fatalf("%s: %+v", tt.name, r.inbox)
		}
		if ratio := float64(len(r.inbox[0].Message.Append(nil))) / float64(len(tt.request)); ratio > tt.most {
			t.Errorf("%s: %.2f of the request, want %.2f at most", tt.name, ratio, tt.most)
		}
		r.until(60e9)
		if len(r.inbox) != 1 {
			t.Errorf("%s: sent again", tt.name)
		}
	}
}

// TestRelayedAmplification bounds what an INVITE brings a forged source that never acknowledges: how often the callee
// rings, refuses or accepts, which he repeats himself.
func TestRelayedAmplification(t *testing.T) {
	const request = "INVITE sip:bob@example.com SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKx\r\nf:<sip:a@b>;tag=1\r\nt:<sip:bob@example.com>\r\ni:1\r\nCSeq:1 INVITE\r\n\r\n"
	for _, tt := range []struct {
		name  string
		play  func(r *rig, answer func(status int))
		count int
		most  float64
	}{
		{"a refusal", func(_ *rig, answer func(int)) { answer(486) }, 5, 6.8},
		{"a refusal that rang", func(_ *rig, answer func(int)) { answer(180); answer(486) }, 6, 8.1},
		{"a call that is taken", func(r *rig, answer func(int)) {
			answer(180)
			for _, after := range repeats {
				r.until(after)
				answer(200)
			}
		}, 13, 17.6},
		{"a call that is taken again and again", func(r *rig, answer func(int)) {
			for i := range 3200 {
				r.until(time.Duration(i) * 10 * time.Millisecond)
				answer(200)
			}
		}, 12, 16.3},
		{"one that rings and rings", func(_ *rig, answer func(int)) {
			for range 100 {
				answer(180)
			}
			answer(486)
		}, 21, 28.3},
	} {
		m, f := message.Parse([]byte(request))
		if f != nil {
			t.Fatal(f)
		}
		r := newRig(t)
		r.bind("bob", "<sip:[2001:db8::2]>;expires=3600")
		r.send(m, caller)
		invite := r.inbox[1].Message
		tt.play(r, func(status int) { r.send(message.Reply(invite, status, "Reason", "b"), "[2001:db8::2]:5060") })
		r.until(60e9)
		count, octets := 0, 0
		for _, one := range r.inbox {
			if one.To.Remote.Addr().String() == "2001:db8::1" {
				count, octets = count+1, octets+len(one.Message.Append(nil))
			}
		}
		if ratio := float64(octets) / float64(len(request)); count != tt.count || ratio > tt.most {
			t.Errorf("%s: %d messages, %.2f of the request, want %d and %.2f at most", tt.name, count, ratio, tt.count, tt.most)
		}
	}
}
