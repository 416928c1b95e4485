// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// The server is asked again 75 to 100 % of 30 s after its last packet, at
// changing times.
func TestRefresh(t *testing.T) {
	b := newQualified(t)
	was := b.address()
	seen := map[time.Duration]bool{}
	for range 20 {
		d, got := b.tick()
		b.want("refresh", got, "to primary: solicitation")
		if d < 22500*time.Millisecond || d > 30*time.Second {
			t.Errorf("refreshed after %v", d)
		}
		seen[d] = true
		b.want("answer", b.udp(primaryPort, b.answer(mapping)))
	}
	if len(seen) < 10 {
		t.Errorf("only %d different intervals in 20", len(seen))
	}
	if b.address() != was {
		t.Error("the address changed")
	}
}

// Any packet of the server puts the refresh off.
func TestServerPacketPutsRefreshOff(t *testing.T) {
	b := newQualified(t)
	b.now = b.now.Add(20 * time.Second)
	b.udp(primaryPort, throughServer(peerMapping, bubble(peerAddr, b.address(), 1)))
	// The peer's entry is swept before; the refresh comes behind.
	for {
		at := b.now
		d, got := b.tick()
		if len(got) == 0 {
			continue
		}
		b.want("refresh", got, "to primary: solicitation")
		if since := at.Add(d).Sub(start); since < 42500*time.Millisecond || since > 50*time.Second {
			t.Errorf("refreshed %v after the start", since)
		}
		return
	}
}

func TestRefreshFindsNewMapping(t *testing.T) {
	b := newQualified(t)
	old := b.address()
	b.ip(data(old, hostAddr, "waits for a test"))
	for {
		if _, got := b.tick(); len(got) > 0 && got[0] == "to primary: solicitation" {
			break
		}
	}
	changed := foreign
	b.want("answer", b.udp(primaryPort, b.answer(changed)),
		"event: address changed, for 192.0.2.20:9999", "event: NAT: unknown, port not preserved")
	if b.address() == old {
		t.Error("the address is the old one")
	}
	if n := b.c.Snapshot().Peers; n != 0 {
		t.Errorf("%d peers of the old mapping are left", n)
	}
	b.ip(data(old, hostAddr, "from the old address"))
	if got := b.dropped(); got != "bad_source 1, unreachable 1" {
		t.Errorf("dropped %q", got)
	}
}

func TestRefreshUnanswered(t *testing.T) {
	b := newQualified(t)
	b.tick()
	for range 2 {
		d, got := b.tick()
		b.want("repeat", got, "to primary: solicitation")
		if d != 4*time.Second {
			t.Errorf("repeated after %v", d)
		}
	}
	_, got := b.tick()
	b.want("given up", got, "event: silent: 203.0.113.1", "event: lost: the server is silent", "event: off-line")
}

// The address outlives its peers' silence for hours, and a NAT that is restarted
// or renumbered is noticed by the next refresh.
func TestLongRun(t *testing.T) {
	w := newWorld(t)
	nat := nattest.NewNAT(nattest.PortRestricted, natA)
	nat.Timeout = 31 * time.Second
	a := w.qualified(nat)
	w.net.Run(3 * time.Hour)
	want := []string{
		fmt.Sprintf("got address by %s for %s:3551, MTU 1280", primary, natA),
		"NAT: endpoint-independent mapping, port preserved",
	}
	for i, e := range want {
		if len(a.events) != len(want) || a.events[i] != e {
			t.Fatalf("events %q, want %q", a.events, want)
		}
	}
	w.net.Renumber(nat, natB)
	since := w.net.Now()
	if !w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().Mapping.Addr() == natB }) {
		t.Fatal("the new mapping was not noticed")
	}
	if took := w.net.Now().Sub(since); took > 31*time.Second {
		t.Errorf("noticed after %v", took)
	}
	a.say(hostAddr, "ping")
	if !w.net.RunUntil(time.Second, func() bool { return len(a.got) == 1 }) {
		t.Error("the host is not reached from the new address")
	}
}

