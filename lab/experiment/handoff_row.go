// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
	"github.com/isthmus-net/isthmus/teredo"
)

// handoffWithout is what became of a call whose terminal has no Teredo.
type handoffWithout struct {
	silence  time.Duration // for which was listened
	up, down int           // packets of media meanwhile
}

// without stops the Teredo client for good, and loses UMTS in the middle of a call: GPRS alone is left.
func (n *handoffNet) without(ctx context.Context) (*handoffWithout, error) {
	if err := n.daemons.stop(n.client.process); err != nil {
		return nil, err
	}
	t, r := &handoffTrace{}, &handoffWithout{silence: handoffSilence}
	if n.packets() == sipWarmShort {
		r.silence = handoffSilenceShort
	}
	err := n.trace(t, func() (err error) {
		if err := n.call(ctx); err != nil {
			return err
		}
		if t.change, err = n.lose(); err != nil {
			return err
		}
		if err := n.attach(ctx, n.boxes[0]); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.silence):
			return nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("without Teredo: %w", err)
	}
	onWay := t.change.Add(lab.UMTS().BtoA.Delay) // what had crossed the radio before the change
	for _, d := range t.host {
		if _, ok := rtpNumber(d.payload); ok && d.to.Addr() == hostAddr && d.at.After(onWay) {
			r.up++
		}
	}
	for _, d := range t.ue {
		if _, ok := rtpNumber(d.payload); ok && d.from.Addr() == hostAddr && d.at.After(onWay) {
			r.down++
		}
	}
	return r, nil
}

// handoffRowResult is a number of handoffs of one call in a row.
type handoffRowResult struct {
	world   handoffWorld
	made    int
	alive   int           // behind which the call lived
	single  int           // behind which the server had one binding
	reached int           // behind which the terminal was called at once, and answered
	calls   int           // that were needed
	longest time.Duration // until media went both ways again
	answer  time.Duration // the longest wait for an answer
	// whatHappened are calls that were lost, bindings that were left, and calls that did not come.
	whatHappened []string
}

// measureRow has a call go to and fro in a topology of its own.
func measureRow(ctx context.Context, e *lab.Env, w handoffWorld, count int, into *handoffResult) (err error) {
	n, err := drawHandoff(ctx, e, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	return n.inARow(ctx, count, into)
}

// handoffCaller is the port of a third telephone, which shares the SIP server's host.
const handoffCaller = 5062

// inARow has a call go to and fro, behind one kind of NAT after the other, while somebody else calls the
// terminal behind each handoff.
func (n *handoffNet) inARow(ctx context.Context, count int, into *handoffResult) (err error) {
	n.daemons.env.Step("%d handoffs in a row%s, %.0f %% of everything lost on each radio", count, n.special(), 100*n.loss)
	set := phoneSettings("sip:third@example.org", handoffSIP, true)
	set.Port = handoffCaller
	third, err := startPhone(ctx, n.sip, set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, third.close()) }()
	r := &handoffRowResult{world: n.handoffWorld}
	into.rows = append(into.rows, r)
	for r.made < count {
		if err := n.toAndFro(ctx, n.boxes[r.made/2%len(n.boxes)], third, r); err != nil {
			return err
		}
		if r.made%20 == 0 {
			n.daemons.env.Step("  %d made, the call alive behind %d, the terminal called behind %d", r.made, r.alive, r.reached)
		}
	}
	return n.endRow(ctx)
}

// endRow ends the call, if it lives.
func (n *handoffNet) endRow(ctx context.Context) error {
	s, err := n.ue.State(ctx)
	if err != nil || len(s.Calls) == 0 {
		return err
	}
	n.forget()
	return n.hostEnds(ctx)
}

