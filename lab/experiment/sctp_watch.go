// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// sctpWatch keeps which data has left the server, and come to the terminal, by which link.
type sctpWatch struct {
	mu         sync.Mutex
	left, came map[uint16][]sctpPassed // by the terminal's port
}

// sctpPassed is a chunk of the server's data.
type sctpPassed struct {
	at   time.Time
	tsn  uint32
	link int
}

// watchSCTP reads the packets of both ends of both links.
func watchSCTP(n *cutNet) (*sctpWatch, error) {
	w := &sctpWatch{left: map[uint16][]sctpPassed{}, came: map[uint16][]sctpPassed{}}
	for link, name := range cutLinks {
		if _, err := n.lab.Watch(n.server, name, func(at time.Time, frame []byte) { w.see(w.left, link, at, frame) }); err != nil {
			return nil, err
		}
		if _, err := n.lab.Watch(n.ue, name, func(at time.Time, frame []byte) { w.see(w.came, link, at, frame) }); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// see takes a frame: Ethernet, IPv6, SCTP, which may be in UDP.
func (w *sctpWatch) see(into map[uint16][]sctpPassed, link int, at time.Time, frame []byte) {
	const ethernet, ip, udp = 14, 40, 8
	if len(frame) < ethernet+ip+udp || !slices.Contains(wireServer, netip.AddrFrom16([16]byte(frame[ethernet+8:]))) {
		return
	}
	packet := frame[ethernet+ip:]
	switch frame[ethernet+6] {
	case unix.IPPROTO_SCTP:
	case unix.IPPROTO_UDP:
		packet = packet[udp:]
	default:
		return
	}
	if len(packet) < chunk.HeaderSize {
		return
	}
	port := binary.BigEndian.Uint16(packet[2:])
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := packet[chunk.HeaderSize:]; len(rest) > 0; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			return
		}
		if rest = after; c.Type != chunk.TypeData {
			continue
		}
		if d, err := chunk.ParseData(c); err == nil {
			into[port] = append(into[port], sctpPassed{at, d.TSN, link})
		}
	}
}

// of is the data of an association, in the order in which it left the server.
func (w *sctpWatch) of(port uint16) (data []studyData) {
	w.mu.Lock()
	defer w.mu.Unlock()
	type copies struct {
		tsn  uint32
		link int
	}
	sent := map[copies][]int{} // places in data
	top := uint32(0)
	for i, p := range inTurnOf(w.left[port]) {
		fresh := i == 0 || int32(p.tsn-top) > 0
		if fresh {
			top = p.tsn
		}
		sent[copies{p.tsn, p.link}] = append(sent[copies{p.tsn, p.link}], i)
		data = append(data, studyData{sent: p.at, tsn: p.tsn, link: p.link, fresh: fresh})
	}
	// What has come is the last copy that had left by then: earlier ones were lost.
	for _, p := range w.came[port] {
		for _, i := range slices.Backward(sent[copies{p.tsn, p.link}]) {
			if d := &data[i]; d.came.IsZero() && !d.sent.After(p.at) {
				d.came = p.at
				break
			}
		}
	}
	return data
}

// inTurnOf are chunks in the order of their times: each link has them seen by itself.
func inTurnOf(list []sctpPassed) []sctpPassed {
	return slices.SortedStableFunc(slices.Values(list), func(a, b sctpPassed) int { return a.at.Compare(b.at) })
}
