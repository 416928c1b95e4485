// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sctp"
)

const sctpSeamlessName = "sctp-seamless"

// sctpSeamless is the experiment sctp-seamless.
var sctpSeamless = lab.Experiment{
	Name:      sctpSeamlessName,
	Summary:   "an association goes from WLAN to UMTS and back in the UMTS-WLAN testbed: announced, by make before break, and by a silent cut, beside MPTCP and calls of SIP; and two hundred times in a row with loss",
	NeedsRoot: true,
	Needs:     testbedPrograms,
	Run:       runSCTPSeamless,
}

// Choices of sctp-seamless.
const (
	seamlessRuns     = 20 // handovers of each kind
	seamlessMPTCP    = 10 // of MPTCP: gaps of 224 to 232 ms, silent 400 to 630, leave no doubt of a ratio to ours
	seamlessRow      = 200
	seamlessRowShort = 2
	seamlessLoss     = 0.01
	// seamlessSettle is how long packets go by the new network before anything else happens.
	seamlessSettle, seamlessSettleShort = 2 * time.Second, time.Second
)

// seamlessKind is a kind of handover from WLAN to UMTS.
type seamlessKind int

const (
	seamlessAnnounced seamlessKind = iota // the WLAN is lost, and the terminal's radio says so
	seamlessBefore                        // the terminal leaves the WLAN while it works, and then loses it
	seamlessSilent                        // the WLAN carries nothing more, and no one is told
)

func (k seamlessKind) String() string {
	return [...]string{"announced, break before make", "announced, make before break", "silent"}[k]
}

// seamlessKinds are all.
var seamlessKinds = []seamlessKind{seamlessAnnounced, seamlessBefore, seamlessSilent}

// seamlessMove is what a handover and the return from it have cost.
type seamlessMove struct {
	trip     time.Duration // round trip of UMTS, right before
	down, up time.Duration // longest time between two deliveries, to the terminal and from it
	// Of the return, but after a silent cut.
	wlan time.Duration // round trip of the WLAN
	eap  time.Duration // from the association to the open port
	data time.Duration // from there to the first data at the terminal by WLAN
}

// seamlessFound is all that the experiment has measured.
type seamlessFound struct {
	moves  map[seamlessKind][]seamlessMove
	shaky  map[seamlessKind][]seamlessMove // with the jitter of UMTS
	mptcp  map[seamlessKind][]seamlessMove
	why    string // there is no MPTCP
	calls  map[seamlessKind][]sipMove
	alive  int // handovers of a row, with the association alive behind
	row    int
	wrong  atomic.Int64 // messages lost, or not in their order
	rowGap time.Duration
}

// runSCTPSeamless is the experiment.
func runSCTPSeamless(ctx context.Context, e *lab.Env) error {
	runs := cmp.Or(e.Runs, seamlessRuns)
	f := &seamlessFound{row: seamlessRow}
	own := func(ctx context.Context, n *testbedNet, c *cutNet) (err error) {
		f.moves, err = f.handovers(ctx, n, c, runs)
		return err
	}
	shaky := func(ctx context.Context, n *testbedNet, c *cutNet) (err error) {
		f.shaky, err = f.handovers(ctx, n, c, runs)
		return err
	}
	theirs := func(ctx context.Context, n *testbedNet, _ *cutNet) (err error) {
		f.mptcp, f.why, err = n.mptcpHandovers(ctx, cmp.Or(e.Runs, seamlessMPTCP))
		return err
	}
	calls := func(ctx context.Context, n *testbedNet, _ *cutNet) (err error) {
		f.calls, err = n.sipHandovers(ctx, runs)
		return err
	}
	if e.Runs > 0 && e.Runs < longRun {
		f.row = seamlessRowShort // without loss
		if err := inTestbed(ctx, e, sctpSeamlessName, testbedMean(), own, theirs, calls, f.inARow); err != nil {
			return err
		}
		return finish(e, seamlessReport(f))
	}
	e.Step("side by side, each in a testbed of its own: with the jitter of UMTS, calls of SIP, and %d handovers in a row with loss", f.row)
	working, all := errgroup.WithContext(ctx)
	shared := sideBySide(e)
	working.Go(func() error { return inTestbed(all, shared, sctpSeamlessName, testbedMeasured(), shaky) })
	working.Go(func() error { return inTestbed(all, shared, sctpSeamlessName, testbedMean(), calls) })
	working.Go(func() error {
		return inTestbed(all, shared, sctpSeamlessName, testbedMean().losing(seamlessLoss), f.inARow)
	})
	if err := working.Wait(); err != nil {
		return err
	}
	// What is compared, and judged by milliseconds, has the machine for itself.
	err := e.Alone(func() error { return inTestbed(ctx, e, sctpSeamlessName, testbedMean(), own, theirs) })
	if err != nil {
		return err
	}
	return finish(e, seamlessReport(f))
}

