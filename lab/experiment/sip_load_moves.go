// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// sipAhead is how many calls are made before all of them stand.
const sipAhead = 50

// sipFlock is how calls of one telephone moved at once, run by run. Both ends hold them but for loud ones:
// of media, wires and captures of this process take more than half of two processors already for a hundred
// calls, and are measured with them.
type sipFlock struct {
	size  int
	loud  bool
	moves []sipFlockMove
}

func (f *sipFlock) String() string {
	if f.loud {
		return fmt.Sprintf("%d calls with media", f.size)
	}
	return fmt.Sprintf("%d calls", f.size)
}

// sipFlockMove is one such move, by the clocks of the captures.
type sipFlockMove struct {
	first, last time.Duration // from the change to the first re-INVITE, and to the last 200
	repeated    int           // re-INVITEs
	dropped     int           // calls
}

// measureFlock has calls of one telephone move at once, by IPv6 and hard, to and fro.
func measureFlock(ctx context.Context, e *lab.Env, f *sipFlock, runs int) (err error) {
	h := sipTrips()[0]
	n, err := drawSIP(ctx, e, sipWorld{ipv6: true, mode: registrarrole.Proxy, hosts: []*sipHost{h}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	e.Step("%v at once: %d moves", f, runs)
	if err := n.gather(ctx, h, f); err != nil {
		return err
	}
	for range runs {
		t, err := n.traced(ctx, h, sipHard, func(ctx context.Context, _ *sipHost, t *sipTrace) error {
			if err := n.change(t); err != nil {
				return err
			}
			if err := n.ue.awaitPaths(ctx, t.to, 0); err != nil { // calls are on the move from then on
				return err
			}
			err := n.ue.all(ctx, f.size, func(c agent.CallState) bool { return !c.Moving })
			t.settled = time.Now()
			return err
		})
		if err != nil {
			return err
		}
		m, err := t.readFlock(f.size)
		if err != nil {
			return err
		}
		f.moves = append(f.moves, m)
		e.Step("  the first re-INVITE after %.1f ms, the last 200 after %.1f ms, %d repeated", milliseconds(m.first), milliseconds(m.last), m.repeated)
		if err := n.ue.all(ctx, f.size, func(c agent.CallState) bool { return !c.Moving }); err != nil {
			return err
		}
	}
	ended, err := n.scatter(ctx, h)
	f.moves[len(f.moves)-1].dropped += f.size - ended
	return err
}

// gather makes the calls, some at a time, and has both ends hold them unless they are loud.
func (n *sipNet) gather(ctx context.Context, h *sipHost, f *sipFlock) error {
	for made := 0; made < f.size; {
		for range min(sipAhead, f.size-made) {
			if _, err := n.ue.Call(ctx, "sip:"+h.name+"@"+uriHost(n.hostAddr(h))); err != nil {
				return err
			}
			made++
		}
		for _, p := range []*sipPhone{n.ue, h.phone} {
			err := p.all(ctx, made, func(agent.CallState) bool { return true })
			if err == nil && !f.loud {
				err = p.holdAll(ctx, made)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// holdAll holds those of so many calls that are not held yet.
func (p *sipPhone) holdAll(ctx context.Context, size int) error {
	s, err := p.State(ctx)
	if err != nil {
		return err
	}
	for _, c := range s.Calls {
		if c.Held {
			continue
		}
		if err := p.Hold(ctx, c.ID, true); err != nil {
			return err
		}
	}
	return p.all(ctx, size, func(c agent.CallState) bool { return c.Held })
}

// all waits until a telephone has so many calls that stand, each of which is as it should be.
func (p *sipPhone) all(ctx context.Context, size int, is func(agent.CallState) bool) error {
	done := 0
	err := poll(ctx, sipWait, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		s, err := p.State(ctx)
		done = 0
		for _, c := range s.Calls {
			if c.State == ua.Up && is(c) {
				done++
			}
		}
		return done == size, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d calls are as they should be: %w", done, size, err)
	}
	return nil
}

// scatter has the host end the calls that it still has, and says of how many the terminal hears that.
func (n *sipNet) scatter(ctx context.Context, h *sipHost) (ended int, err error) {
	s, err := h.phone.State(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range s.Calls {
		if err := h.phone.HangUp(ctx, c.ID); err != nil {
			return 0, err
		}
	}
	err = n.ue.all(ctx, 0, func(agent.CallState) bool { return true })
	return len(s.Calls), err
}

// readFlock reads what a move of so many calls has cost.
func (t *sipTrace) readFlock(size int) (m sipFlockMove, err error) {
	invited, answered := map[string]bool{}, map[string]bool{}
	for _, d := range t.ue {
		request := bytes.HasPrefix(d.payload, []byte("INVITE ")) && d.from.Addr() == t.to
		answer := bytes.HasPrefix(d.payload, []byte(sipOK)) && d.to.Addr() == t.to
		if d.at.Before(t.change) || d.at.After(t.settled) || !request && !answer {
			continue
		}
		parsed, fault := message.Parse(d.payload)
		if fault != nil {
			continue
		}
		call := parsed.CallID()
		if request {
			if len(invited) == 0 {
				m.first = d.at.Sub(t.change)
			}
			if invited[call] {
				m.repeated++
			}
			invited[call] = true
		} else if _, method, _ := parsed.CSeq(); method == "INVITE" && !answered[call] {
			answered[call] = true
			m.last = d.at.Sub(t.change)
		}
	}
	if len(answered) != size {
		return m, fmt.Errorf("%d of %d calls have a 200 in the captures, and %d a re-INVITE", len(answered), size, len(invited))
	}
	return m, nil
}
