// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/teredo"
)

// Choices of the experiment handoff.
const (
	handoffName = "handoff"
	handoffRuns = 10 // of each kind, with each kind of NAT
	// handoffRow is how many handoffs are made in a row, with so much of everything lost.
	handoffRow  = 100
	handoffLoss = 0.05
	// handoffRowShort is how many are made in a row in the short form, where nothing is lost.
	handoffRowShort = 2
	// handoffSilence is how long nothing is heard of a call that has no way, handoffSilenceShort in
	// the short form: longer than any handoff takes.
	handoffSilence, handoffSilenceShort = 5 * time.Second, 1500 * time.Millisecond
	// teredoDevice is the device of a Teredo client.
	teredoDevice = "teredo"
)

// callHandoff is the experiment handoff.
var callHandoff = lab.Experiment{
	Name:      handoffName,
	Summary:   "figure 4 of the Teredo paper: a call goes from an IPv6 UMTS to a GPRS with private IPv4 behind a NAT, and back: the time of each step beside theory",
	NeedsRoot: true,
	Needs:     natPrograms,
	Run:       runHandoff,
}

// handoffKind is a kind of handoff.
type handoffKind int

const (
	handoffCold handoffKind = iota // UMTS is lost; then the terminal attaches to GPRS, and Teredo qualifies
	handoffHard                    // UMTS is lost while Teredo stands by
	handoffSoft                    // the route by UMTS is taken away while it works, and then UMTS is lost
	handoffBack                    // UMTS comes back while Teredo works: soft, too
)

func (k handoffKind) String() string {
	return [...]string{"cold", "pre-qualified", "soft", "soft, back"}[k]
}

// media is what kind of move it is for media: whether what comes by the old path counts.
func (k handoffKind) media() sipKind {
	if k == handoffCold || k == handoffHard {
		return sipHard
	}
	return sipSoft
}

// handoffCase is a kind of handoff by one kind of NAT, many times.
type handoffCase struct {
	world handoffWorld
	box   handoffNAT
	kind  handoffKind
	moves []handoffMove
}

func (c *handoffCase) String() string {
	return fmt.Sprintf("%v, %v%s", c.kind, c.box, c.world.special())
}

// special says what is special about a world.
func (w handoffWorld) special() (text string) {
	if w.jitter {
		text = ", with jitter"
	}
	if w.kamailio || w.baresip {
		text += ", " + w.who()
	}
	return text
}

// handoffCases are the cases of a kind of NAT, in the order of their kinds, and the calls that came
// to the terminal behind cold handoffs.
type handoffCases struct {
	box   handoffNAT
	cases [handoffBack + 1]*handoffCase
	calls []handoffCall
}

func newHandoffCases(w handoffWorld, b *handoffBox) *handoffCases {
	all := &handoffCases{box: b.handoffNAT}
	for k := range all.cases {
		all.cases[k] = &handoffCase{world: w, box: b.handoffNAT, kind: handoffKind(k)}
	}
	return all
}

// handoffCall is a call to the terminal.
type handoffCall struct {
	sipEarlyMove
	theory time.Duration // until its answer
}

// handoffResult is all that was measured.
type handoffResult struct {
	cases   []*handoffCase
	called  []*handoffCases
	without *handoffWithout
	rows    []*handoffRowResult
}

// handoffNATs are all kinds of boxes, or that of most homes and operators alone.
func handoffNATs(all bool) (boxes []handoffNAT) {
	if !all {
		return []handoffNAT{{kind: lab.PortRestricted}}
	}
	for _, kind := range lab.NATKinds {
		boxes = append(boxes, handoffNAT{kind: kind})
	}
	return append(boxes, handoffNAT{kind: lab.PortRestricted, rewriting: true})
}

func runHandoff(ctx context.Context, e *lab.Env) error {
	short := e.Runs > 0 && e.Runs < longRun
	r := &handoffResult{}
	worlds, lossy := []handoffWorld{{boxes: handoffNATs(!short)}}, handoffWorld{boxes: handoffNATs(true), loss: handoffLoss}
	var rows []handoffWorld
	if !short {
		home := handoffWorld{boxes: handoffNATs(false)}
		worlds = append(worlds, handoffWorld{boxes: home.boxes, jitter: true})
		worlds = append(worlds, home.others(e)...)
		rows = append([]handoffWorld{lossy}, lossy.others(e)...)
	}
	for _, w := range worlds {
		if err := measureHandoffs(ctx, e, w, short, r); err != nil {
			return err
		}
	}
	for _, w := range rows {
		if err := measureRow(ctx, e, w, handoffRow, r); err != nil {
			return err
		}
	}
	return finish(e, handoffReport(r))
}

