// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of what is seen of traffic classes.
const (
	marksPackets = 10
	marksSize    = 100
	marksInner   = 8 << 2 // CS1, which no traffic class has
)

// marked are traffic classes of a packet: of its G-PDU, or none, and its own.
type marked struct{ outside, inside uint8 }

// String is the pair as DSCP and ECN field.
func (m marked) String() string {
	return fmt.Sprintf("DSCP %d, ECN %02b outside; %d, %02b inside", m.outside>>2, m.outside&packet.ECN, m.inside>>2, m.inside&packet.ECN)
}

// marksOnTheWire changes the class of a context, one after the other, and looks at its packets by a capture; then at ECN
// in both directions.
func marksOnTheWire(ctx context.Context, e *lab.Env, rep *report.Report) (err error) {
	n, err := startQoS(ctx, e, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	up, down, err := n.frames(ctx)
	if err != nil {
		return err
	}
	table := report.Table{
		Title:   "Traffic classes on the wire, by a capture",
		Columns: []string{"packets", "expected", "seen"},
		Notes:   []string{fmt.Sprintf("%d packets each. Those to the terminal are seen between GGSN and SGSN, those from it behind the GGSN.", marksPackets)},
	}
	row := func(name string, from, to *lab.Node, out, in string, frame []byte, want []marked) error {
		seen, err := n.seenMarks(ctx, from, to, out, in, frame, len(want))
		if err != nil {
			return err
		}
		text := func(list []marked) string {
			if len(list) == 0 {
				return "none arrives"
			}
			return list[0].String()
		}
		table.Rows = append(table.Rows, []string{name, text(want), text(seen)})
		if len(seen) != len(want) {
			rep.Fault("%s: %d packets came, not %d", name, len(seen), len(want))
		}
		for _, one := range seen {
			if len(want) > 0 && one != want[0] {
				rep.Fault("%s: %s, not %s", name, one, want[0])
				break
			}
		}
		return nil
	}
	for _, c := range []struct {
		quality sgsnrole.Quality
		dscp    uint8
	}{
		{sgsnrole.Quality{Class: "conversational"}, 46}, {sgsnrole.Quality{Class: "streaming"}, 34},
		{sgsnrole.Quality{Class: "interactive", Priority: 1}, 26}, {sgsnrole.Quality{Class: "interactive", Priority: 2}, 18},
		{sgsnrole.Quality{Class: "interactive", Priority: 3}, 10}, {sgsnrole.Quality{Class: "background"}, 0},
	} {
		name := c.quality.Class
		if c.quality.Priority > 0 {
			name += fmt.Sprintf(", priority %d", c.quality.Priority)
		}
		e.Step("DSCP: %s", name)
		c.quality.Up, c.quality.Down = 8640, 8640
		if err := n.ask(ctx, c.quality); err != nil {
			return err
		}
		want := manyMarks(marked{c.dscp<<2 | packet.ECT0, marksInner | packet.ECT0})
		if err := row(name+", to the terminal", n.srv, n.sgsn, "gi", "gn", classed(down(marksSize), marksInner|packet.ECT0, 0), want); err != nil {
			return err
		}
	}
	e.Step("ECN")
	for _, c := range []struct {
		name         string
		inner, outer uint8
		want         []marked
	}{
		{"ECT(0) inside, congestion met as a G-PDU, from the terminal", packet.ECT0, packet.CE, manyMarks(marked{0, marksInner | packet.CE})},
		{"no ECN inside, none outside, from the terminal", packet.NotECT, packet.NotECT, manyMarks(marked{0, marksInner})},
		{"no ECN inside, congestion met as a G-PDU, from the terminal", packet.NotECT, packet.CE, nil},
	} {
		if err := row(c.name, n.sgsn, n.srv, "gn", "gi", classed(up(marksSize), marksInner|c.inner, c.outer), c.want); err != nil {
			return err
		}
	}
	rep.Tables = append(rep.Tables, table)
	return nil
}

// frames make those of the UE, in G-PDUs, and those of the server.
func (n *qosNet) frames(ctx context.Context) (up, down func(size int) []byte, err error) {
	teid, err := n.teid(ctx)
	if err != nil {
		return nil, nil, err
	}
	var macs [4]net.HardwareAddr
	for i, of := range []struct {
		node   *lab.Node
		device string
	}{{n.sgsn, "gn"}, {n.ggsn, "gn"}, {n.srv, "gi"}, {n.ggsn, "gi"}} {
		if macs[i], err = mac(of.node, of.device); err != nil {
			return nil, nil, err
		}
	}
	user := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, gtp.PortUser) }
	up = func(size int) []byte {
		return load.Frame4(macs[0], macs[1], user(n.at.sgsn), user(n.at.ggsn), append(gpduHeader(teid, size), load.Packet(n.ue.addr, coreSrv6, size)...))
	}
	down = func(size int) []byte { return load.Frame6(macs[2], macs[3], load.Packet(coreSrv6, n.ue.addr, size)) }
	return up, down, nil
}

