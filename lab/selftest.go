// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

	measure func(context.Context, *Env) (achieved float64, detail string, err error)
	// beside says that it is measured at once with the one before it.
	beside bool
}

// umtsAnchor is for so many pings a second, all rates at once: packets that wait for each
// other would raise the mean with their number.
func umtsAnchor(perSecond int) Anchor {
	return Anchor{
		What: fmt.Sprintf("ping, UMTS profile, %d a second, error of the mean", perSecond), Unit: "ms", Least: -1, Most: 1,
		measure: pingAnchor(UMTS(), 30*perSecond, time.Second/time.Duration(perSecond)), beside: perSecond > 1,
	}
}

// anchors are what is to be measured. The mean of a ping is compared with what
// the wire drew for those packets, not with the mean of the profile: 60 draws
// with a deviation of 120 ms miss their own mean by 15 ms, whoever makes them.
func anchors() []Anchor {
	return []Anchor{
		{What: "ping, WLAN profile, error of the mean", Unit: "ms", Least: -0.1, Most: 0.1, measure: pingAnchor(WLAN(), 60, 50*time.Millisecond)},
		umtsAnchor(1), umtsAnchor(33), umtsAnchor(100),
		{What: "TCP goodput, 28 Mbit/s", Unit: "% of the rate", Least: 93, Most: 100, measure: tcpAnchor(28e6, 35<<20)},
		{What: "TCP goodput, 2 Mbit/s", Unit: "% of the rate", Least: 93, Most: 100, measure: tcpAnchor(2e6, 2500<<10)},
		{What: "UDP loss, 70 kB/s on 384 kbit/s", Unit: "%", Least: 32, Most: 36, Published: 33.82, measure: lossAnchor},
	}
}

// MeasureWires proves the wires: round trips, rates and the published loss. It
// takes about half a minute. Packets out of order or missing are an error; a
// figure outside its bounds is left to the caller to judge.
func MeasureWires(ctx context.Context, e *Env) ([]Anchor, error) {
	measured := anchors()
	for from, to := 0, 1; from < len(measured); from, to = to, to+1 {
		for to < len(measured) && measured[to].beside {
			to++
		}
		wait, ctx := errgroup.WithContext(ctx)
		for i := range measured[from:to] {
			a := &measured[from+i]
			e.Step("wire: %s", a.What)
			wait.Go(func() (err error) {
				if a.Achieved, a.Detail, err = a.measure(ctx, e); err != nil {
					err = fmt.Errorf("%s: %w", a.What, err)
				}
				return err
			})
		}
		if err := wait.Wait(); err != nil {
			return nil, err
		}
	}
	return measured, nil
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

func pingAnchor(c WireConfig, count int, interval time.Duration) func(context.Context, *Env) (float64, string, error) {
	return func(ctx context.Context, e *Env) (_ float64, _ string, err error) {
		a, _, w, err := wiredPair(ctx, e, c)
		if err != nil {
			return 0, "", err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		// Membership reports of the ends would be among what the wire drew (RFC 3810 9.11).
		if _, err := a.Ping(ctx, Ping{To: selfTestB, Count: 4, Interval: time.Second, Timeout: 3 * time.Second}); err != nil {
			return 0, "", err
		}
		before := [2]LaneCounters{w.Counters(AtoB), w.Counters(BtoA)}
		r, err := a.Ping(ctx, Ping{To: selfTestB, Count: count, Interval: interval, Timeout: 3 * time.Second})
		if err != nil {
			return 0, "", err
		}
		if r.Lost() > 0 {
			return 0, "", fmt.Errorf("%d of %d pings were lost on a wire without loss", r.Lost(), count)
		}
		var drawn, late, worst, waited time.Duration
		for _, d := range []Direction{AtoB, BtoA} {
			c := w.Counters(d)
			drawn += (c.Latency - before[d].Latency) / time.Duration(c.Sent-before[d].Sent)
			late += (c.Late - before[d].Late) / time.Duration(c.Sent-before[d].Sent)
			worst = max(worst, c.WorstLate)
			waited += (c.Waited - before[d].Waited) / time.Duration(c.Sent-before[d].Sent)
		}
		mean, deviation := r.Mean()
		note := fmt.Sprintf("mean %.3f ms, deviation %.3f ms; drawn %.3f ms, of which %.3f ms for the order; sent %.3f ms late, a packet at most %.3f ms",
			ms(mean), ms(deviation), ms(drawn), ms(waited), ms(late), ms(worst))
		return ms(mean - drawn), note, nil
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func tcpAnchor(rate int64, bytes int64) func(context.Context, *Env) (float64, string, error) {
	return func(ctx context.Context, e *Env) (_ float64, _ string, err error) {
		lane := LaneConfig{Rate: rate, Delay: 5 * time.Millisecond}
		a, b, w, err := wiredPair(ctx, e, WireConfig{AtoB: lane, BtoA: lane})
		if err != nil {
			return 0, "", err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		// One that fills the queue, and that every kernel allows: the machine's own may pace
		// below the rate of the line and pause to see how far the other end is, as BBR does.
		if err := b.Sysctl("net.ipv4.tcp_congestion_control", "reno").lab.Err(); err != nil {
			return 0, "", err
		}
		r, err := Transfer(ctx, TransferConfig{Server: b, Addr: selfTestB, Client: a, Bytes: bytes})
		if err != nil {
			return 0, "", err
		}
		if !r.Intact {
			return 0, "", errors.New("the data that arrived is not what was sent")
		}
		note := fmt.Sprintf("%.2f Mbit/s over %.1f s, %d packets dropped by the queue",
			r.Goodput()/1e6, r.Duration.Seconds(), w.Counters(BtoA).QueueFull)
		return 100 * r.Goodput() / float64(rate), note, nil
	}
}

func lossAnchor(ctx context.Context, e *Env) (_ float64, _ string, err error) {
	a, b, _, err := wiredPair(ctx, e, UMTS())
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, a.lab.Close()) }()
	const rate = 70 // datagrams of 1000 bytes per second
	r, err := Datagrams(ctx, DatagramConfig{From: a, To: b, Addr: selfTestB, Size: 1000, Rate: rate, Count: 15 * rate, Skip: 5 * rate})
	if err != nil {
		return 0, "", err
	}
	if r.Reordered > 0 {
		return 0, "", fmt.Errorf("%d datagrams came out of order", r.Reordered)
	}
	return 100 * r.Loss(), fmt.Sprintf("%d of %d datagrams of 1000 bytes arrived, all in order", r.Received, r.Sent), nil
}
