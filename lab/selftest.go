// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netlink"
)

// Addresses of the two ends of a wire under test.
var (
	selfTestA = netip.MustParseAddr("2001:db8::1")
	selfTestB = netip.MustParseAddr("2001:db8::2")
)

// anchor is one figure that wires must reach before a table made with them
// means anything.
type anchor struct {
	what       string
	measure    func(context.Context, *Env) (achieved float64, detail string, err error)
	least      float64
	most       float64
	unit, must string
}

// anchorResult is what came of an anchor.
type anchorResult struct {
	Anchor   string  `json:"anchor"`
	Achieved float64 `json:"achieved"`
	Unit     string  `json:"unit"`
	Must     string  `json:"must"`
	Met      bool    `json:"met"`
	Detail   string  `json:"detail"`
}

// anchors are the self-test. The mean of a ping is compared with what the wire
// drew for those packets, not with the mean of the profile: 60 draws with a
// deviation of 120 ms miss their own mean by 15 ms, whoever makes them.
func anchors() []anchor {
	return []anchor{
		{"ping, WLAN profile, error of the mean", pingAnchor(WLAN(), 50*time.Millisecond), -0.1, 0.1, "ms", "within 0.1"},
		{"ping, UMTS profile, error of the mean", pingAnchor(UMTS(), 500*time.Millisecond), -1, 1, "ms", "within 1"},
		{"TCP goodput, 28 Mbit/s", tcpAnchor(28e6, 35<<20), 93, 100, "% of the rate", "at least 93"},
		{"TCP goodput, 2 Mbit/s", tcpAnchor(2e6, 2500<<10), 93, 100, "% of the rate", "at least 93"},
		{"UDP loss, 70 kB/s on 384 kbit/s", lossAnchor, 32, 36, "%", "33.82 published"},
	}
}

// SelfTest proves the wires: round trips, rates and the published loss. It is
// the Run of an experiment. A figure outside its bounds is marked MISS, and an
// error with Env.Strict; packets out of order or missing are an error always.
func SelfTest(ctx context.Context, e *Env) error {
	var results []anchorResult
	missed := 0
	for _, a := range anchors() {
		e.Step("wire: %s", a.what)
		achieved, detail, err := a.measure(ctx, e)
		if err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
		met := achieved >= a.least && achieved <= a.most
		if !met {
			missed++
		}
		results = append(results, anchorResult{a.what, achieved, a.unit, a.must, met, detail})
	}
	if err := printAnchors(e, results); err != nil {
		return err
	}
	if missed > 0 {
		e.Step("wire: a wire keeps time only while the machine has a processor to spare; figures made with wires now would be off as shown")
	}
	if missed > 0 && e.Strict {
		return fmt.Errorf("%d of %d anchors missed", missed, len(results))
	}
	return nil
}

func printAnchors(e *Env, results []anchorResult) error {
	if e.JSON {
		encoder := json.NewEncoder(e.output())
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	w := tabwriter.NewWriter(e.output(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "anchor\tachieved\tmust\t\tdetail")
	for _, r := range results {
		verdict := "ok"
		if !r.Met {
			verdict = "MISS"
		}
		fmt.Fprintf(w, "%s\t%.3f %s\t%s\t%s\t%s\n", r.Anchor, r.Achieved, r.Unit, r.Must, verdict, r.Detail)
	}
	return w.Flush()
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
		err = errors.Join(l.Err(), a.know(selfTestB, b), b.know(selfTestA, a), e.Capture(a, "eth0"))
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, l.Close())
	}
	return a, b, w, nil
}

// know enters a neighbour for good.
func (n *Node) know(addr netip.Addr, neighbour *Node) error {
	mine, err := n.handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	theirs, err := neighbour.handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	return n.handle.NeighSet(&netlink.Neigh{
		LinkIndex: mine.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: net.IP(addr.AsSlice()), HardwareAddr: theirs.Attrs().HardwareAddr,
	})
}

func pingAnchor(c WireConfig, interval time.Duration) func(context.Context, *Env) (float64, string, error) {
	return func(ctx context.Context, e *Env) (_ float64, _ string, err error) {
		a, _, w, err := wiredPair(ctx, e, c)
		if err != nil {
			return 0, "", err
		}
		defer func() { err = errors.Join(err, a.lab.Close()) }()
		const count = 60
		before := [2]LaneCounters{w.Counters(AtoB), w.Counters(BtoA)}
		r, err := a.Ping(ctx, Ping{To: selfTestB, Count: count, Interval: interval, Timeout: 3 * time.Second})
		if err != nil {
			return 0, "", err
		}
		if r.Lost() > 0 {
			return 0, "", fmt.Errorf("%d of %d pings were lost on a wire without loss", r.Lost(), count)
		}
		var drawn, worst time.Duration
		for _, d := range []Direction{AtoB, BtoA} {
			c := w.Counters(d)
			drawn += (c.Latency - before[d].Latency) / time.Duration(c.Sent-before[d].Sent)
			worst = max(worst, c.WorstLate)
		}
		mean, deviation := r.Mean()
		note := fmt.Sprintf("mean %.3f ms, deviation %.3f ms; drawn %.3f ms; a packet at most %.3f ms late",
			ms(mean), ms(deviation), ms(drawn), ms(worst))
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
