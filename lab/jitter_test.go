// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// delaysOf sends packets in order, that far from each other, and returns the mean and the
// deviation of their delays and the share of the mean that kept them in order.
func delaysOf(t *testing.T, l *lane, interval, span time.Duration) (mean, deviation time.Duration, waited float64) {
	t.Helper()
	var sum, squares, last float64
	count := int(span / interval)
	for i := range count {
		at := int64(i) * int64(interval)
		leave, ok := l.admit(at, sized(100))
		if !ok || float64(leave) < last {
			t.Fatalf("packet %d leaves at %d, %v, after one at %.0f", i, leave, ok, last)
		}
		last = float64(leave)
		sum += float64(leave - at)
		squares += float64(leave-at) * float64(leave-at)
	}
	m := sum / float64(count)
	return time.Duration(m), time.Duration(math.Sqrt(max(squares/float64(count)-m*m, 0))), float64(l.count.Waited) / sum
}

// However many packets there are, their delays have the stated mean and deviation, in order.
func TestJitterAtAnyRate(t *testing.T) {
	umts := UMTS().AtoB
	umts.Rate = 0
	for _, c := range []LaneConfig{
		umts,
		{Delay: 470 * time.Microsecond, Jitter: 467 * time.Microsecond}, // of the WLAN
		{Delay: 100 * time.Millisecond, Jitter: time.Millisecond},
		{Delay: 100 * time.Millisecond, Jitter: 10 * time.Millisecond, Correlation: time.Second},
		{Delay: 3 * time.Millisecond},
	} {
		for _, perSecond := range []time.Duration{1, 33, 100} {
			t.Run(fmt.Sprintf("%v±%v, %d a second", c.Delay, c.Jitter, perSecond), func(t *testing.T) {
				l := mustLane(t, c)
				interval := time.Second / perSecond
				// Long enough that chance has no say: 20,000 independent delays.
				span := 20000 * max(interval, 4*l.config.Correlation)
				mean, deviation, waited := delaysOf(t, l, interval, span)
				if far(mean, c.Delay, 0.03) || far(deviation, c.Jitter, 0.05) {
					t.Errorf("mean %v, deviation %v", mean, deviation)
				}
				if waited > 0.01 {
					t.Errorf("%.1f %% of the mean keeps order", 100*waited)
				}
			})
		}
	}
}

func far(got, want time.Duration, share float64) bool {
	return math.Abs(float64(got-want)) > share*float64(want)+1000
}

// Neighbours resemble each other as stated, and what is far apart does not.
func TestJitterIsCorrelated(t *testing.T) {
	const tau, steps, count = 100, 10, 1_600_000
	c := LaneConfig{Delay: time.Second, Jitter: 10 * time.Millisecond, Correlation: tau * steps * time.Millisecond}
	l := mustLane(t, c)
	delays := make([]float64, 0, count)
	for i := range int64(count) {
		delays = append(delays, float64(l.delay(i*steps*millisecond))-float64(c.Delay))
	}
	for _, apart := range []int{10, 100, 300, 1000} {
		sum, squares := 0.0, 0.0
		for i := apart; i < count; i++ {
			sum += delays[i] * delays[i-apart]
			squares += delays[i] * delays[i]
		}
		s := float64(apart) / tau
		if got, want := sum/squares, (1+s)*math.Exp(-s); math.Abs(got-want) > 0.05 {
			t.Errorf("%v correlation times apart: correlation %.3f, want %.3f", s, got, want)
		}
	}
}

// The medium's delay at an instant does not depend on what else was sent, whatever the pauses.
func TestJitterIsTheMediums(t *testing.T) {
	for name, c := range map[string]LaneConfig{"UMTS": UMTS().AtoB, "WLAN": WLAN().AtoB} {
		c.Rate = 0
		many := mustLane(t, c)
		few := map[int64]*lane{}
		for _, pause := range []int64{30, 200, 500, 3000, 40_000, 110_000} {
			few[pause*millisecond] = mustLane(t, c)
		}
		for at := int64(0); at < int64(4*time.Minute); at += 10 * millisecond {
			delay := many.delay(at)
			for pause, l := range few {
				if at%pause == 0 && l.delay(at) != delay {
					t.Fatalf("%s, at %v: another delay than %v for one who sends each %v", name, time.Duration(at), time.Duration(delay), time.Duration(pause))
				}
			}
		}
		for _, pause := range []time.Duration{time.Hour, 10000 * time.Hour} {
			if d := many.delay(int64(pause)); d <= 0 || d > int64(time.Minute) {
				t.Errorf("%s: after %v the delay is %v", name, pause, time.Duration(d))
			}
		}
	}
}

// The first half minute of a profile is like the whole of it.
func TestProfilesFromTheStart(t *testing.T) {
	for name, c := range map[string]WireConfig{"WLAN": WLAN(), "UMTS": UMTS()} {
		there, back := newLane(mustComplete(t, c.AtoB), c.Seed, uint64(AtoB)), newLane(mustComplete(t, c.BtoA), c.Seed, uint64(BtoA))
		var sum, squares, n float64
		for at := int64(0); at < int64(time.Minute); at += 100 * millisecond {
			delay := there.delay(at)
			trip := float64(delay + back.delay(at+delay))
			sum, squares, n = sum+trip, squares+trip*trip, n+1
			if n != 300 && n != 600 {
				continue
			}
			mean := sum / n
			deviation := math.Sqrt(squares/n - mean*mean)
			if far(time.Duration(mean), c.AtoB.Delay+c.BtoA.Delay, 0.05) || math.Abs(deviation/math.Hypot(float64(c.AtoB.Jitter), float64(c.BtoA.Jitter))-1) > 0.05 {
				t.Errorf("%s, %.0f round trips: mean %v, deviation %v", name, n, time.Duration(mean), time.Duration(deviation))
			}
		}
	}
}
