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
	sipEarlyMoves   = 10 // before a call, of each kind
	// sipLossyMoves is how many times as many are made where packets are lost: 95 % of them are asked for.
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
	world sipWorld
	host  *sipHost
	kind  sipKind
	moves []sipMove
}

func (c *sipCase) String() string {
	text := fmt.Sprintf("%s, %s, %v", c.world.family(), c.world.title(c.host), c.kind)
	if c.world.mode == sipKamailio {
		text += ", registered at Kamailio"
	}
	return text
}

func (w sipWorld) family() string {
	if w.ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

// title is what tables call a host and the way to it.
func (w sipWorld) title(h *sipHost) string {
	text := fmt.Sprintf("%d ms", (w.access + h.trip).Milliseconds())
	if w.access > 0 {
		text += ", of the link"
	}
	if h.loss > 0 {
		what := "SIP"
		if h.everything {
			what = "everything"
		}
		text += fmt.Sprintf(", %.0f %% of %s lost", 100*h.loss, what)
	}
	if !h.latch {
		text += ", no latching"
	}
	if w.repeat > 0 {
		text += fmt.Sprintf(", first repeat after %d ms", w.repeat.Milliseconds())
	}
	return text
}

// sipWorld is a topology with what is measured in it.
type sipWorld struct {
	ipv6   bool
	mode   string        // of the server
	access time.Duration // there and back over either link of the terminal
	repeat time.Duration // until a re-INVITE is sent again, 0: T1
	hosts  []*sipHost
}

// sipTrips are hosts without loss, the one of the musts first.
func sipTrips() []*sipHost {
	return []*sipHost{
		{name: "ch50", trip: sipMust, latch: true, kinds: []sipKind{sipSoft, sipHard, sipCarrier}},
		{name: "ch0", latch: true, kinds: []sipKind{sipSoft, sipHard}},
		{name: "ch200", trip: 200 * time.Millisecond, latch: true, kinds: []sipKind{sipSoft, sipHard}},
	}
}

// sipLossy are hosts behind a wire that loses SIP alone, or of everything as much. Moves are hard: in
// a soft one the old path would carry media on.
func sipLossy() (all []*sipHost) {
	for _, loss := range []float64{sipLoss, sipLittleLoss} {
		for _, everything := range []bool{false, true} {
			for _, latch := range []bool{true, false} {
				all = append(all, &sipHost{
					name: fmt.Sprintf("lossy%d", len(all)), trip: sipMust, loss: loss, everything: everything, latch: latch, kinds: []sipKind{sipHard},
				})
			}
		}
	}
	return all
}

// sipWorlds are those of moves in the middle of a call, or those of the short form. Packets are lost,
// and addresses are duplicate, over IPv6 alone.
func sipWorlds(short bool) []sipWorld {
	six, four := sipTrips(), sipTrips()
	six[0].kinds = append(six[0].kinds, sipDuplicate)
	cold := func() []*sipHost {
		return []*sipHost{{name: "near", latch: true, kinds: []sipKind{sipHard, sipCold}}}
	}
	repeated := &sipHost{name: "repeated", trip: sipMust, loss: sipLoss, kinds: []sipKind{sipHard}}
	if short {
		six, four = six[:1], four[:1]
	} else {
		six = append(six, sipLossy()...)
	}
	worlds := []sipWorld{
		{ipv6: true, mode: registrarrole.Proxy, hosts: six},
		{mode: registrarrole.Proxy, hosts: four},
		{ipv6: true, mode: registrarrole.Proxy, access: sipMust, hosts: cold()},
	}
	if short {
		worlds[2].hosts[0].kinds = []sipKind{sipCold}
		return worlds
	}
	return append(worlds,
		sipWorld{mode: registrarrole.Proxy, access: sipMust, hosts: cold()},
		sipWorld{ipv6: true, mode: registrarrole.Proxy, repeat: sipRepeat, hosts: []*sipHost{repeated}})
}

// sipEarlyWorlds are those of moves before a call.
func sipEarlyWorlds(short bool) (worlds []sipWorld) {
	if short {
		h := sipTrips()[:1]
		h[0].kinds = []sipKind{sipHard}
		return []sipWorld{{ipv6: true, mode: registrarrole.Redirect, hosts: h}}
	}
	for _, ipv6 := range []bool{true, false} {
		for _, mode := range []string{registrarrole.Proxy, registrarrole.Redirect} {
			hosts := sipTrips()
			hosts[0].kinds = []sipKind{sipSoft, sipHard}
			worlds = append(worlds, sipWorld{ipv6: ipv6, mode: mode, hosts: hosts})
		}
	}
	return worlds
}

// runSIPMobility is the experiment.
func runSIPMobility(ctx context.Context, e *lab.Env) error {
	short := e.Runs > 0 && e.Runs < longRun
	var cases []*sipCase
	var early []*sipEarly
	worlds, before := sipWorlds(short), sipEarlyWorlds(short)
	if _, missing := peersOf(e).Program("kamailio"); missing == nil {
		theirs := sipWorld{ipv6: true, mode: sipKamailio, hosts: sipTrips()[:1]}
		if worlds = append(worlds, theirs); !short {
			before = append(before, theirs)
		}
	}
	for _, w := range worlds {
		done, err := measureSIP(ctx, e, w)
		if err != nil {
			return err
		}
		cases = append(cases, done...)
	}
	for _, w := range before {
		done, err := measureEarly(ctx, e, w)
		if err != nil {
			return err
		}
		early = append(early, done...)
	}
	return finish(e, sipReport(cases, early))
}

// eachMove draws a topology and has its terminal move as often as runs says, for each host and each
// kind of move that w names.
func eachMove(ctx context.Context, e *lab.Env, w sipWorld, runs func(*sipHost) int, begin func(*sipHost, sipKind) sipMoved) (err error) {
	n, err := drawSIP(ctx, e, w)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, n.close()) }()
	for _, h := range w.hosts {
		for _, kind := range h.kinds {
			c, runs := begin(h, kind), runs(h)
			e.Step("%v: %d moves", c, runs)
			for range runs {
				if err := c.move(ctx, n); err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
			}
		}
	}
	return nil
}

