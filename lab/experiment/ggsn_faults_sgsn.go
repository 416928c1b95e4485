// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/lab"
)

// Choices of SGSNs whose contexts come and go.
const (
	churnWindow = 100              // requests that wait
	churnHold   = time.Second      // the longest time between creates and deletes
	churnBlocks = 10               // of subscribers, one for each load
	releaseWait = 15 * time.Second // until an SGSN has heard of a restart of its GGSN
	emptyWait   = time.Minute      // until all limits of time are over
	discardPort = 9
	// indicationAge is the age from which a context ends by an Error Indication.
	indicationAge = 1100 * time.Millisecond
)

// churn is an SGSN whose contexts come and go, as many at a time as a load has.
type churn struct {
	*subject
	number   int
	at, ggsn netip.Addr
	contexts int
	told     bool // the GGSN is told of a restart
	random   *rand.Rand
	over     chan struct{} // closed when no load is to begin any more
	done     chan struct{}

	// What its loads have come to.
	loads, created, refused, deleted, gone int
}

func (n *ggsnWorld) newChurn(number int, at netip.Addr, c *campaign) *churn {
	one := &churn{
		number: number, at: at, told: true, ggsn: core4.ggsn, contexts: c.form.contexts / 2, over: make(chan struct{}), done: make(chan struct{}),
		random: rand.New(rand.NewPCG(c.form.seed, uint64(len(ggsnWays)+number))),
	}
	counter := "auto"
	if at.Is6() {
		one.ggsn, one.told, counter = core6.ggsn, false, "7"
	}
	one.subject = n.newSGSN(fmt.Sprintf("churn%d", number), at, fmt.Sprintf("restart_counter = %q\nmax_contexts = %d\n", counter, c.form.contexts))
	return one
}

// newSGSN is an SGSN at an address. It repeats requests as long as a restart of the GGSN takes.
func (n *ggsnWorld) newSGSN(name string, at netip.Addr, more string) *subject {
	section := fmt.Sprintf("[[sgsn]]\nname = %q\nlocal = [%q]\nt3_response = \"200ms\"\nn3_requests = 20\necho_interval = \"1s\"\n%s", name, at, more)
	return &subject{instance: instance{n.sgsn, n.binary, n.lab.Dir(), name}, section: func() string { return section }}
}

// run has one load after the other, until the end of the one that goes on then. An SGSN that
// does not answer is being replaced.
func (c *churn) run(ctx context.Context) {
	defer close(c.done)
	for {
		if err := c.load(ctx); err != nil {
			time.Sleep(loadLook)
		}
		select {
		case <-c.over:
			return
		case <-ctx.Done():
			return
		default:
		}
	}
}

// load creates contexts, leaves them for a while, and deletes those that are left.
func (c *churn) load(ctx context.Context) error {
	a := sgsnrole.Loaded{
		GGSN: c.ggsn.String(), APN: []string{apnChurn, apnExtra}[c.random.IntN(2)], Type: "v4", GTP: uint8(c.random.IntN(2)),
		IMSI: fmt.Sprintf("24001%d%d00000000", c.number, c.random.IntN(churnBlocks)), Contexts: c.contexts, Window: churnWindow,
		Hold: time.Duration(c.random.Int64N(int64(churnHold))),
	}
	if types := []string{"v4", "v6", "v4v6"}; a.GTP > 0 {
		a.Type = types[c.random.IntN(len(types))]
	}
	r, err := c.orderLoad(ctx, a)
	if err == nil {
		c.loads++
		c.created, c.refused = c.created+r.Creates.Answered, c.refused+r.Creates.Failed
		c.deleted, c.gone = c.deleted+r.Deletes.Answered, c.gone+r.Deletes.Failed
	}
	return err
}

// imsi is that of the guest.
func (c *churn) imsi() string { return fmt.Sprintf("24001999999999%d", c.number) }

func (c *churn) which() sgsnrole.Which { return sgsnrole.Which{IMSI: c.imsi(), NSAPI: 5} }

// guest opens a context beside those of a load, at the access point without limits of time,
// has something done, and closes it if it is still there.
func (c *churn) guest(ctx context.Context, do func(context.Context) error) error {
	var done sgsnrole.Done
	if err := c.order(ctx, "sgsn", "attach", sgsnrole.Attached{Terminal: sgsnrole.Terminal{
		GGSN: c.ggsn.String(), APN: apnSteady, Type: "v4", IMSI: c.imsi(), GTP: 1, NSAPI: 5, TUN: "none",
	}}, &done); err != nil {
		return fmt.Errorf("a guest could not attach: %w", err)
	}
	err := do(ctx)
	there, asked := c.has(ctx, c.imsi())
	if err = errors.Join(err, asked); !there {
		return err
	}
	return errors.Join(err, c.order(ctx, "sgsn", "detach", sgsnrole.Detached{Which: c.which()}, &done))
}

