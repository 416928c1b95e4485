// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

func searches(c *client.Config) { c.RefreshSearch = true }

// ended returns the interval of the event that ends a search.
func (n *linkHost) ended() (time.Duration, bool) {
	for _, e := range n.events {
		if e.Kind == client.SearchEnded {
			return e.Wait, true
		}
	}
	return 0, false
}

// The search finds an interval that is shorter than the life of a mapping, and
// near to it or to the 120 s that are enough; and the address lives on with it.
func TestSearch(t *testing.T) {
	for _, tt := range []struct {
		life, least, most time.Duration
	}{
		{29 * time.Second, 30 * time.Second, 30 * time.Second}, // nothing shorter is tried
		{45 * time.Second, 35 * time.Second, 45 * time.Second},
		{75 * time.Second, 60 * time.Second, 75 * time.Second},
		{100 * time.Second, 90 * time.Second, 100 * time.Second},
		{300 * time.Second, 118 * time.Second, 120 * time.Second},
	} {
		for _, kind := range nattest.AllKinds {
			t.Run(fmt.Sprintf("%s, mappings live %v", kind.Name, tt.life), func(t *testing.T) {
				l := newLink(newWorld(t), kind)
				l.nat.Timeout = tt.life
				n := l.add(searches)
				if !l.w.net.RunUntil(2*time.Hour, func() bool { _, ok := n.ended(); return ok }) {
					t.Fatal("the search does not end")
				}
				if got, _ := n.ended(); got < tt.least || got > tt.most {
					t.Errorf("the interval is %v, want %v to %v", got, tt.least, tt.most)
				}
				if got, _ := n.ended(); n.engine.Snapshot().Interval != got {
					t.Errorf("the interval in use is %v", n.engine.Snapshot().Interval)
				}
				if tt.life < 30*time.Second {
					return // RFC 4380 takes it that no mapping ends before 30 s
				}
				before, events := n.engine.Stats().Solicitations, len(n.events)
				l.w.net.Run(time.Hour)
				if sent := n.engine.Stats().Solicitations - before; time.Duration(sent) > time.Hour*4/3/tt.least+1 {
					t.Errorf("%d solicitations in an hour", sent)
				}
				if len(n.events) > events {
					t.Errorf("the address did not last: %+v", n.events[events:])
				}
			})
		}
	}
}

// searching is a client driven by hand that has begun a search.
func searching(t testing.TB) *bench {
	t.Helper()
	b := newBench(t, searches)
	b.begin(client.Server{Primary: primary})
	b.udp(primaryPort, b.answer(mapping))
	return b
}

var secondMapping = netip.AddrPortFrom(mapping.Addr(), 40001)

func (b *bench) onSecondary(from netip.AddrPort, payload []byte) []string {
	b.out.Reset()
	b.c.HandleUDPOn(client.SearchSocket, from, bytes.Clone(payload), b.now, &b.out)
	return b.show()
}

// untilSearch lets time pass until something leaves that concerns the search: from
// the secondary port, or to it. The server answers all else.
func (b *bench) untilSearch() (time.Duration, string) {
	b.t.Helper()
	since := b.now
	for b.now.Sub(since) < time.Hour {
		b.now = b.c.Next()
		b.out.Reset()
		b.c.Tick(b.now, &b.out)
		for _, e := range b.out.Events {
			if e.Kind == client.SearchEnded {
				return b.now.Sub(since), fmt.Sprintf("end with %v", e.Wait)
			}
		}
		for _, d := range b.out.UDP {
			p, err := teredo.Parse(bytes.Clone(d.Payload))
			switch {
			case err != nil || d.To != primaryPort:
				b.t.Fatalf("sent %x to %s", d.Payload, d.To)
			case d.Socket == client.SearchSocket:
				return b.now.Sub(since), "solicitation"
			case teredo.IsBubble(p.IPv6):
				return b.now.Sub(since), "bubble"
			}
			b.udp(primaryPort, b.answer(mapping))
		}
	}
	b.t.Fatal("nothing happens")
	return 0, ""
}

// The exact steps of RFC 4380 section 5.2.7.
func TestSearchSteps(t *testing.T) {
	b := searching(t)
	if len(b.out.UDP) != 1 || b.out.UDP[0].Socket != client.SearchSocket ||
		len(b.out.Sockets) != 1 || b.out.Sockets[0].Socket != client.SearchSocket || b.out.Sockets[0].Port == 0 {
		t.Fatalf("sent %q", b.show())
	}
	advertised := func() {
		t.Helper()
		b.want("advertisement", b.onSecondary(primaryPort, b.answer(secondMapping)))
	}
	next := func(wait time.Duration, what string) {
		t.Helper()
		if d, got := b.untilSearch(); d != wait || got != what {
			t.Errorf("%s after %v, want %s after %v", got, d, what, wait)
		}
	}
	advertised()
	next(60*time.Second, "bubble")
	b.now = b.now.Add(time.Second)
	b.want("success", b.onSecondary(primaryPort, b.searchBubble()), "to primary: solicitation")
	if got := b.c.Snapshot().Interval; got != 60*time.Second {
		t.Errorf("the interval is %v", got)
	}
	advertised()
	next(90*time.Second, "bubble") // the mean of 60 and 120
	for range 3 {
		next(2*time.Second, "bubble")
	}
	next(2*time.Second, "solicitation") // failed: 90 is the maximum, and 60 is not 75 % of it
	advertised()
	next(75*time.Second, "bubble")
	for range 3 {
		next(2*time.Second, "bubble")
	}
	next(2*time.Second, "end with 1m0s") // 60 is 75 % of 75 and more
	if got := b.c.Snapshot().Interval; got != 60*time.Second {
		t.Errorf("the interval is %v", got)
	}
}

