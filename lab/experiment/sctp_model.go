// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// sctpModel is a terminal and a server, of an address for each wire, in virtual time: the engine over models of wires.
type sctpModel struct {
	now    time.Time
	begin  time.Time
	wires  []*lab.WireModel
	ends   [2]*assoc.Endpoint
	a      [2]*assoc.Association // of the terminal, and of the server
	out    assoc.Output
	flying []modelFlight

	data              []studyData // of the server, in the order in which it left
	top               uint32      // the highest TSN of it
	inactive, primary time.Time   // when the server first took the first path to be down, and last to it again
	got               uint64      // messages at the terminal
	wrong             int
	heard             time.Time
	gap               time.Duration // longest between two of them
}

// modelFirst is the first path of the server, which data takes. Others share its wire, from one address of the server or to
// the other of the terminal, and back: idle ones, which heartbeats alone find to be down, and later.
var modelFirst = assoc.Pair{Local: linkAddress(0, "b"), Remote: linkAddress(0, "a")}

// modelFlight is a packet on its way.
type modelFlight struct {
	at   time.Time
	to   int
	link int
	data [2]int // where what it carries begins and ends in the model's list
	assoc.Packet
}

// newSCTPModel sets an association up.
func newSCTPModel(par assoc.Parameters, wires []lab.WireConfig, seed byte) (*sctpModel, error) {
	begin := time.Unix(0, 0)
	m := &sctpModel{now: begin, begin: begin, wires: make([]*lab.WireModel, len(wires))}
	var addresses [2][]netip.Addr
	for i, host := range []string{"a", "b"} {
		for link := range m.wires {
			addresses[i] = append(addresses[i], netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::%s", link+1, host)))
		}
		random := rand.NewChaCha8([32]byte{seed, byte(i)})
		m.ends[i] = assoc.New(assoc.Config{
			Port: cutPort, Addresses: addresses[i], Parameters: par, Listen: i == 1, MaxAssociations: 1,
			Random: func(b []byte) { _, _ = random.Read(b) },
		})
	}
	for link, c := range wires {
		c.Seed += uint64(seed)
		var err error
		if m.wires[link], err = lab.NewWireModel(c); err != nil {
			return nil, err
		}
	}
	a, err := m.ends[0].Connect(addresses[1], cutPort, 0, par, m.now, &m.out)
	if err != nil {
		return nil, err
	}
	m.a[0] = a
	m.flush(0)
	m.run(5 * time.Second)
	if m.a[1] == nil {
		return nil, fmt.Errorf("no association is set up in 5 s: %+v", m.ends[1].Counters)
	}
	return m, nil
}

// run lets time pass.
func (m *sctpModel) run(d time.Duration) {
	end := m.now.Add(d)
	for {
		at, host := end, -1
		for i, e := range m.ends {
			if next := e.Next(); !next.IsZero() && next.Before(at) {
				at, host = next, i
			}
		}
		switch {
		case len(m.flying) > 0 && m.flying[0].at.Before(end) && !m.flying[0].at.After(at):
			f := m.flying[0]
			m.flying = slices.Delete(m.flying, 0, 1)
			m.now = f.at
			for i := f.data[0]; i < f.data[1]; i++ {
				m.data[i].came = m.now
			}
			m.ends[f.to].Handle(f.Packet, m.now, &m.out)
			m.flush(f.to)
		case host < 0:
			m.now = end
			return
		default:
			if at.After(m.now) {
				m.now = at
			}
			m.ends[host].Tick(m.now, &m.out)
			m.flush(host)
		}
	}
}

// flush puts on its way what a host has sent, and has its user read.
func (m *sctpModel) flush(host int) {
	for len(m.out.Packets)+len(m.out.Events) > 0 {
		read := 0
		for _, p := range m.out.Packets {
			m.send(host, p)
		}
		for i := range m.out.Events {
			read += m.note(host, &m.out.Events[i])
		}
		if m.out.Reset(); read > 0 {
			m.a[host].Read(read, m.now, &m.out)
		}
	}
}

func (m *sctpModel) send(from int, p assoc.Packet) {
	const headers = 14 + 40
	link := int(p.Remote.As16()[5]) - 1
	data := m.noteData(from, link, p.Octets)
	leave, ok := m.wires[link].Admit(lab.Direction(from), m.now.Sub(m.begin), make([]byte, headers+len(p.Octets)))
	if !ok {
		return
	}
	f := modelFlight{m.begin.Add(leave), 1 - from, link, data, assoc.Packet{Pair: assoc.Pair{Local: p.Remote, Remote: p.Local}, Octets: slices.Clone(p.Octets)}}
	at := len(m.flying)
	for at > 0 && m.flying[at-1].at.After(f.at) {
		at--
	}
	m.flying = slices.Insert(m.flying, at, f)
}

// noteData keeps what data leaves the server, and returns where that of a packet begins and ends in the list.
func (m *sctpModel) noteData(from, link int, packet []byte) [2]int {
	before := len(m.data)
	for rest := packet[chunk.HeaderSize:]; from == 1 && len(rest) > 0; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			break
		}
		if rest = after; c.Type != chunk.TypeData {
			continue
		}
		if d, err := chunk.ParseData(c); err == nil {
			fresh := before == 0 && len(m.data) == 0 || int32(d.TSN-m.top) > 0
			if fresh {
				m.top = d.TSN
			}
			m.data = append(m.data, studyData{sent: m.now, tsn: d.TSN, link: link, fresh: fresh})
		}
	}
	return [2]int{before, len(m.data)}
}

// note takes an event, and returns how many octets are read by it.
func (m *sctpModel) note(host int, e *assoc.Event) int {
	switch {
	case e.Kind == assoc.Accepted:
		m.a[host] = e.Association
	case e.Kind == assoc.PathInactive && host == 1 && e.Pair == modelFirst && m.inactive.IsZero():
		m.inactive = m.now
	case e.Kind == assoc.PrimaryChanged && host == 1:
		m.primary = m.now
	case e.Kind == assoc.Received:
		if !m.heard.IsZero() {
			m.gap = max(m.gap, m.now.Sub(m.heard))
		}
		if m.heard = m.now; len(e.Data.User) != cutSize || binary.BigEndian.Uint64(e.Data.User) != m.got {
			m.wrong++
		}
		m.got++
		return e.Data.Cost()
	}
	return 0
}

// setCut cuts the first wire, with what is on it, or makes it whole.
func (m *sctpModel) setCut(cut bool) {
	if !cut {
		m.wires[0].Restore()
		return
	}
	m.wires[0].Cut()
	m.flying = slices.DeleteFunc(m.flying, func(f modelFlight) bool { return f.link == 0 })
}
