// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// core is this engine and the one of a GGSN, in virtual time: what one sends is on its way until a
// test has it arrive.
type core struct {
	*testing.T
	s    *Engine
	g    *ggsn.Engine
	now  time.Time
	sOut Output
	gOut ggsn.Output
	way  []flight
	// up and down are the packets that came, and the headers of the G-PDUs that were sent.
	up, down     [][]byte
	upBy, downBy []gtp.Header
}

// flight is a datagram on its way.
type flight struct {
	from, to netip.AddrPort
	b        []byte
}

func newCore(t *testing.T, change func(*ggsn.Settings)) *core {
	t.Helper()
	c := &core{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	g := ggsn.Defaults()
	g.Address4, g.EchoInterval = theirs, 0
	g.Peers = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	g.APNs = []ggsn.APN{{
		Name: "internet", Types: ggsn.TypeIPv4 | ggsn.TypeIPv6 | ggsn.TypeIPv4v6, MTU: ggsn.DefaultMTU,
		Pools4: []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16")}, Pools6: []netip.Prefix{netip.MustParsePrefix("2001:db8:6000::/44")},
	}}
	if change != nil {
		change(&g)
	}
	var err error
	if c.g, err = ggsn.New(g, c.now, rand.NewChaCha8([32]byte{1})); err != nil {
		t.Fatal(err)
	}
	if c.s, err = New(Settings{Addresses: []netip.Addr{ours, ours2}}, rand.NewChaCha8([32]byte{2})); err != nil {
		t.Fatal(err)
	}
	return c
}

// collect takes what both have put out.
func (c *core) collect() {
	for _, d := range c.sOut.UDP {
		address, plane := planeOf(d.Socket)
		from := netip.AddrPortFrom(c.s.set.Addresses[address], plane.Port())
		c.way = append(c.way, flight{from, d.To, bytes.Clone(d.Payload)})
		c.note(&c.upBy, d.Payload)
	}
	for _, d := range c.gOut.UDP {
		from := netip.AddrPortFrom(theirs, ggsn.Socket(d.Socket).Port())
		c.way = append(c.way, flight{from, d.To, bytes.Clone(d.Payload)})
		c.note(&c.downBy, d.Payload)
	}
	for _, p := range c.gOut.IP {
		c.up = append(c.up, bytes.Clone(p))
	}
	for _, p := range c.sOut.IP {
		c.down = append(c.down, bytes.Clone(p))
	}
	c.sOut.Reset()
	c.gOut.Reset()
}

func (c *core) note(list *[]gtp.Header, b []byte) {
	if h, err := gtp.ParseHeader(b); err == nil && h.Type == gtp.TypeGPDU {
		h.Payload = nil
		*list = append(*list, h)
	}
}

// step has one datagram arrive: the one at a place.
func (c *core) step(i int) {
	f := c.way[i]
	c.way = slices.Delete(c.way, i, i+1)
	if f.to.Addr() == theirs {
		socket := map[uint16]ggsn.Socket{gtp.PortV0: ggsn.SocketV0, gtp.PortControl: ggsn.SocketControl, gtp.PortUser: ggsn.SocketUser}[f.to.Port()]
		c.g.HandleUDP(socket, f.from, 0, f.b, c.now, &c.gOut)
	} else {
		plane := map[uint16]Plane{gtp.PortV0: PlaneV0, gtp.PortControl: PlaneControl, gtp.PortUser: PlaneUser}[f.to.Port()]
		c.s.Handle(Socket(slices.Index(c.s.set.Addresses, f.to.Addr()), plane), f.from, 0, f.b, c.now, &c.sOut)
	}
	c.collect()
}

// settle has all that is on its way arrive, in order.
func (c *core) settle() {
	for c.collect(); len(c.way) > 0; {
		c.step(0)
	}
}

// wait lets time pass for both.
func (c *core) wait(d time.Duration) {
	end := c.now.Add(d)
	for c.settle(); ; c.settle() {
		next := end
		for _, at := range []time.Time{c.s.Next(), c.g.Next()} {
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		if c.now = next; !next.Before(end) {
			return
		}
		c.s.Tick(c.now, &c.sOut)
		c.g.Tick(c.now, &c.gOut)
	}
}

// attach opens a context.
func (c *core) attach(v gtp.Version, kind gtp.PDPType) (gtp.TID, Info) {
	c.Helper()
	key, err := c.s.Attach(attachment(v, kind), c.now, &c.sOut)
	if err != nil {
		c.Fatal(err)
	}
	c.settle()
	return key, c.info(key)
}

func (c *core) info(key gtp.TID) Info {
	c.Helper()
	i, ok := c.s.Context(key)
	if !ok || i.State != Open {
		c.Fatalf("%s is %s", key, i.State)
	}
	return i
}

// order gives one, and has all arrive.
func (c *core) order(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
	c.settle()
}

// exchange sends packets both ways, numbered, and returns by which TEIDs they went.
func (c *core) exchange(i Info, local, remote uint16) (up, down uint32) {
	c.Helper()
	c.upBy, c.downBy, c.up, c.down = nil, nil, nil, nil
	out, in := ports(udp4(i.IPv4, host4, 0, 8), local, remote), ports(udp4(host4, i.IPv4, 0, 8), remote, local)
	c.s.HandleUE(1, out, c.now, &c.sOut)
	c.settle()
	c.g.HandleIP(0, bytes.Clone(in), c.now, &c.gOut)
	c.settle()
	if len(c.up) != 1 || len(c.down) != 1 || len(c.upBy) != 1 || len(c.downBy) != 1 {
		c.Fatalf("%d and %d packets arrived of %d and %d", len(c.up), len(c.down), len(c.upBy), len(c.downBy))
	}
	return c.upBy[0].TEID, c.downBy[0].TEID
}

// ports sets those of a datagram of IPv4 without a checksum.
func ports(b []byte, from, to uint16) []byte {
	binary.BigEndian.PutUint16(b[20:], from)
	binary.BigEndian.PutUint16(b[22:], to)
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:20])))
	return b
}

