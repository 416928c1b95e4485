// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// Choices of sip-mobility.
const (
	sipMobilityName = "sip-mobility"
	sipMoves        = 20 // of each kind
	// sipLossyMoves is how many times as many are made where SIP is lost: 95 % of them are asked for.
	sipLossyMoves = 3
	// sipWarm is how many packets are heard at each end before a change and behind it.
	sipWarm, sipWarmShort = 40, 15
)

// sipMobility is the experiment sip-mobility.
var sipMobility = lab.Experiment{
	Name:      sipMobilityName,
	Summary:   "a telephone moves between two links before a call and in the middle of one, softly and hard: the re-INVITE, the gap in media both ways, what is lost",
	NeedsRoot: true,
	Run:       runSIPMobility,
}

// sipCase is a kind of move, many times.
type sipCase struct {
	server string // its mode
	ipv6   bool
	host   *sipHost
	kind   sipKind
	moves  []sipMove
}

func (c *sipCase) family() string {
	if c.ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

func (c *sipCase) String() string {
	text := fmt.Sprintf("%s, %s, %v", c.family(), c.host.title(), c.kind)
	if c.server == sipKamailio {
		text += ", registered at Kamailio"
	}
	return text
}

// sipHosts are the hosts of the whole experiment, or of its short form. SIP is lost over IPv6 alone.
func sipHosts(short, ipv6 bool) []*sipHost {
	all := []*sipHost{
		{name: "ch50", trip: 50 * time.Millisecond, latch: true},
		{name: "ch0", latch: true},
		{name: "ch200", trip: 200 * time.Millisecond, latch: true},
		{name: "lossy", trip: 50 * time.Millisecond, lossy: true, latch: true},
		{name: "plain", trip: 50 * time.Millisecond, lossy: true},
	}
	switch {
	case short:
		return all[:1]
	case !ipv6:
		return slices.DeleteFunc(all, func(h *sipHost) bool { return h.lossy })
	}
	return all
}

// runSIPMobility is the experiment.
func runSIPMobility(ctx context.Context, e *lab.Env) error {
	short := e.Runs > 0 && e.Runs < longRun
	var cases []*sipCase
	var early []*sipEarly
	for _, ipv6 := range []bool{true, false} {
		done, err := measureSIP(ctx, e, registrarrole.Proxy, ipv6, sipHosts(short, ipv6))
		if err != nil {
			return err
		}
		cases = append(cases, done...)
	}
	modes := []string{registrarrole.Redirect}
	if !short {
		modes = []string{registrarrole.Proxy, registrarrole.Redirect}
	}
	if _, missing := peersOf(e).Program("kamailio"); missing == nil {
		done, err := measureSIP(ctx, e, sipKamailio, true, sipHosts(true, true))
		if err != nil {
			return err
		}
		cases = append(cases, done...)
		if !short {
			modes = append(modes, sipKamailio)
		}
	}
	for _, mode := range modes {
		done, err := measureEarly(ctx, e, mode, sipHosts(true, true))
		if err != nil {
			return err
		}
		early = append(early, done...)
	}
	return finish(e, sipReport(cases, early))
}

// kinds are the moves that are measured with a host. Where SIP is lost, those are hard: in a soft
// one the old path would carry media on.
func (h *sipHost) kinds() []sipKind {
	switch {
	case h.lossy:
		return []sipKind{sipHard}
	case h.trip == sipMust:
		return []sipKind{sipSoft, sipHard, sipCarrier}
	}
	return []sipKind{sipSoft, sipHard}
}

// measureSIP draws the topology in one family, with a server in one mode, and measures all moves in it.
func measureSIP(ctx context.Context, e *lab.Env, mode string, ipv6 bool, hosts []*sipHost) (cases []*sipCase, err error) {
	n, err := drawSIP(ctx, e, ipv6, mode, hosts)
	if err != nil {
		return nil, err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, n.close()) }()
	for _, h := range hosts {
		for _, kind := range h.kinds() {
			c := &sipCase{server: mode, ipv6: ipv6, host: h, kind: kind}
			runs := cmp.Or(e.Runs, sipMoves)
			if h.lossy {
				runs *= sipLossyMoves
			}
			e.Step("%v: %d moves", c, runs)
			for range runs {
				m, err := n.move(ctx, h, kind)
				if err != nil {
					return nil, fmt.Errorf("%v: %w", c, err)
				}
				c.moves = append(c.moves, m)
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// move makes a call with a move in the middle of it.
func (n *sipNet) move(ctx context.Context, h *sipHost, kind sipKind) (m sipMove, err error) {
	t, err := n.traced(ctx, h, kind, n.call)
	if err != nil {
		return m, err
	}
	return t.read()
}

// traced does what moves the terminal, and goes back. It gives what was seen meanwhile.
func (n *sipNet) traced(ctx context.Context, h *sipHost, kind sipKind, do func(context.Context, *sipHost, *sipTrace) error) (*sipTrace, error) {
	if err := n.warm(ctx); err != nil {
		return nil, err
	}
	n.ue.forget()
	h.phone.forget()
	t := &sipTrace{from: n.lan(sipLinkA).at(2), to: n.lan(sipLinkB).at(2), peer: n.hostAddr(h), kind: kind, lossy: h.lossy}
	var byB []seen
	var err error
	t.host, err = trace(n.lab, h.node, "eth0", func() (err error) {
		t.ue, err = trace(n.lab, n.mobile, "a", func() (err error) {
			byB, err = trace(n.lab, n.mobile, "b", func() error { return do(ctx, h, t) })
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	t.ue = inOrder(t.ue, byB)
	return t, errors.Join(n.restore(kind), n.settle(ctx))
}

// change moves the terminal.
func (n *sipNet) change(t *sipTrace) error {
	t.change = time.Now()
	return n.leave(t.kind)
}

// call makes the call, with the move in the middle of it, and has the host hang up.
func (n *sipNet) call(ctx context.Context, h *sipHost, t *sipTrace) error {
	if _, err := n.ue.Call(ctx, "sip:"+h.name+"@"+uriHost(t.peer)); err != nil {
		return err
	}
	if err := n.established(ctx, h); err != nil {
		return err
	}
	if err := n.change(t); err != nil {
		return err
	}
	if err := n.ue.await(ctx, ua.Moved); err != nil {
		return err
	}
	if err := awaitMedia(ctx, n.packets(), n.ue, h.phone); err != nil {
		return err
	}
	t.settled = time.Now()
	if err := n.registered(ctx, sipLinkB); err != nil {
		return err
	}
	list, err := n.bindings(ctx)
	if err != nil {
		return err
	}
	t.bindings = len(list)
	return n.hangUp(ctx, h)
}

// established waits until the call stands and both ends hear each other.
func (n *sipNet) established(ctx context.Context, h *sipHost) error {
	for _, p := range []*sipPhone{n.ue, h.phone} {
		if err := p.await(ctx, ua.Established); err != nil {
			return err
		}
	}
	return awaitMedia(ctx, n.packets(), n.ue, h.phone)
}

// hangUp has the host end the call: the terminal hears of it where it is now.
func (n *sipNet) hangUp(ctx context.Context, h *sipHost) error {
	s, err := h.phone.State(ctx)
	if err == nil && len(s.Calls) != 1 {
		err = fmt.Errorf("the host has %d calls", len(s.Calls))
	}
	if err == nil {
		err = h.phone.HangUp(ctx, s.Calls[0].ID)
	}
	if err != nil {
		return err
	}
	return errors.Join(n.ue.await(ctx, ua.Ended), h.phone.await(ctx, ua.Ended))
}

// warm has terminal and router know each other on both links.
func (n *sipNet) warm(ctx context.Context) error {
	for _, link := range []int{sipLinkA, sipLinkB} {
		r, err := n.mobile.Ping(ctx, lab.Ping{To: n.lan(link).at(1), Count: 1, Timeout: answerWait})
		if err != nil {
			return err
		}
		if r.Lost() > 0 {
			return fmt.Errorf("the router does not answer on %v", n.lan(link).at(1))
		}
	}
	return nil
}

// packets is how many are heard before a change and behind it.
func (n *sipNet) packets() uint64 {
	if n.env.Runs > 0 && n.env.Runs < longRun {
		return sipWarmShort
	}
	return sipWarm
}

// hostAddr is the address of a host.
func (n *sipNet) hostAddr(h *sipHost) netip.Addr {
	return n.lan(sipLinkHosts + slices.Index(n.hosts, h)).at(2)
}