// measureHandoffs measures each kind of handoff by each kind of NAT of a topology, and shows what
// becomes of a call without Teredo.
func measureHandoffs(ctx context.Context, e *lab.Env, w handoffWorld, short bool, into *handoffResult) (err error) {
	n, err := drawHandoff(ctx, e, w)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, n.close()) }()
	for _, b := range n.boxes {
		e.Step("NAT %v%s: %d handoffs of each kind", b, w.special(), cmp.Or(e.Runs, handoffRuns))
		if err := n.behind(ctx, b, short, into); err != nil {
			return err
		}
	}
	if short {
		if err := n.inARow(ctx, handoffRowShort, into); err != nil {
			return err
		}
	}
	if into.without == nil {
		into.without, err = n.without(ctx)
	}
	return err
}

// behind measures each kind of handoff by one kind of NAT.
func (n *handoffNet) behind(ctx context.Context, b *handoffBox, short bool, into *handoffResult) error {
	all := newHandoffCases(n.handoffWorld, b)
	into.cases, into.called = append(into.cases, all.cases[:]...), append(into.called, all)
	for range cmp.Or(n.daemons.env.Runs, handoffRuns) {
		if err := n.round(ctx, b, all, short); err != nil {
			return fmt.Errorf("NAT %v%s: %w; the Teredo client's log ends:\n%s", b, n.special(), err, lastLines(n.client.process.Log()))
		}
	}
	return nil
}

// round makes one handoff of each kind. The short form leaves out the one between.
func (n *handoffNet) round(ctx context.Context, b *handoffBox, all *handoffCases, short bool) error {
	if err := n.cold(ctx, b, all); err != nil {
		return err
	}
	if err := n.stand(ctx, b); err != nil {
		return err
	}
	if !short {
		if err := n.hard(ctx, all); err != nil {
			return err
		}
	}
	if err := n.soft(ctx, all); err != nil {
		return err
	}
	return n.detach(ctx, b)
}

// cold loses UMTS in the middle of a call, attaches to GPRS, has the host end the call and call again,
// and goes back in the middle of that call.
func (n *handoffNet) cold(ctx context.Context, b *handoffBox, all *handoffCases) error {
	err := n.measure(ctx, all.cases[handoffCold], n.native, func(t *handoffTrace) (err error) {
		if err := n.call(ctx); err != nil {
			return err
		}
		if t.change, err = n.lose(); err != nil {
			return err
		}
		if err := n.attach(ctx, b); err != nil {
			return err
		}
		if err := n.moved(ctx, t, teredo.Prefix); err != nil {
			return err
		}
		return n.hangUp(ctx)
	})
	if err != nil {
		return err
	}
	if err := n.called(ctx, all); err != nil {
		return err
	}
	if err := n.back(ctx, all.cases[handoffBack]); err != nil {
		return err
	}
	return n.detach(ctx, b)
}

// stand attaches to GPRS beside UMTS, and waits until Teredo stands by.
func (n *handoffNet) stand(ctx context.Context, b *handoffBox) error {
	if _, err := n.attached(ctx, b); err != nil {
		return err
	}
	if b.rewriting {
		if err := n.client.proveRewriting(); err != nil {
			return err
		}
	}
	_, err := n.client.awaitNAT(ctx)
	return err
}

// hard loses UMTS while Teredo stands by.
func (n *handoffNet) hard(ctx context.Context, all *handoffCases) error {
	err := n.measure(ctx, all.cases[handoffHard], n.native, func(t *handoffTrace) (err error) {
		if err := n.callWarm(ctx); err != nil {
			return err
		}
		if t.change, err = n.lose(); err != nil {
			return err
		}
		return n.moved(ctx, t, teredo.Prefix)
	})
	if err != nil {
		return err
	}
	return n.back(ctx, all.cases[handoffBack])
}

// soft takes the route by UMTS away while that works, and UMTS itself when the call has moved.
func (n *handoffNet) soft(ctx context.Context, all *handoffCases) error {
	err := n.measure(ctx, all.cases[handoffSoft], n.native, func(t *handoffTrace) (err error) {
		if err := n.callWarm(ctx); err != nil {
			return err
		}
		if t.change, err = n.unroute(); err != nil {
			return err
		}
		if err := n.moved(ctx, t, teredo.Prefix); err != nil {
			return err
		}
		if _, err := n.lose(); err != nil {
			return err
		}
		err = n.heard(ctx)
		t.settled = time.Now()
		return err
	})
	if err != nil {
		return err
	}
	return n.back(ctx, all.cases[handoffBack])
}

// back takes the call to UMTS, and has the host end it there.
func (n *handoffNet) back(ctx context.Context, c *handoffCase) error {
	from, err := n.ue.awaitAddress(ctx, teredo.Prefix, true)
	if err != nil {
		return err
	}
	return n.measure(ctx, c, from, func(t *handoffTrace) (err error) {
		if err := n.heard(ctx); err != nil {
			return err
		}
		if t.change, err = n.regain(); err != nil {
			return err
		}
		if err := n.moved(ctx, t, corePool6); err != nil {
			return err
		}
		return n.hangUp(ctx)
	})
}

// hangUp has the host end the call.
func (n *handoffNet) hangUp(ctx context.Context) error {
	n.guide.say("The host hangs up.")
	return n.hostEnds(ctx)
}