// has reports whether the SGSN has a context of a subscriber.
func (c *churn) has(ctx context.Context, imsi string) (bool, error) {
	var list sgsnrole.Contexts
	err := c.ask(ctx, "sgsn", "contexts", struct{}{}, &list)
	return slices.ContainsFunc(list.Contexts, func(x sgsnrole.Context) bool { return x.IMSI == imsi }), err
}

func (c *churn) misbehave(ctx context.Context, what string, times int) error {
	var done sgsnrole.Misdone
	return c.order(ctx, "sgsn", "misbehave", map[string]any{"what": what, "imsi": c.imsi(), "nsapi": 5, "times": times}, &done)
}

// sendToAll sends a packet to each terminal that the SGSN has at the GGSN.
func (c *churn) sendToAll(ctx context.Context, n *ggsnWorld) error {
	list, err := n.contexts(ctx, "sgsn", c.at)
	if err != nil {
		return err
	}
	return n.srv.Do(func() error {
		for _, x := range list {
			to := x.Address4
			if !to.IsValid() {
				to = x.Prefix6.Addr().Next()
			}
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discardPort)))
			if err != nil {
				return err
			}
			_, _ = conn.Write([]byte("?")) // refused, where the one before was
			conn.Close()
		}
		return nil
	})
}

// left are the contexts that the SGSN keeps, with a while for those that end.
func (c *churn) left(ctx context.Context) []string {
	var list sgsnrole.Contexts
	err := poll(ctx, releaseWait, loadLook, func(ctx context.Context) (bool, error) {
		list = sgsnrole.Contexts{}
		err := c.ask(ctx, "sgsn", "contexts", struct{}{}, &list)
		return len(list.Contexts) == 0, err
	})
	if err == nil {
		return nil
	}
	left := []string{fmt.Sprintf("%d contexts of the SGSN %v: %v", len(list.Contexts), c.at, err)}
	for _, x := range list.Contexts[:min(len(list.Contexts), shownFaults)] {
		left = append(left, fmt.Sprintf("context %+v", x))
	}
	return left
}

// terminal is one whose flows last.
type terminal struct {
	node      *lab.Node
	addresses []netip.Addr
	before    []string
}

// attachTerminals starts the SGSN of the terminals, and attaches one of each kind.
func (n *ggsnWorld) attachTerminals(ctx context.Context) error {
	n.steady = n.newSGSN("steady", core4.sgsn, "")
	if err := n.startSGSN(ctx, n.steady); err != nil {
		return err
	}
	for i, kind := range []struct {
		gtp  uint8
		kind string
	}{{1, "v4"}, {1, "v6"}, {1, "v4v6"}, {0, "v4"}, {0, "v6"}} {
		t := terminal{node: n.lab.Node(fmt.Sprintf("ue%d", i))}
		err := n.lab.Err()
		if err == nil {
			t.before, err = t.subject().traces()
		}
		if err != nil {
			return err
		}
		var done sgsnrole.Done
		if err := n.steady.order(ctx, "sgsn", "attach", sgsnrole.Attached{Terminal: sgsnrole.Terminal{
			GGSN: core4.ggsn.String(), APN: apnSteady, Type: kind.kind, GTP: kind.gtp, IMSI: fmt.Sprintf("24001888888888%d", i), NSAPI: 5,
			Netns: t.node.Namespace(), TUN: ueDevice,
		}}, &done); err != nil {
			return err
		}
		if done.Context.IPv4.IsValid() {
			t.addresses = append(t.addresses, done.Context.IPv4)
		}
		t.addresses = append(t.addresses, done.Context.IPv6...)
		n.terminals = append(n.terminals, t)
		n.lead(t)
	}
	return nil
}

// lead has flows go from and to a terminal.
func (n *ggsnWorld) lead(t terminal) {
	for _, a := range t.addresses {
		server := coreSrv4
		if a.Is6() {
			server = coreSrv6
		}
		paths := []path{
			{from: t.node, to: n.srv, source: a, listen: server, target: server},
			{from: n.srv, to: t.node, source: server, listen: a, target: a},
		}
		n.world.long, n.world.flows = append(n.world.long, paths...), append(n.world.flows, paths...)
	}
}

// subject is what a terminal's node is looked at by.
func (t *terminal) subject() *subject {
	return &subject{instance: instance{node: t.node, name: t.node.Name()}}
}

// left is what is left in the terminal's node.
func (t *terminal) left() ([]string, error) {
	after, err := t.subject().traces()
	return left(t.before, after), err
}
