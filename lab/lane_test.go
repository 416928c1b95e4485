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
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	return newLane(c, 1, 0)
}

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
		leave, ok := l.admit(want.at, 1000)
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
		l.admit(i*int64(time.Second)/rate, 1000+ipv6AndUDP)
	}
	loss := 100 * float64(l.count.QueueFull) / float64(l.count.Packets)
	if loss < 34 || loss > 35.2 {
		t.Errorf("%.2f %% are lost, want 34.6", loss)
	}
}

func TestLaneDelaysHaveStatedMeanAndDeviationInOrder(t *testing.T) {
	for _, c := range []LaneConfig{
		{Delay: 470 * time.Microsecond, Jitter: 467 * time.Microsecond},
		{Delay: 104 * time.Millisecond, Jitter: 85 * time.Millisecond},
		{Delay: 100 * time.Millisecond, Jitter: time.Millisecond},
		{Delay: 10 * time.Millisecond, Jitter: 15 * time.Millisecond}, // shape below 1
		{Delay: 3 * time.Millisecond},
	} {
		l := mustLane(t, c)
		const count = 200000
		var sum, squares float64
		for range count {
			d := float64(l.delay())
			if d < 0 {
				t.Fatalf("%+v: negative delay %v", c, d)
			}
			sum += d
			squares += d * d
		}
		mean := sum / count
		deviation := math.Sqrt(max(squares/count-mean*mean, 0))
		if math.Abs(mean-float64(c.Delay)) > 0.02*float64(c.Delay) || math.Abs(deviation-float64(c.Jitter)) > 0.02*float64(c.Jitter)+1000 {
			t.Errorf("%+v: mean %v, deviation %v", c, time.Duration(mean), time.Duration(deviation))
		}
		last := int64(0)
		for i := range int64(1000) {
			leave, ok := l.admit(i*1000, 100)
			if !ok || leave < last {
				t.Fatalf("%+v: packet %d leaves at %d, %v, after one at %d", c, i, leave, ok, last)
			}
			last = leave
		}
	}
}

func TestLaneLosesStatedShareTheSameEachTime(t *testing.T) {
	config := LaneConfig{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.1}
	a, b := mustLane(t, config), mustLane(t, config)
	for i := range int64(20000) {
		leaveA, okA := a.admit(i*millisecond, 100)
		leaveB, okB := b.admit(i*millisecond, 100)
		if leaveA != leaveB || okA != okB {
			t.Fatalf("packet %d differs between two lanes of one seed", i)
		}
	}
	if lost := a.count.Lost; lost < 1800 || lost > 2200 {
		t.Errorf("%d of 20000 lost, want about 2000", lost)
	}
}

func TestLaneRefusesWhatCannotBeEmulated(t *testing.T) {
	for _, c := range []LaneConfig{{Rate: -1}, {Loss: 1.1}, {Loss: math.NaN()}, {Jitter: 1}, {Delay: -1}} {
		if _, err := c.complete(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