// sipMoved is one kind of move to one host, and what its moves have shown so far.
type sipMoved interface {
	fmt.Stringer
	move(context.Context, *sipNet) error
}

// measureSIP measures all moves in the middle of calls in one topology.
func measureSIP(ctx context.Context, e *lab.Env, w sipWorld) (cases []*sipCase, err error) {
	runs := func(h *sipHost) int {
		if h.loss > 0 {
			return sipLossyMoves * cmp.Or(e.Runs, sipMoves)
		}
		return cmp.Or(e.Runs, sipMoves)
	}
	err = eachMove(ctx, e, w, runs, func(h *sipHost, kind sipKind) sipMoved {
		cases = append(cases, &sipCase{world: w, host: h, kind: kind})
		return cases[len(cases)-1]
	})
	return cases, err
}

// move makes a call with a move in the middle of it.
func (c *sipCase) move(ctx context.Context, n *sipNet) error {
	t, err := n.traced(ctx, c.host, c.kind, n.call)
	if err != nil {
		return err
	}
	m, err := t.read()
	c.moves = append(c.moves, m)
	return err
}

// traced does what moves the terminal, and goes back. It gives what was seen meanwhile.
func (n *sipNet) traced(ctx context.Context, h *sipHost, kind sipKind, do func(context.Context, *sipHost, *sipTrace) error) (*sipTrace, error) {
	if err := errors.Join(n.warm(ctx), n.prepare(ctx, kind)); err != nil {
		return nil, err
	}
	n.ue.forget()
	h.phone.forget()
	t := &sipTrace{from: n.lan(sipLinkA).at(2), to: n.lan(sipLinkB).at(2), peer: n.hostAddr(h), kind: kind, lossy: h.loss > 0}
	all, err := traceEach(n.lab, func() error { return do(ctx, h, t) }, tap{n.mobile, "a"}, tap{n.mobile, "b"}, tap{h.node, "eth0"})
	if err != nil {
		return nil, err
	}
	t.ue, t.host = inOrder(all[0], all[1]), all[2]
	return t, errors.Join(n.restore(kind), n.settle(ctx))
}

// change moves the terminal.
func (n *sipNet) change(t *sipTrace) (err error) {
	if t.kind == sipCold {
		if err := n.forgetNeighbours(); err != nil {
			return err
		}
	}
	t.change, err = n.leave(t.kind)
	return err
}

// call makes the call, with the move in the middle of it, and has the host hang up.
func (n *sipNet) call(ctx context.Context, h *sipHost, t *sipTrace) error {
	if _, err := n.ue.Call(ctx, "sip:"+h.name+"@"+uriHost(t.peer)); err != nil {
		return err
	}
	if err := established(ctx, n.packets(), n.ue, h.phone); err != nil {
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
	return h.phone.endCall(ctx, n.ue) // which hears of it where it is now
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
func (n *sipNet) packets() uint64 { return warmPackets(n.env) }

func warmPackets(e *lab.Env) uint64 {
	if e.Runs > 0 && e.Runs < longRun {
		return sipWarmShort
	}
	return sipWarm
}

// hostAddr is the address of a host.
func (n *sipNet) hostAddr(h *sipHost) netip.Addr {
	return n.lan(sipLinkHosts + slices.Index(n.hosts, h)).at(2)
}
