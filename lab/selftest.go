// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Addresses of the two ends of a wire under test.
var (
	selfTestA = netip.MustParseAddr("2001:db8::1")
	selfTestB = netip.MustParseAddr("2001:db8::2")
)

// Anchor is one figure that wires must reach before a table made with them
// means anything.
type Anchor struct {
	// What was measured, and its unit.
	What, Unit string
	// Achieved must lie from Least to Most.
	Achieved, Least, Most float64
	// Published is what the papers state; 0 if they do not.
	Published float64
	// Detail says in words what was seen.
	Detail string
}

// wireTest measures some anchors on a wire of its own.
type wireTest struct {
	what    string
	measure func(context.Context, *Env) ([]Anchor, error)
}

// profiled is what a profile states, in milliseconds, and within what it must be found.
//
// The mean of a delay over a time T strays by its deviation times √(4τ/T), however many packets
// there are: the integral of its correlation (1+t/τ)·exp(-t/τ), there and back, is 4τ. For UMTS τ is
// 0.51 s, so that half a minute counts as 15 independent delays and the mean strays by 31 ms; over a
// thousand seeds the deviation does so, too, with the long tail of the lognormal. For the WLAN τ is
// 2.8 ms, 50 pings a second are independent, and mean and deviation of 500 stray by 0.03 and 0.07 ms.
// Bounds are twice that, and for the WLAN 0.1 ms more for the machine. What order or a busy machine
// adds to what the medium made is a figure of its own, without chance.
type profiled struct{ stated, least, most float64 }

// Of UMTS and WLAN.
var (
	umtsMean, umtsDeviation = profiled{208, 146, 270}, profiled{120, 58, 182}
	wlanMean, wlanDeviation = profiled{1, 0.84, 1.16}, profiled{0.66, 0.42, 0.9}
)

// wireTests follow each other, but for those of one group. Pings over UMTS at several rates are at
// once: packets that wait for each other would raise the mean with their number.
func wireTests() [][]wireTest {
	umts := func(perSecond int) wireTest {
		return pingTest("UMTS", UMTS(), 30*perSecond, perSecond, umtsMean, umtsDeviation, 1)
	}
	return [][]wireTest{
		{pingTest("WLAN", WLAN(), 500, 50, wlanMean, wlanDeviation, 0.1)},
		{umts(1), umts(33), umts(100)},
		{tcpTest("28 Mbit/s", 28e6, 35<<20)},
		{tcpTest("2 Mbit/s", 2e6, 2500<<10)},
		{lossTest()},
	}
}

// MeasureWires proves the wires: round trips, rates and the published loss. It
// takes a minute and a half. Packets out of order or missing are an error; a
// figure outside its bounds is left to the caller to judge.
func MeasureWires(ctx context.Context, e *Env) (all []Anchor, err error) {
	for _, tests := range wireTests() {
		found := make([][]Anchor, len(tests))
		wait, ctx := errgroup.WithContext(ctx)
		for i, t := range tests {
			e.Step("wire: %s", t.what)
			wait.Go(func() (err error) {
				if found[i], err = t.measure(ctx, e); err != nil {
					err = fmt.Errorf("%s: %w", t.what, err)
				}
				return err
			})
		}
		if err := wait.Wait(); err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(found...)...)
	}
	return all, nil
}

// wiredPair is two nodes on a wire that know each other's link-layer address,
// so that nothing but the traffic under test draws from its random numbers.
func wiredPair(ctx context.Context, e *Env, c WireConfig) (a, b *Node, w *Wire, err error) {
	l, err := e.New(ctx, "wire")
	if err != nil {
		return nil, nil, nil, err
	}
	a, b = l.Node("a"), l.Node("b")
	if w, err = l.Wire(a, "eth0", b, "eth0", c); err == nil {
		a.Addr("eth0", selfTestA.String()+"/64")
		b.Addr("eth0", selfTestB.String()+"/64")
		err = errors.Join(l.Err(), a.Meet("eth0", selfTestB, b), b.Meet("eth0", selfTestA, a), e.Capture(a, "eth0"))
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, l.Close())
	}
	return a, b, w, nil
}

// anchor is that of a figure that a profile states.
func (p profiled) anchor(what string, achieved time.Duration, detail string) Anchor {
	return Anchor{What: what, Unit: "ms", Achieved: ms(achieved), Least: p.least, Most: p.most, Published: p.stated, Detail: detail}
}

