// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/traffic"
)

const sctpTransportsName = "sctp-transports"

// sctpTransports is the experiment sctp-transports.
var sctpTransports = lab.Experiment{
	Name:      sctpTransportsName,
	Summary:   "delay, jitter, loss and throughput of UDP, TCP, SCTP and MPTCP over the study's WLAN and UMTS, beside usrsctp and D-ITG",
	NeedsRoot: true,
	Needs:     []string{"ITGSend", "ITGRecv", "ITGDec"},
	Run:       runSCTPTransports,
}

// transportSize is that of messages, in octets: of this size the study's loss at 70 kB/s is that of its line.
const transportSize = 1000

// umtsCarries is what of messages of that size goes up UMTS at most, in kB/s.
const umtsCarries = 384e3 / 8e3 * transportSize / (transportSize + 48) // headers of IPv6 and UDP

// transportsForm is how much is measured.
type transportsForm struct {
	umts, wlan         []int // kB/s that are offered
	umtsTime, umtsSkip time.Duration
	wlanTime, wlanSkip time.Duration
	wlanBy             []transport
	likeTime           time.Duration // of our generator beside D-ITG's
	rounds             int           // of these, and of TCP and SCTP on the full WLAN
}

var (
	longTransports = transportsForm{
		umts: []int{10, 20, 30, 40, 45, 50, 60, 70}, umtsTime: 40 * time.Second, umtsSkip: 10 * time.Second,
		wlan: []int{500, 1000, 1500, 2000, 2500, 3000, 3500, 4000}, wlanTime: 3 * time.Second, wlanSkip: time.Second, wlanBy: transports,
		likeTime: 5 * time.Second, rounds: 5,
	}
	shortTransports = transportsForm{
		umts: []int{70}, umtsTime: 4 * time.Second, umtsSkip: time.Second,
		wlan: []int{4000}, wlanTime: 400 * time.Millisecond, wlanSkip: 100 * time.Millisecond, wlanBy: transports[:carriedDITGUDP],
		likeTime: 500 * time.Millisecond, rounds: 1,
	}
)

// transportCells are what was measured at each rate, by transport: nil of what cannot be.
type transportCells struct {
	offered []int // kB/s
	carried [][]*carried
}

// transportsFound is all that the experiment has measured.
type transportsFound struct {
	umts, wlan transportCells
	delays     []float64     // ours beside D-ITG's: how far apart, percent
	jitters    []float64     // and ms
	full       [3][]float64  // throughput on the full WLAN by round, of TCP, of SCTP and of usrsctp
	fullCPU    [3][]float64  // microseconds a message of these, if anyone counts
	late       time.Duration // the worst mean of our senders, of datagrams
}

func runSCTPTransports(ctx context.Context, e *lab.Env) (err error) {
	form := longTransports
	if e.Runs > 0 && e.Runs < longRun {
		form = shortTransports
	}
	form.rounds = cmp.Or(e.Runs, form.rounds)
	l, err := newTransportLab(ctx, e, sctpTransportsName)
	if err != nil {
		return err
	}
	defer closing(&err, l.lab.Close)
	found := &transportsFound{}
	for _, step := range []func(context.Context, *transportLab, transportsForm) error{found.compare, found.measureUMTS, found.measureWLAN} {
		if err := step(ctx, l, form); err != nil {
			return err
		}
	}
	return finish(e, transportsReport(found))
}

// offer is a flow of so many kB/s.
func offer(kilobytes int, length time.Duration) traffic.Flow {
	return traffic.Flow{ID: 1, Rate: float64(kilobytes*1000) / transportSize, Size: traffic.Size{Kind: traffic.Constant, Mean: transportSize}, Duration: length}
}

// carryTries is how often a flow is tried of which nothing comes: the machine may have stood still for as long as it was.
const carryTries = 3

