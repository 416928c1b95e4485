// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
)

// sipEarly is a move before the call, many times: the terminal registers from its new address,
// and a host calls it through the server.
type sipEarly struct {
	world sipWorld
	host  *sipHost
	kind  sipKind
	moves []sipEarlyMove
}

func (c *sipEarly) String() string {
	return fmt.Sprintf("before the call, %s, %s, %s, %v", c.world.mode, c.world.family(), c.world.title(c.host), c.kind)
}

// theory is how long the answer to an INVITE takes: a round trip by a proxy, two if a redirect server
// is asked first.
func (c *sipEarly) theory() time.Duration {
	if c.world.mode == registrarrole.Redirect {
		return 2 * c.host.trip
	}
	return c.host.trip
}

// sipEarlyMove is what one has cost, by the clocks of the captures.
type sipEarlyMove struct {
	register   time.Duration // from the change to the REGISTER on the wire
	registered time.Duration // from there to its 200
	redirected time.Duration // from the host's INVITE to the 302, 0 without
	answered   time.Duration // from that INVITE to the 200
	heard      time.Duration // and to the first media at the host
}

// measureEarly measures all moves before calls in one topology.
func measureEarly(ctx context.Context, e *lab.Env, w sipWorld) (cases []*sipEarly, err error) {
	runs := func(*sipHost) int { return cmp.Or(e.Runs, sipEarlyMoves) }
	err = eachMove(ctx, e, w, runs, func(h *sipHost, kind sipKind) sipMoved {
		cases = append(cases, &sipEarly{world: w, host: h, kind: kind})
		return cases[len(cases)-1]
	})
	return cases, err
}

// move moves and is called then.
func (c *sipEarly) move(ctx context.Context, n *sipNet) error {
	t, err := n.traced(ctx, c.host, c.kind, n.callBehind)
	if err != nil {
		return err
	}
	m, err := t.readEarly(c.world.mode == registrarrole.Redirect)
	c.moves = append(c.moves, m)
	return err
}

// callBehind moves, has the host call, and hangs up.
func (n *sipNet) callBehind(ctx context.Context, h *sipHost, t *sipTrace) error {
	if err := n.change(t); err != nil {
		return err
	}
	if err := n.registered(ctx, sipLinkB); err != nil {
		return err
	}
	if _, err := h.phone.Call(ctx, sipUE); err != nil {
		return err
	}
	if err := established(ctx, n.packets(), n.ue, h.phone); err != nil {
		return err
	}
	t.settled = time.Now()
	return h.phone.endCall(ctx, n.ue)
}

// readEarly reads what a move before the call has cost.
func (t sipTrace) readEarly(redirect bool) (m sipEarlyMove, err error) {
	register, ok := first(t.ue, t.change, sipSeen{from: t.to, begins: "REGISTER "})
	if !ok {
		return m, errors.New("no REGISTER is in the captures")
	}
	registered, ok := first(t.ue, register, sipSeen{to: t.to, begins: sipOK, method: "REGISTER"})
	if !ok {
		return m, errors.New("no 200 to a REGISTER is in the captures")
	}
	m, err = t.readCalled(registered, redirect)
	m.register, m.registered = register.Sub(t.change), registered.Sub(register)
	return m, err
}

// readCalled reads how long the first call of the host since a time has taken.
func (t sipTrace) readCalled(since time.Time, redirect bool) (m sipEarlyMove, err error) {
	find := func(since time.Time, what sipSeen) time.Time {
		at, ok := first(t.host, since, what)
		if !ok && err == nil {
			err = fmt.Errorf("no %s is in the captures", what.begins)
		}
		return at
	}
	invite := find(since, sipSeen{from: t.peer, begins: "INVITE "})
	if redirect {
		m.redirected = find(invite, sipSeen{to: t.peer, begins: "SIP/2.0 302"}).Sub(invite)
	}
	m.answered = find(invite, sipSeen{to: t.peer, begins: sipOK, method: "INVITE"}).Sub(invite)
	if err != nil {
		return m, err
	}
	for _, d := range t.host {
		// What comes before the answer is of the call before.
		if _, ok := rtpNumber(d.payload); ok && d.to.Addr() == t.peer && d.at.After(invite.Add(m.answered)) {
			m.heard = d.at.Sub(invite)
			return m, nil
		}
	}
	return m, errors.New("no media came to the host")
}

// earlyTable has a row for each case: median, lowest and highest.
func earlyTable(cases []*sipEarly) report.Table {
	t := report.Table{
		Title: "moves before a call: median (lowest to highest), ms",
		Columns: []string{
			"family", "server", "round trip", "move", "moves", "change to REGISTER", "REGISTER to 200", "INVITE to 302", "INVITE to 200", "by theory", "INVITE to media",
		},
	}
	for _, c := range cases {
		column := func(decimals int, of func(sipEarlyMove) time.Duration) string {
			var all []float64
			for _, m := range c.moves {
				if d := of(m); d != 0 {
					all = append(all, milliseconds(d))
				}
			}
			return spread(all, decimals)
		}
		t.Rows = append(t.Rows, []string{
			c.world.family(), c.world.mode, c.world.title(c.host), c.kind.String(), fmt.Sprint(len(c.moves)),
			column(2, func(m sipEarlyMove) time.Duration { return m.register }),
			column(2, func(m sipEarlyMove) time.Duration { return m.registered }),
			column(1, func(m sipEarlyMove) time.Duration { return m.redirected }),
			column(1, func(m sipEarlyMove) time.Duration { return m.answered }), fmt.Sprint(c.theory().Milliseconds()),
			column(1, func(m sipEarlyMove) time.Duration { return m.heard }),
		})
	}
	return t
}