// A server that goes silent and comes back gets its client and the client its
// address back.
func TestServerOutage(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA))
	was := a.address()
	w.server.deaf = true
	if !w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().State == client.OffLine }) {
		t.Fatal("not off-line")
	}
	w.net.Run(10 * time.Minute)
	w.server.deaf = false
	if !w.net.RunUntil(90*time.Second, func() bool { return a.engine.Snapshot().State == client.Qualified }) {
		t.Fatal("not qualified again")
	}
	if a.address() != was {
		t.Errorf("address %s, before %s", a.address(), was)
	}
	// Two solicitations per 12 s at the start, then one exchange a minute: no
	// flood of an absent server.
	if n := a.engine.Stats().Solicitations; n > 3*(12+10) {
		t.Errorf("%d solicitations", n)
	}
}

// New random flags for each new mapping (RFC 5991 section 3.1).
// What keeps strangers out is drawn again for each exchange, in all its bits (RFC 4380
// sections 5.2.1, 5.2.2 and 5.2.9, RFC 6081 section 5.2.4.1).
func TestNoncesAreRandom(t *testing.T) {
	const draws = 64
	fresh := func(t testing.TB, i int) *bench {
		b := newBench(t, func(c *client.Config) { c.Rand = seeded(byte(i)) })
		b.begin(client.Server{Primary: primary})
		return b
	}
	qualified := newQualified(t)
	peer := func(i int) netip.Addr {
		return teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.AddrPortFrom(peerMapping.Addr(), uint16(5000+i))}.IP()
	}
	for _, tt := range []struct {
		name   string
		octets int
		draw   func(i int) []byte
	}{
		{"nonce of a solicitation", 8, func(i int) []byte {
			n := fresh(t, i).solicitation(primaryPort).Auth.Nonce
			return n[:]
		}},
		{"link-local address of a solicitation", 4, func(i int) []byte {
			return fresh(t, i).solicitation(primaryPort).IPv6.SrcBytes()[12:]
		}},
		{"nonce of an indirect bubble", 4, func(i int) []byte {
			qualified.ip(data(qualified.address(), peer(i), "x"))
			return binary.BigEndian.AppendUint32(nil, qualified.sentNonce())
		}},
		{"nonce of an echo test", teredo.EchoNonceLen, func(i int) []byte {
			host := hostAddr.As16()
			host[15] += byte(i + 1)
			qualified.ip(data(qualified.address(), netip.AddrFrom16(host), "x"))
			reply := qualified.echoReply()
			return reply[len(reply)-teredo.EchoNonceLen:]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := map[string]bool{}
			ones, zeros := make([]byte, tt.octets), make([]byte, tt.octets)
			for i := range draws {
				nonce := tt.draw(i)
				seen[string(nonce)] = true
				for at := range ones {
					ones[at] |= nonce[at]
					zeros[at] |= ^nonce[at]
				}
			}
			all := bytes.Repeat([]byte{0xff}, tt.octets)
			if len(seen) != draws || !bytes.Equal(ones, all) || !bytes.Equal(zeros, all) {
				t.Errorf("%d of %d differ; bits that were 1: %x, that were 0: %x", len(seen), draws, ones, zeros)
			}
		})
	}
}

func TestFlagsAreRandom(t *testing.T) {
	seen := map[teredo.Flags]bool{}
	for i := range 64 {
		b := newBench(t, func(c *client.Config) { c.Rand = seeded(byte(i)) })
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, b.answer(mapping))
		id := b.address().As16()
		seen[teredo.FlagsOf(&id)] = true
	}
	var ones teredo.Flags
	for f := range seen {
		ones |= f
	}
	if ones != teredo.FlagsRandom || len(seen) < 60 {
		t.Errorf("%d different flags, bits used %#x", len(seen), ones)
	}
}
