// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Lengths of frames' parts.
const (
	etherLen = 14
	ipv4Len  = 20
	outerLen = ipv4Len + packet.UDPHeaderLen // IPv4 and UDP of a tunnel
	gtpuLen  = 8                             // of a G-PDU without options (TS 29.281 section 5.1)
	innerLen = packet.IPv6HeaderLen + packet.UDPHeaderLen
)

// protocolTCP is TCP (RFC 9293).
const protocolTCP = 6

// compose makes the settings of a run, and the frame that it starts from, as long
// as the longest of its lanes.
func compose(lanes []Lane, pace Pace) (*generatorSettings, []byte, error) {
	if len(lanes) == 0 || len(lanes) > MaxLanes {
		return nil, nil, fmt.Errorf("a run has 1 to %d lanes, not %d", MaxLanes, len(lanes))
	}
	s := &generatorSettings{Length: uint64(pace.Time), Slack: uint64(pace.Slack), Batch: liveBatch}
	if pace.Rate > 0 {
		s.Batch = pacedBatch
	}
	if pace.Batch > 0 {
		s.Batch = uint32(pace.Batch)
	}
	if pace.Rate > 0 {
		s.Interval = uint64(float64(s.Batch) * float64(time.Second) / pace.Rate)
	}
	longest := 0
	for _, l := range lanes {
		longest = max(longest, len(l.Frame))
	}
	longest += headroom
	for i, l := range lanes {
		if err := s.Lanes[i].from(l, longest); err != nil {
			return nil, nil, err
		}
		// Where payloads begin at different places, the headers of one lane
		// would lie in the payload of another.
		if end, first := s.Lanes[i].payload(), s.Lanes[0].payload(); end != first {
			return nil, nil, errors.New("all lanes of a run carry packets of one size")
		}
	}
	return s, make([]byte, longest), s.spread(lanes)
}

// Forms of frames, as the program numbers them.
const (
	formIPv6 = iota
	formTunnel
	formIPv4
	formGPDU
)

// tcpLen is the length of a TCP header without options (RFC 9293 section 3.1).
const tcpLen = 20

// network is the length of what stands before UDP or TCP in a frame of that form.
func network(form uint32) int {
	switch form {
	case formTunnel:
		return etherLen + outerLen + packet.IPv6HeaderLen
	case formGPDU:
		return etherLen + outerLen + gtpuLen + packet.IPv6HeaderLen
	case formIPv4:
		return etherLen + ipv4Len
	}
	return etherLen + packet.IPv6HeaderLen
}

// header is the length of a template.
func (t *generatorLane) header() int {
	n := network(t.Form) + packet.UDPHeaderLen
	if t.Tcp == 1 {
		n += tcpLen - packet.UDPHeaderLen
	}
	return n
}

// payload is where the payload of a lane's packets begins in the pages of a run.
func (t *generatorLane) payload() int { return int(t.Skip) + t.header() }

// from makes a template.
func (t *generatorLane) from(l Lane, longest int) error {
	frame := append([]byte(nil), l.Frame...)
	if err := t.judge(frame); err != nil {
		return err
	}
	t.Skip, t.Target = uint32(longest-len(frame)), uint32(l.Target)
	t.First, t.Count = uint32(l.First), uint32(l.Count)
	if l.Count < 1 || l.Start < 0 || l.Start >= l.Count {
		return fmt.Errorf("a lane of %d peers cannot start with number %d", l.Count, l.Start)
	}
	if l.ToClient {
		t.ToClient = 1
	}
	clear(frame[t.header():]) // as the run's pages are
	if l.Ports {
		t.Ports = 1
		at := network(t.Form)
		if l.ToClient {
			at += 2
		}
		clear(frame[at:][:2])
	}
	if t.Form == formIPv4 {
		t.sum4(frame)
	} else {
		t.sum6(frame)
	}
	copy(t.Header[:], frame[:max(t.header(), min(len(frame), network(t.Form)+tcpLen))])
	return nil
}

