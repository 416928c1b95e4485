// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
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
	loss         float64
	made, alive  int
	longest      time.Duration // until media went both ways again
	calls        int           // that were needed
	whatHappened []string      // to those that were lost
}

// measureRow has a call go to and fro, behind one kind of NAT after the other, while the radios lose
// some of everything.
func measureRow(ctx context.Context, e *lab.Env, count int, into *handoffResult) (err error) {
	n, err := drawHandoff(ctx, e, handoffWorld{boxes: handoffNATs(true), loss: handoffLoss})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	e.Step("%d handoffs in a row, %.0f %% of everything lost on each radio", count, 100*handoffLoss)
	r := &handoffRowResult{loss: handoffLoss}
	into.rows = append(into.rows, r)
	for r.made < count {
		b := n.boxes[r.made/2%len(n.boxes)]
		if err := n.toAndFro(ctx, b, r); err != nil {
			return err
		}
		if r.made%20 == 0 {
			e.Step("  %d made, the call alive behind %d", r.made, r.alive)
		}
	}
	return nil
}

// toAndFro makes two handoffs, with a new call if the last one is gone.
func (n *handoffNet) toAndFro(ctx context.Context, b *handoffBox, r *handoffRowResult) error {
	s, err := n.ue.State(ctx)
	if err != nil {
		return err
	}
	if len(s.Calls) == 0 {
		r.calls++
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
	n.follows(ctx, teredo.Prefix, begin, r, "to GPRS behind "+b.String())
	if begin, err = n.regain(); err != nil {
		return err
	}
	n.follows(ctx, corePool6, begin, r, "back from GPRS behind "+b.String())
	return n.detach(ctx, b)
}

// follows notes whether the call has gone to an address of a prefix, and both ends hear each other.
func (n *handoffNet) follows(ctx context.Context, to netip.Prefix, begin time.Time, r *handoffRowResult, what string) {
	r.made++
	_, err := n.ue.awaitAddress(ctx, to, true)
	if err == nil {
		err = n.ue.all(ctx, 1, func(c agent.CallState) bool { return !c.Moving })
	}
	if err == nil {
		err = awaitMedia(ctx, sipWarmShort, n.ue, n.ch)
	}
	if err != nil {
		r.whatHappened = append(r.whatHappened, fmt.Sprintf("%s: %v", what, err))
		return
	}
	r.alive++
	r.longest = max(r.longest, time.Since(begin))
}
