// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestMoveUnderTraffic moves a context to the other version of GTP, to another SGSN, or to both,
// there and back, while packets go both ways and what is on its way arrives when it likes, though
// in its order: nothing is lost, and nothing left.
func TestMoveUnderTraffic(t *testing.T) {
	for _, row := range []struct {
		name    string
		from    gtp.Version
		local   int
		version gtp.Version
	}{
		{"from version 0 to 1", gtp.V0, 0, gtp.V1},
		{"from version 1 to 0", gtp.V1, 0, gtp.V0},
		{"from version 0 to 1 of another SGSN", gtp.V0, 1, gtp.V1},
		{"from version 1 to 0 of another SGSN", gtp.V1, 1, gtp.V0},
		{"to another SGSN, version 0", gtp.V0, 1, gtp.V0},
		{"to another SGSN, version 1", gtp.V1, 1, gtp.V1},
	} {
		t.Run(row.name, func(t *testing.T) {
			for seed := range uint64(50) {
				c := newCore(t, nil)
				key, i := c.attach(row.from, gtp.PDPTypeIPv4)
				c.pass(key, seed, 1)
				order := func(local int, v gtp.Version) {
					t.Helper()
					if err := c.s.Move(key, local, v, c.now, &c.sOut); err != nil {
						t.Fatal(err)
					}
				}
				order(row.local, row.version)
				c.pass(key, seed, 2)
				if after := c.info(key); after.Version != row.version || after.Local != c.s.set.Addresses[row.local] || after.IPv4 != i.IPv4 {
					t.Fatalf("%+v", after)
				}
				order(0, row.from)
				c.pass(key, seed, 3)
				if back := c.info(key); back.Version != row.from || back.Local != ours || c.g.Sizes().Contexts != 1 {
					t.Fatalf("%+v", back)
				}
				c.wait(time.Minute)
				if len(c.s.contexts[key].session.contexts) != 1 || len(c.s.data) != int(row.from) || len(c.s.control) != int(row.from) {
					t.Fatalf("%d and %d tunnels are left", len(c.s.data), len(c.s.control))
				}
				c.order(c.s.Detach(key, true, c.now, &c.sOut))
				c.empty()
			}
		})
	}
}

// pass sends packets both ways while one of the datagrams on their way arrives, from either side,
// as the seed has it; then all arrive, and each packet has come once.
func (c *core) pass(key gtp.TID, seed, part uint64) {
	c.Helper()
	random := rand.New(rand.NewPCG(seed, part))
	i, _ := c.s.Context(key)
	c.up, c.down = nil, nil
	const packets = 40
	for n := range uint16(packets) {
		c.s.HandleUE(1, ports(udp4(i.IPv4, host4, 0, 8), n, 7), c.now, &c.sOut)
		c.g.HandleIP(0, bytes.Clone(ports(udp4(host4, i.IPv4, 0, 8), 7, n)), c.now, &c.gOut)
		c.collect()
		for range random.IntN(4) {
			c.arrive(random.IntN(2) == 0)
		}
	}
	c.settle()
	for what, list := range map[string][][]byte{"from": c.up, "to": c.down} {
		if len(list) != packets {
			c.Fatalf("seed %d, part %d: %d of %d packets %s the terminal", seed, part, len(list), packets, what)
		}
	}
}

// arrive has the first datagram arrive that goes one way.
func (c *core) arrive(up bool) {
	for i, f := range c.way {
		if (f.to.Addr() == theirs) == up {
			c.step(i)
			return
		}
	}
}

// TestMoveKeepsDual: both addresses of a context go along, and router advertisements.
func TestMoveKeepsDual(t *testing.T) {
	c := newCore(t, nil)
	key, i := c.attach(gtp.V1, gtp.PDPTypeIPv4v6)
	for range 2 {
		for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
			c.order(c.s.Move(key, 0, v, c.now, &c.sOut))
			after := c.info(key)
			if after.IPv4 != i.IPv4 || len(after.IPv6) != 1 || after.IPv6[0] != i.IPv6[0] {
				t.Fatalf("%+v", after)
			}
			c.up = nil
			c.s.HandleUE(1, udp6(i.IPv6[0].Address, host, 8), c.now, &c.sOut)
			c.settle()
			if len(c.up) != 1 {
				t.Fatalf("GTPv%d: a packet of IPv6 was lost", v)
			}
			c.order(c.s.Solicit(key, c.now, &c.sOut))
			if c.s.contexts[key].session.six.solicitation.IsSet() {
				t.Errorf("GTPv%d: no router answers", v)
			}
		}
	}
}