// judge finds out what a frame holds.
func (t *generatorLane) judge(frame []byte) error {
	tooShort := func() error { return fmt.Errorf("a frame of %d bytes holds no test packet", len(frame)) }
	if len(frame) < etherLen+ipv4Len+tcpLen {
		return tooShort()
	}
	next := frame[etherLen+6]
	if frame[12] == etherIPv4>>8 && frame[13] == etherIPv4&0xff {
		inside := frame[etherLen+outerLen:]
		next = frame[etherLen+9]
		t.Form = formIPv4
		if next == packet.ProtoUDP {
			switch {
			case isInner(inside):
				t.Form, next = formTunnel, inside[6]
			case isGPDU(inside):
				t.Form, next = formGPDU, inside[gtpuLen+6]
			}
		}
	}
	if next == protocolTCP {
		t.Tcp = 1
	}
	if len(frame) < t.header() {
		return tooShort()
	}
	return nil
}

// isInner reports whether what UDP carries is an IPv6 packet: the marker, too, begins as one
// does.
func isInner(b []byte) bool {
	return len(b) >= innerLen && b[0]>>4 == 6 && int(binary.BigEndian.Uint16(b[4:])) == len(b)-packet.IPv6HeaderLen
}

// isGPDU reports whether it is a G-PDU with such a packet and without options.
func isGPDU(b []byte) bool {
	return len(b) >= gtpuLen && b[0] == 0x30 && b[1] == 0xff && isInner(b[gtpuLen:])
}

// sum6 takes the client out of an IPv6 packet, in a tunnel or not, and notes the
// checksums of what is left.
func (t *generatorLane) sum6(frame []byte) {
	at := network(t.Form) - packet.IPv6HeaderLen
	client, other := frame[at+8:at+24], frame[at+24:at+40]
	if t.ToClient == 1 {
		client, other = other, client
	}
	net, far := [2]byte(other[4:6]), [4]byte(other[12:])
	clear(client)
	clear(other[4:6])
	clear(other[12:])
	inner := packet.IPv6(frame[at:])
	segment := inner[packet.IPv6HeaderLen:]
	next := t.clearChecksum(segment)
	t.Sum = uint32(^packet.Checksum(inner.SrcBytes(), inner.DstBytes(), next, segment))
	copy(other[4:6], net[:])
	copy(other[12:], far[:])
	if t.Form != formIPv6 {
		ip := frame[etherLen:][:ipv4Len]
		clear(ip[10:16]) // checksum and source
		t.OuterSum = uint32(packet.Fold(packet.Sum(0, ip)))
	}
}

// sum4 does the same for an IPv4 packet.
func (t *generatorLane) sum4(frame []byte) {
	ip := frame[etherLen:][:ipv4Len]
	other := ip[16:20]
	if t.ToClient == 1 {
		other = ip[12:16]
	}
	far := [4]byte(other)
	clear(ip[10:12])
	clear(ip[12:20])
	t.OuterSum = uint32(packet.Fold(packet.Sum(0, ip)))
	segment := frame[etherLen+ipv4Len:]
	next := t.clearChecksum(segment)
	t.Sum = uint32(packet.Fold(packet.Sum(uint64(next)+uint64(len(segment)), segment)))
	copy(other, far[:])
}

// clearChecksum clears the checksum of UDP or TCP and returns which of them it is.
func (t *generatorLane) clearChecksum(segment []byte) byte {
	if t.Tcp == 1 {
		segment[16], segment[17] = 0, 0
		return protocolTCP
	}
	segment[6], segment[7] = 0, 0
	return packet.ProtoUDP
}

// spread distributes the lanes over the schedule, each as evenly as its share
// allows.
func (s *generatorSettings) spread(lanes []Lane) error {
	shares, left := make([]int, len(lanes)), 0
	for i, l := range lanes {
		shares[i] = max(l.Share, 1)
		left += shares[i]
	}
	if left > MaxSchedule {
		return fmt.Errorf("the shares of all lanes come to %d, more than %d", left, MaxSchedule)
	}
	s.Period = uint32(left)
	credit := make([]int, len(lanes))
	for slot := range left {
		best := 0
		for i := range lanes {
			credit[i] += shares[i]
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= left
		s.Schedule[slot] = uint8(best)
	}
	return nil
}
