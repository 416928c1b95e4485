// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"testing"
	"time"
)

const millisecond = int64(time.Millisecond)

func mustLane(t *testing.T, c LaneConfig) *lane {
	t.Helper()
	return newLane(mustComplete(t, c), 1, 0)
}

func mustComplete(t *testing.T, c LaneConfig) LaneConfig {
	t.Helper()
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sized is a frame of an IP packet of that size.
func sized(size int) []byte { return make([]byte, ethernetHeader+size) }

func TestLaneSerializesAtRateAndDropsTail(t *testing.T) {
	l := mustLane(t, LaneConfig{Rate: 8e6, Queue: 3000, Delay: 5 * time.Millisecond}) // 1000 bytes per ms
	for i, want := range []struct {
		at, leave int64
		ok        bool
	}{
		{0, 6 * millisecond, true},
		{0, 7 * millisecond, true},
		{0, 8 * millisecond, true},
		{0, 0, false}, // 3000 bytes are in the queue
		{millisecond / 2, 0, false},
		{millisecond, 9 * millisecond, true}, // one has left
		{20 * millisecond, 26 * millisecond, true},
	} {
		leave, ok := l.admit(want.at, sized(1000))
		if leave != want.leave || ok != want.ok {
			t.Errorf("packet %d leaves at %v, %v; want %v, %v", i, time.Duration(leave), ok, time.Duration(want.leave), want.ok)
		}
	}
	if l.count.QueueFull != 2 {
		t.Errorf("%d dropped by the queue, want 2", l.count.QueueFull)
	}
}

// 70 kB/s in datagrams of 1000 bytes over IPv6 on the uplink of the published
// measurements, which lost 33.82 %.
func TestLaneLosesThePublishedShare(t *testing.T) {
	l := mustLane(t, UMTS().AtoB)
	const rate, ipv6AndUDP = 70, 48
	for i := range int64(60 * rate) {
		if i == 10*rate {
			l.count = LaneCounters{} // the queue is full now
		}
		l.admit(i*int64(time.Second)/rate, sized(1000+ipv6AndUDP))
	}
	loss := 100 * float64(l.count.QueueFull) / float64(l.count.Packets)
	if loss < 34 || loss > 35.2 {
		t.Errorf("%.2f %% are lost, want 34.6", loss)
	}
}

func TestLaneLosesStatedShareTheSameEachTime(t *testing.T) {
	config := LaneConfig{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.1}
	a, b := mustLane(t, config), mustLane(t, config)
	for i := range int64(20000) {
		leaveA, okA := a.admit(i*millisecond, sized(100))
		leaveB, okB := b.admit(i*millisecond, sized(100))
		if leaveA != leaveB || okA != okB {
			t.Fatalf("packet %d differs between two lanes of one seed", i)
		}
	}
	if lost := a.count.Lost; lost < 1800 || lost > 2200 {
		t.Errorf("%d of 20000 lost, want about 2000", lost)
	}
}

func TestLaneRefusesWhatCannotBeEmulated(t *testing.T) {
	for _, c := range []LaneConfig{{Rate: -1}, {Loss: 1.1}, {Loss: math.NaN()}, {Jitter: 1}, {Delay: -1}, {Correlation: -1}, {Overhead: -1}} {
		if _, err := c.complete(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// Ethernet carries more than the packet, and no frame of less than 64 bytes.
func TestLaneOfEthernet(t *testing.T) {
	for size, perSecond := range map[int]float64{1500: 8127, 46: 148810, 40: 148810, 1000: 12042} { // 100 Mbit/s: 1538, 84, 84 and 1038 bytes
		l := mustLane(t, Ethernet(100e6).AtoB)
		leave, _ := l.admit(0, sized(size))
		if got := 1e9 / float64(leave); math.Abs(got-perSecond) > perSecond/1000 {
			t.Errorf("%d bytes: %.0f a second, want %.0f", size, got, perSecond)
		}
	}
}

// A model of a wire takes as long as its rate and delay say, and carries nothing while it is cut.
func TestWireModel(t *testing.T) {
	m, err := NewWireModel(WireConfig{AtoB: LaneConfig{Rate: 1e6, Delay: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, ethernetHeader+125) // a millisecond on the line
	if leave, ok := m.Admit(AtoB, 5*time.Millisecond, frame); !ok || leave != 16*time.Millisecond {
		t.Errorf("a frame leaves at %v, %v, want 16ms", leave, ok)
	}
	if m.Cut(AtoB); m.lanes[BtoA].cut {
		t.Error("the cut of a direction is one of both")
	}
	if _, ok := m.Admit(AtoB, 20*time.Millisecond, frame); ok {
		t.Error("a wire that is cut carries a frame")
	}
	m.Restore()
	if _, ok := m.Admit(AtoB, 30*time.Millisecond, frame); !ok {
		t.Error("a wire that is whole again carries nothing")
	}
	if _, err := NewWireModel(WireConfig{BtoA: LaneConfig{Loss: 2}}); err == nil {
		t.Error("a wire that cannot be has a model")
	}
}

// What a cut throws away holds up nothing that comes after it, nor has no room for it.
func TestCutLeavesNoQueue(t *testing.T) {
	own := 101 * millisecond                                                       // on the line, and behind it
	l := mustLane(t, LaneConfig{Rate: 80e3, Queue: 5000, Delay: time.Millisecond}) // 10 bytes per ms
	for range 10 {
		l.admit(0, sized(1000)) // until the queue is full
	}
	full := l.count.QueueFull
	l.setCut(true)
	l.setCut(false)
	leave, ok := l.admit(millisecond, sized(1000))
	if want := millisecond + own; !ok || leave != want || l.count.QueueFull != full {
		t.Errorf("the first packet behind a cut leaves at %v, %v; want %v", time.Duration(leave), ok, time.Duration(want))
	}
	m, err := NewWireModel(WireConfig{AtoB: l.config})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		m.Admit(AtoB, 0, sized(1000))
	}
	m.Cut()
	m.Restore()
	if leave, ok := m.Admit(AtoB, time.Millisecond, sized(1000)); !ok || int64(leave) != millisecond+own {
		t.Errorf("of a model it leaves at %v, %v", leave, ok)
	}
}