func manyMarks(m marked) (list []marked) {
	for range marksPackets {
		list = append(list, m)
	}
	return list
}

// classed gives the packet of a frame a traffic class, and the G-PDU around it another one, if there is one.
func classed(frame []byte, inside, outside uint8) []byte {
	ip := frame[ethernetHeader:]
	if ip[0]>>4 == 4 {
		packet.SetTrafficClass(ip, outside)
		ip = ip[udpHeaders+len(gpduHeader(0, 0)):]
	}
	packet.SetTrafficClass(ip, inside)
	return frame
}

// Lengths of headers in front of packets.
const (
	ethernetHeader = 14
	udpHeaders     = packet.IPv4HeaderLen + packet.UDPHeaderLen
)

// seenMarks sends a frame some times, and returns the classes of those that arrive at the other end: so many, or all that
// come within a while.
func (n *qosNet) seenMarks(ctx context.Context, from, to *lab.Node, out, in string, frame []byte, wanted int) (seen []marked, err error) {
	var mu sync.Mutex
	came := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	tag := frame[bytes.LastIndex(frame, []byte("isthmus!")):]
	watch, err := n.lab.Watch(to, in, func(_ time.Time, frame []byte) {
		if m, ok := marksOf(frame); ok && bytes.HasSuffix(frame, tag) {
			mu.Lock()
			seen = append(seen, m)
			mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, watch.Stop()) }()
	var sender *load.Sender
	err = from.Do(func() (err error) {
		sender, err = load.OpenSender(out)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	for range marksPackets {
		if err := sender.Send(frame); err != nil {
			return nil, err
		}
	}
	patience := daemonStart
	if wanted == 0 {
		patience = qosDrain
	}
	if err := poll(ctx, patience, time.Millisecond, func(context.Context) (bool, error) { return wanted > 0 && came() >= wanted, nil }); err != nil && wanted > 0 {
		return nil, fmt.Errorf("%d of %d packets came: %w", came(), wanted, err)
	}
	mu.Lock()
	defer mu.Unlock()
	return seen, ctx.Err()
}

// marksOf reads the traffic classes of a UDP packet of IPv6, in a G-PDU or not.
func marksOf(frame []byte) (m marked, ok bool) {
	if len(frame) < ethernetHeader+packet.IPv6HeaderLen {
		return m, false
	}
	ip := frame[ethernetHeader:]
	if ip[0] == 0x45 {
		if binary.BigEndian.Uint16(ip[22:]) != gtp.PortUser {
			return m, false
		}
		h, err := gtp.Decapsulate(ip[udpHeaders:])
		if err != nil || len(h.Payload) < packet.IPv6HeaderLen {
			return m, false
		}
		m.outside, ip = packet.TrafficClass(ip), h.Payload
	}
	m.inside = packet.TrafficClass(ip)
	return m, ip[0]>>4 == 6 && ip[6] == packet.ProtoUDP
}