// TestMoveToVersionFails leaves the context where it was, with what the terminal had to say.
func TestMoveToVersionFails(t *testing.T) {
	for _, cause := range []gtp.Cause{gtp.CauseNoResources, gtp.CauseNonExistent, 0} {
		for _, from := range []gtp.Version{gtp.V0, gtp.V1} {
			t.Run(fmt.Sprintf("%s, from version %d", cause, from), func(t *testing.T) {
				w := newWorld(t, Settings{})
				key := w.attach(from, gtp.PDPTypeIPv4)
				before := w.info(key)
				w.clear()
				w.order(w.e.Move(key, 0, 1-from, w.now, &w.out))
				w.e.HandleUE(1, udp4(four, host4, 53, 8), w.now, &w.out)
				if len(w.out.UDP) != 1 {
					t.Fatal("the terminal is not silent")
				}
				if cause == 0 {
					w.wait(time.Minute)
					for range 3 {
						w.next()
					}
				} else {
					w.granted(cause)
				}
				if _, h := w.next(); h.Type != gtp.TypeGPDU || h.Version != from {
					t.Errorf("%+v", h)
				}
				after := w.info(key)
				if w.event(MoveFailed); after.Version != from || after.TEIDData != before.TEIDData || after.State != Open {
					t.Errorf("%+v", after)
				}
				w.e.Abandon(w.now, &w.out)
				w.empty()
			})
		}
	}
}

// TestMoveToVersionRequest is what the GGSN is told: no name of its own for the context.
func TestMoveToVersionRequest(t *testing.T) {
	for _, from := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(from, gtp.PDPTypeIPv4)
		w.clear()
		w.order(w.e.Move(key, 1, 1-from, w.now, &w.out))
		var m gtp.UpdateRequest
		d, h := w.request(&m)
		if h.TEID != 0 || h.FlowLabel != 0 || d.To.Port() != controlPlane(1-from).Port() || m.AddressUser.Value != ours2 {
			t.Errorf("%+v to %s: %+v", h, d.To, m)
		}
		if v0 := from == gtp.V1; v0 && h.TID != key || !v0 && (m.IMSI.Value != attachment(from, 0).IMSI || m.NSAPI != 5) {
			t.Errorf("%+v: %+v", h, m)
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	}
}

// TestMoveSilence bounds what waits, and gives it up with the context.
func TestMoveSilence(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V0, gtp.PDPTypeIPv4)
	w.order(w.e.Move(key, 0, gtp.V1, w.now, &w.out))
	w.clear()
	for range maxWaiting + 3 {
		w.e.HandleUE(1, udp4(four, host4, 53, 8), w.now, &w.out)
	}
	if w.none(); w.drops("too_many_waiting") != 3 {
		t.Errorf("%d dropped", w.drops("too_many_waiting"))
	}
	w.e.Abandon(w.now, &w.out)
	w.none()
	w.empty()
}

// TestMoveOfSecondaries: version 0 has none.
func TestMoveOfSecondaries(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.secondary(key, 6, nil)
	if err := w.e.Move(key, 0, gtp.V0, w.now, &w.out); err != ErrSecondary {
		t.Error(err)
	}
}

// TestFallback asks by version 0 where version 1 is not spoken, or not answered.
func TestFallback(t *testing.T) {
	for _, row := range []struct {
		name     string
		refuse   func(w *world, socket int, h gtp.Header)
		fallback bool
		again    bool
	}{
		{"version not supported", func(w *world, socket int, h gtp.Header) {
			w.say(socket, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.VersionNotSupported{})
		}, true, true},
		{"version not supported, by a node of version 0", func(w *world, socket int, h gtp.Header) {
			w.say(socket, gtp.Header{Version: gtp.V0, HasSequence: true, Sequence: h.Sequence}, &gtp.VersionNotSupported{})
		}, true, true},
		{"no answer", func(w *world, _ int, _ gtp.Header) { w.wait(15 * time.Second); w.next(); w.next() }, true, true},
		{"refused for another reason", func(w *world, socket int, h gtp.Header) {
			w.say(socket, reply(h, 0), &gtp.CreateResponse{Cause: gtp.CauseUnknownAPN})
		}, true, false},
		{"not wanted", func(w *world, _ int, _ gtp.Header) { w.wait(15 * time.Second); w.next(); w.next() }, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			a.Fallback = row.fallback
			key, err := w.e.Attach(a, w.now, &w.out)
			w.order(err)
			d, h := w.next()
			row.refuse(w, d.Socket, h)
			if w.event(Refused); !row.again {
				w.none()
				w.empty()
				return
			}
			h, _ = w.accept(nil)
			if w.event(Attached); h.Version != gtp.V0 || w.info(key).Version != gtp.V0 {
				t.Errorf("%+v", h)
			}
			w.order(w.e.Detach(key, true, w.now, &w.out))
			d, h = w.next()
			w.say(d.Socket, reply(h, w.info(key).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			w.empty()
		})
	}
}