// pingTest pings over a profile: the mean and the deviation beside those that it states, and how
// much longer the mean is than what the medium alone made of these packets.
func pingTest(profile string, c WireConfig, count, perSecond int, mean, deviation profiled, late float64) wireTest {
	what := fmt.Sprintf("ping, %s profile, %d a second", profile, perSecond)
	return wireTest{what, func(ctx context.Context, e *Env) (_ []Anchor, err error) {
		a, _, w, err := wiredPair(ctx, e, c)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		// Membership reports of the ends would be among what the wire drew (RFC 3810 9.11).
		if _, err := a.Ping(ctx, Ping{To: selfTestB, Count: 4, Interval: time.Second, Timeout: 3 * time.Second}); err != nil {
			return nil, err
		}
		before := [2]LaneCounters{w.Counters(AtoB), w.Counters(BtoA)}
		r, err := a.Ping(ctx, Ping{To: selfTestB, Count: count, Interval: time.Second / time.Duration(perSecond), Timeout: 3 * time.Second})
		if err != nil {
			return nil, err
		}
		if r.Lost() > 0 {
			return nil, fmt.Errorf("%d of %d pings were lost on a wire without loss", r.Lost(), r.Sent())
		}
		trip := w.tripSince(before)
		drawn := trip.Latency - trip.Waited
		m, s := r.Mean()
		return []Anchor{
			mean.anchor(what+", mean", m, fmt.Sprintf("%.3f ms is what the medium made of these packets", ms(drawn))),
			deviation.anchor(what+", deviation", s, fmt.Sprintf("%d round trips", r.Sent())),
			{What: what + ", longer than the medium's", Unit: "ms", Achieved: ms(m - drawn), Least: -late, Most: late,
				Detail: fmt.Sprintf("%.3f ms for the order, sent %.3f ms late, a packet at most %.3f ms", ms(trip.Waited), ms(trip.Late), ms(trip.WorstLate))},
		}, nil
	}}
}

// tripSince is what the times of both directions come to for a round trip since then.
func (w *Wire) tripSince(before [2]LaneCounters) (trip LaneCounters) {
	for _, d := range []Direction{AtoB, BtoA} {
		c := w.Counters(d)
		n := time.Duration(c.Sent - before[d].Sent)
		trip.Latency += (c.Latency - before[d].Latency) / n
		trip.Waited += (c.Waited - before[d].Waited) / n
		trip.Late += (c.Late - before[d].Late) / n
		trip.WorstLate = max(trip.WorstLate, c.WorstLate)
	}
	return trip
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func tcpTest(line string, rate, bytes int64) wireTest {
	what := "TCP goodput, " + line
	return wireTest{what, func(ctx context.Context, e *Env) (_ []Anchor, err error) {
		lane := LaneConfig{Rate: rate, Delay: 5 * time.Millisecond}
		a, b, w, err := wiredPair(ctx, e, WireConfig{AtoB: lane, BtoA: lane})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		// One that fills the queue, and that every kernel allows: the machine's own may pace
		// below the rate of the line and pause to see how far the other end is, as BBR does.
		if err := b.Sysctl("net.ipv4.tcp_congestion_control", "reno").lab.Err(); err != nil {
			return nil, err
		}
		r, err := Transfer(ctx, TransferConfig{Server: b, Addr: selfTestB, Client: a, Bytes: bytes})
		if err != nil {
			return nil, err
		}
		if !r.Intact {
			return nil, errors.New("the data that arrived is not what was sent")
		}
		note := fmt.Sprintf("%.2f Mbit/s over %.1f s, %d packets dropped by the queue",
			r.Goodput()/1e6, r.Duration.Seconds(), w.Counters(BtoA).QueueFull)
		return []Anchor{{What: what, Unit: "% of the rate", Achieved: 100 * r.Goodput() / float64(rate), Least: 93, Most: 100, Detail: note}}, nil
	}}
}

func lossTest() wireTest {
	what := "UDP loss, 70 kB/s on 384 kbit/s"
	return wireTest{what, func(ctx context.Context, e *Env) (_ []Anchor, err error) {
		a, b, _, err := wiredPair(ctx, e, UMTS())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		const rate = 70 // datagrams of 1000 bytes per second
		r, err := Datagrams(ctx, DatagramConfig{From: a, To: b, Addr: selfTestB, Size: 1000, Rate: rate, Count: 15 * rate, Skip: 5 * rate})
		if err != nil {
			return nil, err
		}
		if r.Reordered > 0 {
			return nil, fmt.Errorf("%d datagrams came out of order", r.Reordered)
		}
		note := fmt.Sprintf("%d of %d datagrams of 1000 bytes arrived, all in order", r.Received, r.Sent)
		return []Anchor{{What: what, Unit: "%", Achieved: 100 * r.Loss(), Least: 32, Most: 36, Published: 33.82, Detail: note}}, nil
	}}
}