// empty fails if either has something left.
func (c *core) empty() {
	c.Helper()
	if n := c.g.Sizes().Contexts; c.s.Contexts() > 0 || n > 0 {
		c.Errorf("%d contexts are left, and %d of the GGSN", c.s.Contexts(), n)
	}
}

// TestSecondaryOfBoth has packets go by the context whose filters they match: those of the
// terminal chosen here, those to it by the GGSN.
func TestSecondaryOfBoth(t *testing.T) {
	c := newCore(t, nil)
	key, i := c.attach(gtp.V1, gtp.PDPTypeIPv4)
	if up, down := c.exchange(i, 4000, 5060); up != i.RemoteData || down != i.TEIDData {
		t.Fatalf("by %#x and %#x before there is another", up, down)
	}
	both := func(id, precedence uint8, first, last uint16) gtp.PacketFilter {
		return gtp.PacketFilter{ID: id, Direction: gtp.FilterBoth, Precedence: precedence, Protocol: gtp.Some(uint8(17)), RemotePort: gtp.Some(gtp.PortRange{First: first, Last: last})}
	}
	voice := gtp.Profile{Priority: 1, Class: gtp.ClassConversational, MaxUp: 64, MaxDown: 64}.QoS(12)
	open := func(nsapi uint8, q gtp.QoS, f ...gtp.PacketFilter) Info {
		t.Helper()
		k, err := c.s.AttachSecondary(key, nsapi, template(f...), q, c.now, &c.sOut)
		c.order(err)
		return c.info(k)
	}
	sip := open(6, voice, both(0, 10, 5060, 5061))
	low := open(7, gtp.QoS{}, both(0, 20, 5000, 5100), both(1, 21, 80, 80))
	if sip.Linked != 5 || sip.IPv4 != i.IPv4 || sip.QoS.Profile().Class != gtp.ClassConversational || len(low.Filters) != 2 {
		t.Errorf("%+v, %+v", sip, low)
	}
	for _, row := range []struct {
		name   string
		remote uint16
		by     Info
	}{
		{"first of two that match", 5060, sip},
		{"end of a range", 5061, sip},
		{"second, by a wider range", 5062, low},
		{"second filter", 80, low},
		{"none", 443, i},
	} {
		if up, down := c.exchange(i, 4000, row.remote); up != row.by.RemoteData || down != row.by.TEIDData {
			t.Errorf("%s: by %#x and %#x, want %#x and %#x", row.name, up, down, row.by.RemoteData, row.by.TEIDData)
		}
	}
	// The second one ends alone, and its packets go by the primary one.
	c.order(c.s.Detach(low.Key, false, c.now, &c.sOut))
	if up, down := c.exchange(i, 4000, 80); up != i.RemoteData || down != i.TEIDData || c.g.Sizes().Contexts != 2 {
		t.Errorf("by %#x and %#x, %d contexts", up, down, c.g.Sizes().Contexts)
	}
	// A teardown by way of the secondary one ends all.
	c.order(c.s.Detach(sip.Key, true, c.now, &c.sOut))
	c.empty()
}

