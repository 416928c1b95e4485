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

// sctpWatch keeps which data has left the server, and come to the terminal, by which link; and the server's heartbeats.
type sctpWatch struct {
	mu         sync.Mutex
	left, came map[uint16][]sctpPassed // by the terminal's port
	beats      map[uint16][]sctpBeat
}

// sctpPassed is a chunk of the server's data.
type sctpPassed struct {
	at   time.Time
	tsn  uint32
	link int
}

// sctpBeat is a HEARTBEAT that has left the server, or an answer to one that has come there.
type sctpBeat struct {
	at     time.Time
	link   int
	answer bool
	info   string // what an answer has in common with what it answers
}

// watchSCTP reads the packets of both ends of both links.
func watchSCTP(n *cutNet) (*sctpWatch, error) {
	w := &sctpWatch{left: map[uint16][]sctpPassed{}, came: map[uint16][]sctpPassed{}, beats: map[uint16][]sctpBeat{}}
	for link, name := range cutLinks {
		_, err := n.lab.Watch(n.server, name, func(at time.Time, frame []byte) {
			w.see(w.left, link, at, frame)
			w.seeBeats(link, at, frame)
		})
		if err != nil {
			return nil, err
		}
		if _, err := n.lab.Watch(n.ue, name, func(at time.Time, frame []byte) { w.see(w.came, link, at, frame) }); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// packetOf is the SCTP packet of a frame, Ethernet, IPv6, SCTP, which may be in UDP, and whom it is from; nil if it has none.
func packetOf(frame []byte) (packet []byte, from netip.Addr) {
	const ethernet, ip, udp = 14, 40, 8
	if len(frame) < ethernet+ip+udp {
		return nil, from
	}
	packet, from = frame[ethernet+ip:], netip.AddrFrom16([16]byte(frame[ethernet+8:]))
	switch frame[ethernet+6] {
	case unix.IPPROTO_SCTP:
	case unix.IPPROTO_UDP:
		packet = packet[udp:]
	default:
		return nil, from
	}
	if len(packet) < chunk.HeaderSize {
		return nil, from
	}
	return packet, from
}

// eachChunk calls for each chunk of a packet.
func eachChunk(packet []byte, call func(chunk.Chunk)) {
	for rest := packet[chunk.HeaderSize:]; len(rest) > 0; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			return
		}
		rest = after
		call(c)
	}
}

// see takes the server's data.
func (w *sctpWatch) see(into map[uint16][]sctpPassed, link int, at time.Time, frame []byte) {
	packet, from := packetOf(frame)
	if packet == nil || !slices.Contains(wireServer, from) {
		return
	}
	port := binary.BigEndian.Uint16(packet[2:])
	w.mu.Lock()
	defer w.mu.Unlock()
	eachChunk(packet, func(c chunk.Chunk) {
		if d, err := chunk.ParseData(c); c.Type == chunk.TypeData && err == nil {
			into[port] = append(into[port], sctpPassed{at, d.TSN, link})
		}
	})
}

// seeBeats takes the server's heartbeats, and the answers to them.
func (w *sctpWatch) seeBeats(link int, at time.Time, frame []byte) {
	packet, from := packetOf(frame)
	if packet == nil {
		return
	}
	answer, port := false, binary.BigEndian.Uint16(packet[2:])
	if !slices.Contains(wireServer, from) {
		answer, port = true, binary.BigEndian.Uint16(packet)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	eachChunk(packet, func(c chunk.Chunk) {
		if c.Type == chunk.TypeHeartbeat && !answer || c.Type == chunk.TypeHeartbeatAck && answer {
			w.beats[port] = append(w.beats[port], sctpBeat{at, link, answer, string(c.Body)})
		}
	})
}

// firstBeats are when an association's server was first answered, from an instant on, what it had asked by the first link, and
// when it had asked that, which may be before. Without an answer it is when the server first asked from then on. Zero: never.
func (w *sctpWatch) firstBeats(port uint16, from time.Time) (asked, answered time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[string]time.Time{} // each question's
	for _, b := range inTurnOf(w.beats[port], func(b sctpBeat) time.Time { return b.at }) {
		switch late := !b.at.Before(from); {
		case b.link != 0:
		case !b.answer:
			at[b.info] = b.at
			if late && asked.IsZero() {
				asked = b.at
			}
		case late && !at[b.info].IsZero():
			return at[b.info], b.at
		}
	}
	return asked, time.Time{}
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
	for i, p := range inTurnOf(w.left[port], func(p sctpPassed) time.Time { return p.at }) {
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
func inTurnOf[T any](list []T, at func(T) time.Time) []T {
	return slices.SortedStableFunc(slices.Values(list), func(a, b T) int { return at(a).Compare(at(b)) })
}