// toAndFro makes two handoffs, with a new call if the last one is gone.
func (n *handoffNet) toAndFro(ctx context.Context, b *handoffBox, third *sipPhone, r *handoffRowResult) error {
	s, err := n.ue.State(ctx)
	if err != nil {
		return err
	}
	if len(s.Calls) == 0 {
		r.calls++
		n.forget()
		if err := n.call(ctx); err != nil {
			return err
		}
	}
	begin, err := n.lose()
	if err == nil {
		err = n.attach(ctx, b)
	}
	if err != nil {
		return err
	}
	n.follows(ctx, teredo.Prefix, begin, third, r, "to GPRS behind "+b.String())
	if begin, err = n.regain(); err != nil {
		return err
	}
	n.follows(ctx, corePool6, begin, third, r, "back from GPRS behind "+b.String())
	return n.detach(ctx, b)
}

// follows notes what has become of a handoff: whether the call has gone to an address of a prefix and both
// ends hear each other, whether the terminal can be called there at once, and what the server knows.
func (n *handoffNet) follows(ctx context.Context, to netip.Prefix, begin time.Time, third *sipPhone, r *handoffRowResult, what string) {
	r.made++
	note := func(good *int, err error) {
		if err != nil {
			r.whatHappened = append(r.whatHappened, fmt.Sprintf("%s: %v", what, err))
			return
		}
		*good++
	}
	at, err := n.ue.awaitAddress(ctx, to, true)
	if err == nil {
		err = n.goesOn(ctx, 1)
	}
	if err == nil {
		r.longest = max(r.longest, time.Since(begin))
	}
	took, unreached := n.ring(ctx, third)
	r.answer = max(r.answer, took)
	note(&r.reached, unreached)
	note(&r.single, n.single(ctx, at))
	if err == nil {
		err = n.goesOn(ctx, sipWarmShort)
	}
	note(&r.alive, err)
}

// goesOn waits until the one call has moved, and both ends have heard so many packets more.
func (n *handoffNet) goesOn(ctx context.Context, packets uint64) error {
	if err := n.ue.all(ctx, 1, func(c agent.CallState) bool { return !c.Moving }); err != nil {
		return err
	}
	return poll(ctx, sipWait, flowGap, func(ctx context.Context) (bool, error) {
		err := awaitMedia(ctx, packets, n.phones()...)
		if errors.Is(err, errSeveralCalls) { // what replaces the call is one of its own for a while
			return false, nil
		}
		return err == nil, err
	})
}

// ring has somebody call the terminal by the SIP server, hear it and hang up, and says how long he waited for
// the answer.
func (n *handoffNet) ring(ctx context.Context, third *sipPhone) (took time.Duration, err error) {
	before, err := n.ue.State(ctx)
	if err != nil {
		return 0, err
	}
	third.forget()
	began := time.Now()
	id, err := third.Call(ctx, sipUE)
	if err != nil {
		return 0, err
	}
	if err = third.await(ctx, ua.Established); err != nil {
		return 0, fmt.Errorf("a call to the terminal does not come: %w", err)
	}
	took = time.Since(began)
	err = awaitMedia(ctx, 1, third)
	return took, errors.Join(err, third.HangUp(ctx, id), third.await(ctx, ua.Ended), n.ue.awaitCalls(ctx, len(before.Calls)))
}

// awaitCalls waits until a telephone has so many calls, in whatever state: of one that has ended the other end
// may not have heard.
func (p *sipPhone) awaitCalls(ctx context.Context, size int) error {
	err := poll(ctx, sipWait, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		s, err := p.State(ctx)
		return len(s.Calls) == size, err
	})
	if err != nil {
		err = fmt.Errorf("the telephone does not have %d calls: %w", size, err)
	}
	return err
}

// single reports whether the server has come to know an address of the terminal, and no other one.
func (n *handoffNet) single(ctx context.Context, at netip.Addr) error {
	if err := awaitBinding(ctx, n.bindings, at); err != nil {
		return err
	}
	list, err := n.bindings(ctx)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d bindings are left: %v", len(list), list)
	}
	return err
}