// TestPrimaryEndsFirst: the address stays with the secondary context.
func TestPrimaryEndsFirst(t *testing.T) {
	c := newCore(t, nil)
	key, i := c.attach(gtp.V1, gtp.PDPTypeIPv4)
	k, err := c.s.AttachSecondary(key, 6, template(gtp.PacketFilter{Direction: gtp.FilterBoth, Precedence: 1, Protocol: gtp.Some(uint8(17))}), gtp.QoS{}, c.now, &c.sOut)
	c.order(err)
	second := c.info(k)
	c.order(c.s.Detach(key, false, c.now, &c.sOut))
	if up, down := c.exchange(i, 1, 2); up != second.RemoteData || down != second.TEIDData || c.g.Sizes().Contexts != 1 {
		t.Errorf("by %#x and %#x", up, down)
	}
	c.order(c.s.Detach(k, false, c.now, &c.sOut))
	c.empty()
}

// TestSecondaryRefused says why there can be none.
func TestSecondaryRefused(t *testing.T) {
	c := newCore(t, nil)
	key, _ := c.attach(gtp.V1, gtp.PDPTypeIPv4)
	filter := template(gtp.PacketFilter{Direction: gtp.FilterBoth, Precedence: 1, Protocol: gtp.Some(uint8(17))})
	first, err := c.s.AttachSecondary(key, 6, filter, gtp.QoS{}, c.now, &c.sOut)
	c.order(err)
	old := attachment(gtp.V0, gtp.PDPTypeIPv4)
	old.NSAPI = 9
	zero, err := c.s.Attach(old, c.now, &c.sOut)
	c.order(err)
	for want, order := range map[error]func() (gtp.TID, error){
		ErrLinked:  func() (gtp.TID, error) { return c.s.AttachSecondary(first, 7, filter, gtp.QoS{}, c.now, &c.sOut) },
		ErrKnown:   func() (gtp.TID, error) { return c.s.AttachSecondary(key, 6, filter, gtp.QoS{}, c.now, &c.sOut) },
		ErrVersion: func() (gtp.TID, error) { return c.s.AttachSecondary(zero, 7, filter, gtp.QoS{}, c.now, &c.sOut) },
		ErrUnknown: func() (gtp.TID, error) { return c.s.AttachSecondary(gtp.TID{}, 7, filter, gtp.QoS{}, c.now, &c.sOut) },
	} {
		if _, err := order(); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	// The GGSN refuses a precedence that another context of the address has.
	again, err := c.s.AttachSecondary(key, 7, filter, gtp.QoS{}, c.now, &c.sOut)
	c.order(err)
	if _, there := c.s.Context(again); there || c.g.Sizes().Contexts != 3 {
		t.Errorf("it is there: %t; the GGSN has %d", there, c.g.Sizes().Contexts)
	}
}
