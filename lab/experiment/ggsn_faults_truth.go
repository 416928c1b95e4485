// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
)

// truthful looks, around a fault that the process does not survive, whether the node tells
// SGSNs the truth: with the restart counter as it was a context goes on at both ends, and
// with another one its SGSN releases it. A process that was left all state loses nothing.
func (n *ggsnWorld) truthful(f fault) fault {
	do := f.do
	f.do = func(ctx context.Context, c *campaign) error {
		if err := n.count(ctx); err != nil {
			return err
		}
		one := n.churns[c.random.IntN(len(n.churns))]
		return one.guest(ctx, func(ctx context.Context) error {
			before, err := n.status(ctx)
			if err := errors.Join(err, do(ctx, c)); err != nil {
				return err
			}
			after, err := n.status(ctx)
			switch {
			case err != nil:
				return err
			case before.RestartCounter == after.RestartCounter:
				return n.goesOn(ctx, one)
			case f.keeps:
				return fmt.Errorf("the restart counter was %d and is %d; %d contexts of %d are left", before.RestartCounter, after.RestartCounter, after.Adopted, before.Contexts)
			}
			return n.released(ctx, one)
		})
	}
	return f
}

// status is what the GGSN says of itself.
func (n *ggsnWorld) status(ctx context.Context) (s ggsnrole.Status, err error) {
	err = n.world.subject.state(ctx, &s)
	return s, err
}

// contexts lists those of the GGSN that something chooses, the first of very many.
func (n *ggsnWorld) contexts(ctx context.Context, by string, which any) ([]ggsnrole.Context, error) {
	var list ggsnrole.Contexts
	err := n.world.subject.ask(ctx, "ggsn", "contexts", map[string]any{by: which, "limit": 1000}, &list)
	return list.Contexts, err
}

// goesOn looks whether the guest's context is at both ends.
func (n *ggsnWorld) goesOn(ctx context.Context, one *churn) error {
	there, err := one.has(ctx, one.imsi())
	if err != nil {
		return err
	}
	if !there {
		return errors.New("the restart counter is as it was, and an SGSN has lost a context")
	}
	list, err := n.contexts(ctx, "imsi", one.imsi())
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("the restart counter is as it was, and the GGSN has %d contexts of a guest", len(list))
	}
	return err
}

// released waits until the guest's context is gone from its SGSN.
func (n *ggsnWorld) released(ctx context.Context, one *churn) error {
	err := poll(ctx, releaseWait, loadLook, func(ctx context.Context) (bool, error) {
		there, err := one.has(ctx, one.imsi())
		return !there, err
	})
	if err != nil {
		return fmt.Errorf("the restart counter is another, and an SGSN keeps its context: %w", err)
	}
	return nil
}

// emptied is what the GGSN keeps of contexts when there are none any more.
func (n *ggsnWorld) emptied(ctx context.Context) (left []string) {
	var s ggsnrole.Status
	err := poll(ctx, emptyWait, loadLook, func(ctx context.Context) (empty bool, err error) {
		s, err = n.status(ctx)
		empty = s.Contexts+s.Sessions+s.Releasing == 0
		for _, p := range s.Pools {
			empty = empty && p.Used+p.Held == 0
		}
		return empty && len(s.Leaving) == 0, err
	})
	if err == nil {
		return nil
	}
	left = append(left, fmt.Sprintf("%d contexts, %d sessions and %d to be released of the GGSN, pools %+v, leaving %v: %v",
		s.Contexts, s.Sessions, s.Releasing, s.Pools, s.Leaving, err))
	list, _ := n.contexts(ctx, "apn", "")
	for _, x := range list[:min(len(list), shownFaults)] {
		left = append(left, fmt.Sprintf("context %+v", x))
	}
	return left
}

// count adds what the process has counted of the ends of contexts.
func (n *ggsnWorld) count(ctx context.Context) error {
	values, err := n.world.subject.scrape(ctx)
	for name, v := range values {
		if _, reason, found := strings.Cut(name, "isthmus_ggsn_contexts_ended_total{"); found && v > 0 {
			_, reason, _ = strings.Cut(reason, `reason="`)
			n.ended[strings.TrimSuffix(reason, `"}`)] += v
		}
	}
	return err
}

// notes are what the loads have come to.
func (n *ggsnWorld) notes() []string {
	var loads, created, refused, deleted, gone, atOnce int
	for _, c := range n.churns {
		loads, created, refused, deleted, gone = loads+c.loads, created+c.created, refused+c.refused, deleted+c.deleted, gone+c.gone
		atOnce += c.contexts
	}
	var ends []string
	for _, reason := range slices.Sorted(maps.Keys(n.ended)) {
		ends = append(ends, fmt.Sprintf("%s %.0f", reason, n.ended[reason]))
	}
	return []string{
		fmt.Sprintf("%d contexts were created, %d at a time, in %d loads; %d were not, while the GGSN or an access point was away; of the deletes, %d were answered and %d came too late.",
			created, atOnce, loads, refused, deleted, gone),
		fmt.Sprintf("contexts ended, as each process told before its own end: %s.", strings.Join(ends, ", ")),
	}
}