// carry is what a transport carries; nil if the machine has none.
func (f *transportsFound) carry(ctx context.Context, n *transportNet, t transport, flow traffic.Flow, skip time.Duration) (*carried, error) {
	c, err := n.carry(ctx, t, flow, skip)
	for tries := 1; err == nil && c.Received == 0 && tries < carryTries; tries++ {
		c, err = n.carry(ctx, t, flow, skip)
	}
	switch {
	case errors.Is(err, traffic.ErrNoMPTCP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s, %.0f messages a second: %w", t.title, flow.Rate, err)
	case c.Received == 0:
		return nil, fmt.Errorf("%s, %.0f messages a second: nothing has come", t.title, flow.Rate)
	}
	return &c, nil
}

// compare sets our generator beside D-ITG's on lines of constant delay. Both send at the same time, so that both meet what the
// machine adds.
func (f *transportsFound) compare(ctx context.Context, l *transportLab, form transportsForm) error {
	l.env.Step("our generator beside d-itg's, on lines of 100 ms: %d rounds of %v", form.rounds, form.likeTime)
	lane := lab.LaneConfig{Delay: 100 * time.Millisecond}
	var nets [2]*transportNet
	for i := range nets {
		var err error
		if nets[i], err = l.net(fmt.Sprintf("like-%d", i), lab.WireConfig{AtoB: lane, BtoA: lane}); err != nil {
			return err
		}
	}
	for range form.rounds {
		var by [2]*carried
		wait, ctx := errgroup.WithContext(ctx)
		for i, t := range []transport{transports[carriedUDP], transports[carriedDITGUDP]} {
			wait.Go(func() (err error) {
				by[i], err = f.carry(ctx, nets[i], t, offer(100, form.likeTime), 0)
				return err
			})
		}
		if err := wait.Wait(); err != nil {
			return err
		}
		ours, theirs := by[0], by[1]
		f.late = max(f.late, ours.late)
		f.delays = append(f.delays, 100*math.Abs(ours.Mean().Seconds()/theirs.Mean().Seconds()-1))
		f.jitters = append(f.jitters, math.Abs(inMilliseconds(ours.Jitter()-theirs.Jitter())))
	}
	return nil
}

// measureUMTS measures all rates at once, each transport on a line of its own: they carry little.
func (f *transportsFound) measureUMTS(ctx context.Context, l *transportLab, form transportsForm) error {
	f.umts = newTransportCells(form.umts)
	l.env.Step("UMTS, terminal to server: %v kB/s at once, %v", form.umts, form.umtsTime)
	wait, ctx := errgroup.WithContext(ctx)
	for i, kilobytes := range form.umts {
		for j, t := range transports {
			n, err := l.net(fmt.Sprintf("umts-%d-%d", i, j), lab.UMTS())
			if err != nil {
				return errors.Join(err, wait.Wait())
			}
			wait.Go(func() (err error) {
				f.umts.carried[i][j], err = f.carry(ctx, n, t, offer(kilobytes, form.umtsTime), form.umtsSkip)
				return err
			})
		}
	}
	return wait.Wait()
}

// measureWLAN measures one flow after the other.
func (f *transportsFound) measureWLAN(ctx context.Context, l *transportLab, form transportsForm) error {
	n, err := l.net("wlan", lab.WLAN())
	if err != nil {
		return err
	}
	n.counted = true
	f.wlan = newTransportCells(form.wlan)
	for i, kilobytes := range form.wlan {
		l.env.Step("WLAN, terminal to server: %d kB/s, %v of each", kilobytes, form.wlanTime)
		for j, t := range form.wlanBy {
			if f.wlan.carried[i][j], err = f.carry(ctx, n, t, offer(kilobytes, form.wlanTime), form.wlanSkip); err != nil {
				return err
			}
		}
	}
	l.env.Step("WLAN, more than it carries: %d rounds of TCP, SCTP and usrsctp", form.rounds)
	most := form.wlan[len(form.wlan)-1]
	return inTurn(ctx, form.rounds, len(f.full), func(_, at int) error {
		c, err := f.carry(ctx, n, transports[[...]int{carriedTCP, carriedSCTP, carriedUsrsctp}[at]], offer(most, form.wlanTime), form.wlanSkip)
		if err == nil {
			f.full[at] = append(f.full[at], c.Rate())
			if c.cpu > 0 {
				f.fullCPU[at] = append(f.fullCPU[at], c.cpu)
			}
		}
		return err
	})
}

func newTransportCells(offered []int) transportCells {
	c := transportCells{offered: offered, carried: make([][]*carried, len(offered))}
	for i := range c.carried {
		c.carried[i] = make([]*carried, len(transports))
	}
	return c
}