// searchBubble is the last bubble of the test as it arrives on the secondary port.
func (b *bench) searchBubble() []byte {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if p, err := teredo.Parse(d.Payload); err == nil && teredo.IsBubble(p.IPv6) {
			return teredo.AppendBubble(teredo.AppendOrigin(nil, mapping), p.IPv6.Src(), p.IPv6.Dst())
		}
	}
	b.t.Fatal("no bubble was sent")
	return nil
}

// Without an answer on the secondary port the procedure is not used.
func TestSearchCannotQualify(t *testing.T) {
	b := searching(t)
	for range 2 {
		if d, got := b.untilSearch(); d != 4*time.Second || got != "solicitation" {
			t.Errorf("%s after %v", got, d)
		}
	}
	if d, got := b.untilSearch(); d != 4*time.Second || got != "end with 30s" {
		t.Errorf("%s after %v", got, d)
	}
}

// What else comes to the secondary port is dropped.
func TestSearchRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   netip.AddrPort
		packet func(b *bench, good []byte) []byte
		drop   string
	}{
		{"from another address", peerMapping, func(_ *bench, good []byte) []byte { return good }, "not_searched 1"},
		{"bubble of another client", primaryPort, func(b *bench, _ []byte) []byte { return bubble(peerAddr, b.address(), 0) }, "not_searched 1"},
		{"bubble to the service address", primaryPort, func(b *bench, _ []byte) []byte { return bubble(b.address(), b.address(), 0) }, "not_searched 1"},
		{"data", primaryPort, func(b *bench, _ []byte) []byte { return data(peerAddr, b.address(), "x") }, "not_searched 1"},
		{"no packet", primaryPort, func(*bench, []byte) []byte { return []byte{0x60} }, "truncated 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := searching(t)
			b.onSecondary(primaryPort, b.answer(secondMapping))
			b.untilSearch()
			b.want("output", b.onSecondary(tt.from, tt.packet(b, b.searchBubble())))
			if b.dropped() != tt.drop {
				t.Errorf("dropped %q, want %q", b.dropped(), tt.drop)
			}
		})
	}
	t.Run("advertisement with a wrong nonce", func(t *testing.T) {
		b := searching(t)
		rs := b.solicitation(primaryPort)
		rs.Auth.Nonce[0]++
		b.want("output", b.onSecondary(primaryPort, advertisement(rs, secondMapping)))
		if b.dropped() != "wrong_nonce 1" {
			t.Errorf("dropped %q", b.dropped())
		}
	})
	t.Run("no search", func(t *testing.T) {
		b := newQualified(t)
		b.want("output", b.onSecondary(primaryPort, bubble(b.address(), b.address(), 0)))
		if b.dropped() != "not_searched 1" {
			t.Errorf("dropped %q", b.dropped())
		}
	})
}

// A lost address ends the search and the interval that was found.
func TestSearchEndsWithTheAddress(t *testing.T) {
	b := searching(t)
	b.onSecondary(primaryPort, b.answer(secondMapping))
	b.untilSearch()
	b.onSecondary(primaryPort, b.searchBubble())
	b.out.Reset()
	b.c.LocalChanged(netip.AddrPort{}, nil, b.now, &b.out)
	if len(b.out.Events) != 2 || b.out.Events[0].Kind != client.SearchEnded || b.c.Snapshot().Interval != 30*time.Second {
		t.Errorf("events %+v, interval %v", b.out.Events, b.c.Snapshot().Interval)
	}
}

// FuzzHandleSearch sends anything to the secondary port: nothing reaches the host
// and at most one solicitation leaves.
func FuzzHandleSearch(f *testing.F) {
	b := searching(f)
	f.Add(b.answer(secondMapping), false)
	b.onSecondary(primaryPort, b.answer(secondMapping))
	b.untilSearch()
	f.Add(b.searchBubble(), true)
	f.Add([]byte(data(peerAddr, b.address(), "x")), true)
	f.Fuzz(func(t *testing.T, payload []byte, testing bool) {
		b := searching(t)
		if testing {
			b.onSecondary(primaryPort, b.answer(secondMapping))
			b.untilSearch()
		}
		b.onSecondary(primaryPort, payload)
		if len(b.out.IP) > 0 || len(b.out.UDP) > 1 || len(b.out.UDP) == 1 && b.out.UDP[0].To != primaryPort {
			t.Fatalf("output %q", b.show())
		}
		b.now = b.now.Add(time.Minute)
		b.c.Tick(b.now, &b.out)
	})
}