// called has the host call the terminal where it is now, by the SIP server.
func (n *handoffNet) called(ctx context.Context, all *handoffCases) error {
	t := &handoffTrace{}
	begin := time.Now()
	n.guide.say("The host calls the terminal by its name: the SIP server knows where it is.")
	err := n.trace(t, func() error {
		if err := n.hostCalls(ctx); err != nil {
			return err
		}
		return established(ctx, n.packets(), n.phones()...)
	})
	if err != nil {
		return fmt.Errorf("the terminal is called at its new address: %w", err)
	}
	m, err := t.readCall(begin, n.radio())
	all.calls = append(all.calls, m)
	return err
}

// measure has a handoff made, and reads what it has cost.
func (n *handoffNet) measure(ctx context.Context, c *handoffCase, from netip.Addr, do func(*handoffTrace) error) error {
	t := &handoffTrace{kind: c.kind}
	t.from, t.sipTrace.kind = from, c.kind.media()
	err := n.trace(t, func() error { return do(t) })
	if err != nil {
		return fmt.Errorf("%v: %w", c.kind, err)
	}
	m, err := t.read(n.radio())
	if err != nil {
		return fmt.Errorf("%v: %w", c.kind, err)
	}
	c.moves = append(c.moves, m)
	return nil
}

// trace records the terminal's links and the host's.
func (n *handoffNet) trace(t *handoffTrace, do func() error) error {
	n.forget()
	t.peer = hostAddr
	all, err := traceEach(n.lab, do, tap{n.node, handoffUMTS}, tap{n.node, handoffGPRS}, tap{n.host, "v6"})
	if err != nil {
		return err
	}
	t.air, t.host = inOrder(all[0], all[1]), all[2]
	t.ue = unwrapped(t.air)
	return nil
}

// call makes a call, and waits until both ends hear each other.
func (n *handoffNet) call(ctx context.Context) error {
	n.guide.say("The terminal calls the host, %v.", hostAddr)
	if _, err := n.ue.Call(ctx, "sip:ch@"+uriHost(hostAddr)); err != nil {
		return err
	}
	return established(ctx, n.packets(), n.phones()...)
}

// callWarm does so, and opens the way by Teredo to the host.
func (n *handoffNet) callWarm(ctx context.Context) error {
	if err := n.call(ctx); err != nil {
		return err
	}
	at, err := n.ue.awaitAddress(ctx, teredo.Prefix, false)
	if err != nil {
		return err
	}
	targets := []netip.Addr{hostAddr, handoffSIP}
	_, err = together(len(targets), func(i int) (lab.PingResult, error) {
		r, err := n.node.Ping(ctx, lab.Ping{To: targets[i], From: at, Device: teredoDevice, Timeout: answerWait})
		if err == nil && r.Lost() > 0 {
			err = fmt.Errorf("%v does not answer by Teredo", targets[i])
		}
		return r, err
	})
	return err
}

// moved waits until the call has gone to an address of a prefix, media go as before, and the
// server knows.
func (n *handoffNet) moved(ctx context.Context, t *handoffTrace, to netip.Prefix) (err error) {
	if err := n.ue.await(ctx, ua.Moved); err != nil {
		return err
	}
	if t.to, err = n.ue.awaitAddress(ctx, to, true); err != nil {
		return err
	}
	n.guide.say("The call has moved to %v.", t.to)
	if err := n.heard(ctx); err != nil {
		return err
	}
	t.settled = time.Now()
	if err := awaitBinding(ctx, n.bindings, t.to); err != nil {
		return err
	}
	list, err := n.bindings(ctx)
	t.bindings = len(list)
	return err
}

// attached attaches to GPRS, and waits until Teredo has given an address.
func (n *handoffNet) attached(ctx context.Context, b *handoffBox) (netip.Addr, error) {
	if err := n.attach(ctx, b); err != nil {
		return netip.Addr{}, err
	}
	return n.ue.awaitAddress(ctx, teredo.Prefix, false)
}

// packets is how many are heard before a change and behind it.
func (n *handoffNet) packets() uint64 {
	runs := n.daemons.env.Runs
	switch {
	case runs > 0 && runs < longRun:
		return sipWarmShort
	case n.guide != nil:
		return callTourWarm
	}
	return sipWarm
}

// awaitAddress waits until a telephone has an address of a prefix, be it on standby, or in use if
// that is asked for.
func (p *sipPhone) awaitAddress(ctx context.Context, prefix netip.Prefix, inUse bool) (at netip.Addr, err error) {
	err = poll(ctx, sipWait, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		s, err := p.State(ctx)
		places := []netip.AddrPort{s.Path}
		if !inUse {
			places = append(places, s.Standby...)
		}
		for _, a := range places {
			if prefix.Contains(a.Addr()) {
				at = a.Addr()
			}
		}
		return at.IsValid(), err
	})
	if err != nil {
		err = fmt.Errorf("the terminal has no address of %v: %w", prefix, err)
	}
	return at, err
}