// settle waits until packets go by the new network.
func (n *testbedNet) settle(ctx context.Context) error {
	d := seamlessSettle
	if runs := n.daemons.env.Runs; runs > 0 && runs < longRun {
		d = seamlessSettleShort
	}
	return pause(ctx, d)
}

// inTestbed draws the testbed, with what associations of its terminal need, and does one thing after the other in it.
func inTestbed(ctx context.Context, e *lab.Env, name string, w testbedWorld, do ...func(context.Context, *testbedNet, *cutNet) error) (err error) {
	n, err := drawTestbed(ctx, e, name, w)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	c := &cutNet{
		lab: n.lab, ue: n.ue, server: n.media, wires: [2]*lab.Wire{n.wlan, n.umts.wire}, networks: [2]netip.Prefix{testbedLAN, corePool6},
		addresses: bracketed(testbedMedia), every: [2]time.Duration{cutEvery, cutEvery},
	}
	if err := c.listen(); err != nil {
		return err
	}
	defer closing(&err, c.end)
	for _, one := range do {
		if err := one(ctx, n, c); err != nil {
			return err
		}
	}
	return nil
}

// handovers makes handovers of each kind with an association.
func (s *seamlessFound) handovers(ctx context.Context, n *testbedNet, c *cutNet, runs int) (map[seamlessKind][]seamlessMove, error) {
	f, err := n.association(ctx, c)
	if err != nil {
		return nil, err
	}
	moves := map[seamlessKind][]seamlessMove{}
	for _, kind := range seamlessKinds {
		for range runs {
			m, err := n.handover(ctx, f, kind)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", kind, err)
			}
			n.daemons.env.Step("%v: nothing came to the terminal for %v, from it for %v; back after EAP of %v: data after %v",
				kind, rounded(m.down), rounded(m.up), rounded(m.eap), m.data.Round(100*time.Microsecond))
			moves[kind] = append(moves[kind], m)
		}
	}
	wrong, err := f.stop()
	s.wrong.Add(int64(wrong))
	return moves, err
}

