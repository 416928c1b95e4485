// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// proxy is this project's own, with its registrar.
type proxy struct {
	w      *world
	at     netip.AddrPort
	engine *registrar.Proxy
	out    registrar.Output
}

// addProxy adds a proxy with accounts, each of which has its name for a password.
func (w *world) addProxy(names ...string) {
	w.t.Helper()
	p := &proxy{w: w, at: netip.MustParseAddrPort("[2001:db8:e::5]:5060")}
	s, ps := registrar.Defaults(), registrar.ProxyDefaults()
	s.Domains, s.Hosts = []string{"example.com"}, []string{p.at.Addr().String()}
	for _, name := range names {
		s.Accounts = append(s.Accounts, registrar.Account{
			Username: name, Public: []string{"sip:" + name + "@example.com"},
			HA1: map[digest.Algorithm]string{digest.SHA256: digest.SHA256.HA1(name, "example.com", name)},
		})
	}
	ps.Listeners = []registrar.Listener{{Transport: "UDP", Address: p.at}, {Transport: "TCP", Address: p.at}}
	var err error
	if p.engine, err = registrar.NewProxy(s, ps, seed{7}); err != nil {
		w.t.Fatal(err)
	}
	w.proxy = p
}

func (p *proxy) handle(f flight) {
	m, fault := message.Parse(f.data)
	if fault != nil {
		p.w.t.Errorf("the proxy refuses as %v\n%s", fault, f.data)
		return
	}
	p.engine.Handle(m, transaction.Target{Transport: f.transport, Local: p.at, Remote: f.from}, p.w.now, &p.out)
	p.flush()
}

func (p *proxy) tick() {
	p.engine.Tick(p.w.now, &p.out)
	p.flush()
}

func (p *proxy) flush() {
	for _, s := range p.out.Sends {
		p.w.send(p.at, s.To.Remote, s.To.Transport, s.Message.Append(nil), nil)
	}
	p.out.Reset()
}

// bound is where someone is registered.
func (p *proxy) bound(name string) string {
	var list []string
	for _, b := range p.engine.Table().Lookup("sip:"+name+"@example.com", p.w.now) {
		list = append(list, b.URI.HostPort())
	}
	return strings.Join(list, " ")
}

// TestBehindAProxy has calls by the registrar and proxy of this project, which asks for credentials
// and stays in the path. Whatever happens to a call, one binding is left of each end, BYE arrives,
// and nothing stays behind.
func TestBehindAProxy(t *testing.T) {
	leave := func(a *agent, to string) {
		a.add(2, to)
		a.lost(1)
		a.use(2)
	}
	for _, row := range []struct {
		name       string
		play       func(w *world, alice, bob *agent)
		alice, bob string // where they are in the end
		within     time.Duration
	}{
		{"nothing", func(*world, *agent, *agent) {}, aliceA, bobA, 0},
		{"held and resumed", func(w *world, alice, _ *agent) {
			alice.do(alice.engine.Hold(1, true, w.now, &alice.out))
			w.pass(time.Second)
			alice.do(alice.engine.Hold(1, false, w.now, &alice.out))
		}, aliceA, bobA, 0},
		{"the caller moves", func(_ *world, alice, _ *agent) { leave(alice, aliceB) }, aliceB, bobA, 4 * delay},
		{"who was called moves", func(_ *world, _, bob *agent) { leave(bob, bobB) }, aliceA, bobB, 4 * delay},
		{"both move, softly", func(_ *world, alice, bob *agent) {
			alice.add(2, aliceB)
			bob.add(2, bobB)
			alice.use(2)
			bob.use(2)
		}, aliceB, bobB, 5 * time.Second},
		{"both move, hard", func(_ *world, alice, bob *agent) { leave(alice, aliceB); leave(bob, bobB) }, aliceB, bobB, 1600*time.Millisecond + 8*delay},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.addProxy("alice", "bob")
			alice, bob := w.behind("alice", aliceA), w.behind("bob", bobA)
			w.pass(time.Second)
			alice.call("sip:bob@example.com")
			w.pass(time.Second)
			row.play(w, alice, bob)
			w.pass(20 * time.Second)
			if a, b := alice.only(), bob.only(); a.State != Up || b.State != Up || a.Moving || b.Moving {
				t.Fatalf("alice has %+v, bob %+v", a, b)
			}
			for _, v := range append(alice.events, bob.events...) {
				if v.Took > row.within && v.Kind == Moved {
					t.Errorf("a move took %v", v.Took)
				}
			}
			if a, b := w.proxy.bound("alice"), w.proxy.bound("bob"); a != row.alice || b != row.bob {
				t.Errorf("alice is bound at %s, bob at %s", a, b)
			}
			bob.do(bob.engine.HangUp(bob.only().ID, w.now, &bob.out))
			w.pass(time.Second)
			if len(alice.engine.calls)+len(bob.engine.calls) > 0 {
				t.Error("a call is left")
			}
			w.pass(time.Minute)
			if servers, clients := w.proxy.engine.Layer().Len(); servers+clients > 0 {
				t.Errorf("%d servers and %d clients are left", servers, clients)
			}
		})
	}
}

// behind is an agent that registers at the proxy.
func (w *world) behind(name, address string) *agent {
	return w.agent(name, address, func(set *Settings) {
		set.Register, set.Password = time.Hour, name
		set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:e::5"}
	})
}

// TestRingingBehindAProxy ends a call that no one has answered, and moves who makes it.
func TestRingingBehindAProxy(t *testing.T) {
	ring := func(t *testing.T) (w *world, alice, bob *agent) {
		w = newWorld(t)
		w.addProxy("alice", "bob")
		alice, bob = w.behind("alice", aliceA), w.behind("bob", bobA)
		bob.answer = false
		w.pass(time.Second)
		alice.call("sip:bob@example.com")
		w.pass(time.Second)
		w.seen = nil
		return w, alice, bob
	}
	t.Run("given up", func(t *testing.T) {
		w, alice, bob := ring(t)
		alice.do(alice.engine.HangUp(1, w.now, &alice.out))
		w.pass(time.Second)
		if len(w.find("CANCEL")) != 2 || len(alice.engine.calls)+len(bob.engine.calls) > 0 {
			t.Errorf("it rings on: %v", w.sent())
		}
	})
	t.Run("refused", func(t *testing.T) {
		w, alice, bob := ring(t)
		bob.do(bob.engine.Reject(1, 486, w.now, &bob.out))
		w.pass(time.Second)
		if v, ok := alice.told(Ended); !ok || v.Status != 486 {
			t.Errorf("%+v", alice.events)
		}
	})
	t.Run("the caller moves", func(t *testing.T) {
		w, alice, bob := ring(t)
		alice.add(2, aliceB)
		alice.lost(1)
		alice.use(2)
		w.pass(time.Second)
		if got := bob.only(); got.ID != 2 || got.State != Alerting {
			t.Fatalf("bob has %+v", got)
		}
		bob.pickUp(2)
		w.pass(time.Second)
		if alice.only().State != Up || bob.only().State != Up {
			t.Error("the call does not stand")
		}
	})
}
