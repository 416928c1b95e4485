// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// seamlessSIPKinds are the kinds of handovers that calls make, too. Of a silent cut no one tells a telephone.
var seamlessSIPKinds = []seamlessKind{seamlessAnnounced, seamlessBefore}

// noSilentSIP is why there are no others.
const noSilentSIP = "no one tells the telephone: the call stays on the WLAN"

// testbedCalls are telephones on the terminal and on the media server, and the registrar of the terminal's beside RADIUS.
type testbedCalls struct {
	*testbedNet
	registrar    instance
	caller, host *sipPhone
}

// sipHandovers makes handovers in the middle of calls, each in a new one.
func (n *testbedNet) sipHandovers(ctx context.Context, runs int) (_ map[seamlessKind][]sipMove, err error) {
	c, err := n.startCalls(ctx)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return nil, err
	}
	moves := map[seamlessKind][]sipMove{}
	for _, kind := range seamlessSIPKinds {
		for range runs {
			m, err := c.handover(ctx, kind)
			if err != nil {
				return nil, fmt.Errorf("a call, %v: %w", kind, err)
			}
			n.daemons.env.Step("a call, %v: nothing came to the terminal for %v, and %d packets did not come", kind, rounded(m.down.longest), m.down.lost)
			moves[kind] = append(moves[kind], m)
		}
	}
	return moves, nil
}

// startCalls starts registrar and telephones. They are to be closed in any case.
func (n *testbedNet) startCalls(ctx context.Context) (*testbedCalls, error) {
	c := &testbedCalls{testbedNet: n, registrar: n.daemons.isthmus(n.radius, "registrar")}
	at, dir := testbedRADIUS.Addr(), filepath.Join(n.daemons.dir, "sip") // for its subscribers, who are others than the GGSN's
	if err := os.Mkdir(dir, 0o755); err != nil {
		return c, err
	}
	sections, err := sipServer(dir, at, registrarrole.Proxy)
	if err != nil {
		return c, err
	}
	p, err := n.daemons.keep(c.registrar.run(ctx, sections))
	if err != nil {
		return c, err
	}
	if err := running(ctx, p); err != nil {
		return c, err
	}
	if c.host, err = startPhone(ctx, n.media, phoneSettings("sip:ch@example.org", at, true)); err != nil {
		return c, err
	}
	if c.caller, err = startPhone(ctx, n.ue, terminalSettings(at)); err != nil {
		return c, err
	}
	return c, c.settled(ctx, 0)
}

// settled waits until the terminal is registered by a network.
func (c *testbedCalls) settled(ctx context.Context, link int) error {
	return awaitBinding(ctx, c.bindings, c.addresses[link])
}

func (c *testbedCalls) bindings(ctx context.Context) ([]string, error) {
	return c.registrar.bindings(ctx, sipUE)
}

// handover makes one, and the return when the call is over.
func (c *testbedCalls) handover(ctx context.Context, kind seamlessKind) (m sipMove, err error) {
	c.caller.forget()
	c.host.forget()
	t := &sipTrace{from: c.addresses[0], to: c.addresses[1], peer: testbedMedia, kind: sipHard}
	if kind == seamlessBefore {
		t.kind = sipSoft
	}
	all, err := traceEach(c.lab, func() error { return c.call(ctx, kind, t) }, tap{c.ue, testbedWLAN}, tap{c.ue, handoffUMTS}, tap{c.media, "gi"})
	if err != nil {
		return m, err
	}
	t.ue, t.host = inOrder(all[0], all[1]), all[2]
	if m, err = t.read(); err != nil {
		return m, err
	}
	if kind == seamlessBefore {
		if err := c.prefer((*lab.Kernel).RouteDel); err != nil {
			return m, err
		}
	}
	if _, err := c.regain(ctx); err != nil {
		return m, err
	}
	return m, c.settled(ctx, 0)
}

// call makes a call, with the handover in the middle of it, and has the server's telephone hang up.
func (c *testbedCalls) call(ctx context.Context, kind seamlessKind, t *sipTrace) error {
	if _, err := c.caller.Call(ctx, "sip:ch@"+uriHost(testbedMedia)); err != nil {
		return err
	}
	packets := warmPackets(c.daemons.env)
	if err := established(ctx, packets, c.caller, c.host); err != nil {
		return err
	}
	t.change = time.Now()
	if err := c.moveCall(ctx, kind); err != nil {
		return err
	}
	if err := awaitMedia(ctx, packets, c.caller, c.host); err != nil {
		return err
	}
	t.settled = time.Now()
	if err := c.settled(ctx, 1); err != nil {
		return err
	}
	return c.host.endCall(ctx, c.caller)
}

// moveCall takes the WLAN away, or first the routes by it and some time later the WLAN.
func (c *testbedCalls) moveCall(ctx context.Context, kind seamlessKind) error {
	moved := func(context.Context) error { return c.caller.await(ctx, ua.Moved) }
	steps := []func(context.Context) error{c.lose, moved}
	if kind == seamlessBefore {
		prefer := func(context.Context) error { return c.prefer((*lab.Kernel).RouteReplace) }
		steps = []func(context.Context) error{prefer, moved, c.settle, c.lose}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prefer changes the route that has the terminal prefer UMTS.
func (c *testbedCalls) prefer(how setRoute) error {
	return how.byDefault(c.ue, handoffUMTS, "fe80::1", sipPrefer)
}

// close ends the telephones; the registrar ends with the testbed.
func (c *testbedCalls) close() error { return errors.Join(c.caller.close(), c.host.close()) }

// callFigures are what handovers of one kind have cost calls.
func callFigures(kind seamlessKind, moves []sipMove) (all []report.Figure) {
	for _, of := range []struct {
		name, unit string
		decimals   int
		number     func(sipMove) float64
	}{
		{"gap to the terminal", "ms", 1, sipMove.gapDown},
		{"gap from the terminal", "ms", 1, sipMove.gapUp},
		{"packets lost to the terminal", "", 0, sipMove.lostDown},
		{"packets lost from the terminal", "", 0, sipMove.lostUp},
	} {
		v := report.None(noSilentSIP)
		if slices.Contains(seamlessSIPKinds, kind) {
			v = report.Value{Samples: (&sipCase{moves: moves}).all(of.number)}
		}
		all = append(all, report.Figure{Name: fmt.Sprintf("%v, a SIP call: %s", kind, of.name), Unit: of.unit, Decimals: of.decimals, Isthmus: v})
	}
	return all
}