// association sets one up, from the terminal, by WLAN, and waits until both networks work for it.
func (n *testbedNet) association(ctx context.Context, c *cutNet) (*cutFlow, error) {
	f, err := c.flow(ctx, sctp.Defaults())
	if err != nil {
		return nil, err
	}
	if err := f.awaitBoth(ctx); err != nil {
		return nil, err
	}
	for i, c := range []*sctp.Conn{f.server, f.ue} { // whichever the set-up went by
		p := f.path(0).Pair
		if i == 1 {
			p.Local, p.Remote = p.Remote, p.Local
		}
		if err := c.SetPrimary(p); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// trip is the round trip of a network right now.
func (n *testbedNet) trip(ctx context.Context, link int) (time.Duration, error) {
	r, err := n.ue.Ping(ctx, lab.Ping{To: testbedMedia, From: n.addresses[link], Count: 3, Interval: 50 * time.Millisecond, Timeout: 3 * time.Second})
	if err == nil && r.Received() == 0 {
		err = fmt.Errorf("the media server does not answer by %s", cutLinks[link])
	}
	return r.Median(), err
}

// handover makes one, and the return.
func (n *testbedNet) handover(ctx context.Context, f *cutFlow, kind seamlessKind) (m seamlessMove, err error) {
	if m.trip, err = n.trip(ctx, 1); err != nil {
		return m, err
	}
	f.resetGap()
	if err := n.leave(ctx, f, kind); err != nil {
		return m, err
	}
	if err := n.settle(ctx); err != nil {
		return m, err
	}
	m.down, m.up = f.ends[1].gap(), f.ends[0].gap()
	if kind == seamlessSilent {
		n.wlan.Restore()
		return m, f.awaitPrimary(ctx)
	}
	first := n.firstByWLAN(f)
	defer f.ue.Observe(nil)
	if m.eap, err = n.regain(ctx); err != nil {
		return m, err
	}
	if err := f.awaitPrimary(ctx); err != nil {
		return m, err
	}
	if err := poll(ctx, time.Minute, time.Millisecond, func(context.Context) (bool, error) { return !first().IsZero(), nil }); err != nil {
		return m, fmt.Errorf("nothing comes by WLAN: %w", err)
	}
	m.data = first().Sub(n.supplicant.Proved())
	m.wlan, err = n.trip(ctx, 0)
	return m, err
}

// leave has the terminal leave the WLAN.
func (n *testbedNet) leave(ctx context.Context, f *cutFlow, kind seamlessKind) error {
	switch kind {
	case seamlessSilent:
		n.wlan.Cut()
		return nil
	case seamlessBefore:
		if err := errors.Join(f.ue.LinkDown(n.addresses[0]), pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	return n.lose(ctx)
}

// lose takes the WLAN away, with all that is on the air: the terminal's radio and the access router notice.
func (n *testbedNet) lose(ctx context.Context) error {
	n.wlan.Cut()
	return errors.Join(n.supplicant.Lose(), n.port.Lose(ctx))
}

// regain brings it back, and returns how long the terminal took to prove again who it is.
func (n *testbedNet) regain(ctx context.Context) (time.Duration, error) {
	n.wlan.Restore()
	if err := n.supplicant.Reassociate(ctx); err != nil {
		return 0, err
	}
	return n.associate(ctx)
}

// firstByWLAN looks for the first data that come to the terminal by WLAN from now on.
func (n *testbedNet) firstByWLAN(f *cutFlow) (first func() time.Time) {
	var mu sync.Mutex
	var at time.Time
	f.ue.Observe(func(now time.Time, p *sctp.Passage) {
		if p.How == sctp.Arrived && p.Local == n.addresses[0] {
			mu.Lock()
			defer mu.Unlock()
			if at.IsZero() {
				at = now
			}
		}
	})
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

// inARow goes to and fro, with loss of everything.
func (s *seamlessFound) inARow(ctx context.Context, n *testbedNet, c *cutNet) error {
	f, err := n.association(ctx, c)
	if err != nil {
		return err
	}
	for i := range s.row {
		f.resetGap()
		if i%2 == 0 {
			err = n.lose(ctx)
		} else {
			_, err = n.regain(ctx)
		}
		if err == nil {
			err = pause(ctx, time.Second)
		}
		if err == nil {
			err = f.awaitLink(ctx, (i+1)%2)
		}
		if err != nil {
			n.daemons.env.Step("  after handover %d: %v", i+1, err)
			break
		}
		s.alive++
		s.rowGap = max(s.rowGap, f.gap())
		n.daemons.env.Status(fmt.Sprintf("  %d handovers", s.alive))
	}
	wrong, err := f.stop()
	s.wrong.Add(int64(wrong))
	return err
}

// awaitLink waits until both ends send by a link.
func (f *cutFlow) awaitLink(ctx context.Context, link int) error {
	return f.await(ctx, func() bool {
		network := f.net.networks[link]
		s, ue := f.server.Status(), f.ue.Status()
		return s.State == "established" && network.Contains(s.Current.Remote) && network.Contains(ue.Current.Local)
	})
}
