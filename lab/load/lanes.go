// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Lengths of frames' parts.
const (
	etherLen = 14
	outerLen = 20 + packet.UDPHeaderLen // IPv4 and UDP of a tunnel
	innerLen = packet.IPv6HeaderLen + packet.UDPHeaderLen
)

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

// payload is where the payload of a lane's packets begins in the pages of a run.
func (t *generatorLane) payload() int {
	return int(t.Skip) + etherLen + outerLen*int(t.Tunnelled) + innerLen
}

// from makes a template.
func (t *generatorLane) from(l Lane, longest int) error {
	frame := append([]byte(nil), l.Frame...)
	at := etherLen
	if len(frame) > at && frame[12] == etherIPv4>>8 && frame[13] == etherIPv4&0xff {
		t.Tunnelled = 1
		at += outerLen
	}
	if len(frame) < at+innerLen {
		return fmt.Errorf("a frame of %d bytes holds no test packet", len(frame))
	}
	t.Skip, t.Target = uint32(longest-len(frame)), uint32(l.Target)
	t.First, t.Count = uint32(l.First), uint32(l.Count)
	if l.Count < 1 || l.Start < 0 || l.Start >= l.Count {
		return fmt.Errorf("a lane of %d peers cannot start with number %d", l.Count, l.Start)
	}
	client, other := frame[at+8:at+24], frame[at+24:at+40]
	if l.ToClient {
		t.ToClient = 1
		client, other = other, client
	}
	clear(frame[at+innerLen:]) // as the run's pages are
	net := [2]byte(other[4:6])
	clear(client)
	clear(other[4:6])
	inner := packet.IPv6(frame[at:])
	udp := inner[packet.IPv6HeaderLen:]
	udp[6], udp[7] = 0, 0
	t.Sum = uint32(^packet.Checksum(inner.SrcBytes(), inner.DstBytes(), packet.ProtoUDP, udp))
	copy(other[4:6], net[:])
	if t.Tunnelled == 1 {
		ip := frame[etherLen:][:20]
		clear(ip[10:16]) // checksum and source
		t.OuterSum = uint32(packet.Fold(packet.Sum(0, ip)))
	}
	copy(t.Header[:], frame[:at+innerLen])
	return nil
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
