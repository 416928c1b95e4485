// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// ggsnFaults is the experiment ggsn-faults.
var ggsnFaults = faultsExperiment(ggsnFaultsName, "a GGSN", "A GGSN over faults", ggsnWays, drawGGSNFaults)

const ggsnFaultsName = "ggsn-faults"

// The ways are two, since contexts outlive a stop in good order, and no crash: flows go by
// contexts that last in the first campaign alone.
var (
	wayOrderly = way{name: "orderly", title: "stops in good order", role: report.Ours, by: byIsthmus, fast: "orderly"}
	wayCrashes = way{name: "crashes", title: "crashes as well", role: report.Ours, by: byIsthmus, fast: "crashes"}
	ggsnWays   = []way{wayOrderly, wayCrashes}
)

// Parts of the configuration that come and go.
const (
	partPool        = "pool"
	partAccessPoint = "access point"
	partServers     = "name servers"
)

// Access points: contexts of the first last, of the others they come and go, and the last
// one is a part that does so itself.
const (
	apnSteady = "internet"
	apnChurn  = "churn"
	apnExtra  = "extra"
)

// What the other access points have. The second pools come and go.
var (
	churnPool4 = []netip.Prefix{netip.MustParsePrefix("10.46.0.0/20"), netip.MustParsePrefix("10.47.0.0/20")}
	churnPool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:6:3000::/53"), netip.MustParsePrefix("2001:db8:6:3800::/53")}
	extraPool4 = netip.MustParsePrefix("10.48.0.0/20")
	extraPool6 = netip.MustParsePrefix("2001:db8:6:4000::/52")
	// SGSNs whose contexts come and go.
	churn4 = netip.MustParseAddr("10.9.1.11")
	churn6 = netip.MustParseAddr("2001:db8:9:1::11")
)

// ggsnWorld is the topology of the campaign: between the nodes are switches, whose ports are
// unplugged. Terminals are TUN devices, each in a node of its own.
//
//	ue0..4 ~~ sgsn ---- gn ---- ggsn ---- gi ---- srv
//	  10.9.1.0/24, 2001:db8:9:1::/64    10.9.2.0/24, 2001:db8:9:2::/64
type ggsnWorld struct {
	lab                     *lab.Lab
	binary                  string
	way                     way
	sgsn, gn, ggsn, gi, srv *lab.Node
	world                   *faultsWorld

	terminals []terminal
	steady    *subject // the SGSN of the terminals
	churns    []*churn // those whose contexts come and go
	before    map[*subject][]string
	ended     map[string]float64 // contexts, by reason
}

// drawGGSNFaults draws the topology for one way.
func drawGGSNFaults(ctx context.Context, e *lab.Env, w way) (*faultsWorld, error) {
	l, err := e.New(ctx, ggsnFaultsName+"-"+w.fast)
	if err != nil {
		return nil, err
	}
	n := &ggsnWorld{
		lab: l, binary: e.Binary, way: w, sgsn: l.Node("sgsn"), gn: l.Bridge("gn"), ggsn: l.Node("ggsn"), gi: l.Bridge("gi"), srv: l.Node("srv"),
		world:  &faultsWorld{off: map[string]bool{}, close: l.Close},
		before: map[*subject][]string{}, ended: map[string]float64{},
	}
	n.draw()
	if err := l.Err(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	n.world.subject = &subject{instance: instance{n.ggsn, e.Binary, l.Dir(), l.Name()}, section: n.section}
	n.world.begin, n.world.finish, n.world.notes = n.begin, n.finish, n.notes
	n.world.faults = n.faults()
	return n.world, nil
}

func (n *ggsnWorld) draw() {
	l := n.lab
	l.Link(n.sgsn, "gn", n.gn, "sgsn")
	l.Link(n.gn, "ggsn", n.ggsn, "gn")
	l.Link(n.ggsn, "gi", n.gi, "ggsn")
	l.Link(n.gi, "srv", n.srv, "gi")
	n.sgsn.Addr("gn", core4.sgsn.String()+"/24", churn4.String()+"/24", core6.sgsn.String()+"/64", churn6.String()+"/64")
	n.ggsn.Forward(true, true).Sysctl("net.ipv4.conf.all.send_redirects", "0").Sysctl("net.ipv4.conf.default.send_redirects", "0")
	n.ggsn.Addr("gn", core4.ggsn.String()+"/24", core6.ggsn.String()+"/64").Addr("gi", coreGi4.String()+"/24", coreGi6.String()+"/64")
	n.srv.Addr("gi", coreSrv4.String()+"/24", coreSrv6.String()+"/64").Route("default", coreGi4.String()).Route("default6", coreGi6.String())
}

// faults are those of the way. Who looks whether the node tells the truth does so around
// each that a process does not survive.
func (n *ggsnWorld) faults() (list []fault) {
	for _, f := range append(slices.Clip(processFaults), stopCut) {
		if !f.stays {
			f = n.truthful(f)
		}
		if n.way == wayCrashes || f.stays || f.keeps {
			list = append(list, f)
		}
	}
	list = append(list,
		toggled(partPool), toggled(partAccessPoint), toggled(partServers),
		flapped("Gn side", n.gn, "ggsn"), flapped("Gi side", n.gi, "ggsn"),
		unrouted("pool", n.ggsn, corePool6), unrouted("pool of addresses", n.ggsn, corePool4),
		fault{name: "contexts deleted by the GGSN", stays: true, do: n.deleted},
		fault{name: "an SGSN tells of a restart", stays: true, do: n.misbehaved("restart", 1)},
		fault{name: "an SGSN hears no answers", stays: true, do: n.misbehaved("lose", 100)},
		fault{name: "an SGSN asks twice", stays: true, do: n.misbehaved("duplicate", 100)},
		fault{name: "an SGSN asks twice, otherwise", stays: true, do: n.misbehaved("duplicate-other", 100)},
		fault{name: "an SGSN asks what cannot be read", stays: true, do: n.misbehaved("malformed", 100)},
		fault{name: "an SGSN is killed", stays: true, do: n.killed},
	)
	if n.way == wayCrashes {
		list = append(list, fault{name: "drain and undrain", stays: true, do: n.drained})
	}
	return list
}

// stopCut is a stop in good order that a kill cuts short: what it leaves is whole, or is none.
var stopCut = fault{name: "TERM, and kill -9 during the stop", do: func(ctx context.Context, c *campaign) error {
	err := errors.Join(c.subject.process.Signal(unix.SIGTERM), c.wait(ctx, 0, startCut))
	_ = c.subject.process.Signal(unix.SIGKILL) // it may have ended
	<-c.subject.process.Done()
	return errors.Join(err, c.start(ctx))
}}

// section is the configuration of the moment. Contexts that someone forgets end soon.
func (n *ggsnWorld) section() string {
	off := n.world.off
	pool4, pool6 := churnPool4, churnPool6
	if off[partPool] {
		pool4, pool6 = pool4[:1], pool6[:1]
	}
	text := fmt.Sprintf("[[ggsn]]\nname = %q\ngsn_address4 = %q\ngsn_address6 = %q\npeers = [%s]\nstate_file = %q\n",
		n.world.subject.name, core4.ggsn, core6.ggsn, quoted([]netip.Addr{core4.sgsn, churn4, churn6}), filepath.Join(n.lab.Dir(), "ggsn.state")) +
		"t3_response = \"200ms\"\npath_hold = \"10s\"\n" +
		fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool4 = [%q]\npool6 = [%q]\nhold = \"1s\"\n", apnSteady, corePool4, corePool6)
	if !off[partServers] {
		text += fmt.Sprintf("dns = [%q, %q]\n", coreDNS4, coreDNS6)
	}
	text += fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool4 = [%s]\npool6 = [%s]\nhold = \"1s\"\nsession_limit = \"4s\"\n", apnChurn, quoted(pool4), quoted(pool6))
	if !off[partAccessPoint] {
		text += fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool4 = [%q]\npool6 = [%q]\nhold = \"1s\"\nidle_limit = \"3s\"\n", apnExtra, extraPool4, extraPool6)
	}
	return text
}

// deleted has the GGSN end the contexts of an SGSN.
func (n *ggsnWorld) deleted(ctx context.Context, c *campaign) error {
	one := n.churns[c.random.IntN(len(n.churns))]
	return n.world.subject.order(ctx, "ggsn", "delete", map[string]any{"sgsn": one.at}, new(ggsnrole.Deleted))
}

// drained has the GGSN end all contexts, and take others again.
func (n *ggsnWorld) drained(ctx context.Context, c *campaign) error {
	s := n.world.subject
	err := s.order(ctx, "ggsn", "drain", map[string]any{"rate": 1000}, new(ggsnrole.Drained))
	err = errors.Join(err, c.wait(ctx, shortestFlap, longestFlap))
	return errors.Join(err, s.order(ctx, "ggsn", "undrain", struct{}{}, new(ggsnrole.Drained)))
}

// killed has an SGSN die. The next one says that it is another, or not: then the GGSN hears
// of it by what it answers to packets for its terminals.
func (n *ggsnWorld) killed(ctx context.Context, c *campaign) error {
	one := n.churns[c.random.IntN(len(n.churns))]
	err := errors.Join(one.end(unix.SIGKILL), one.start(ctx))
	if one.told {
		return err
	}
	// The GGSN does not believe it of contexts that are new.
	return errors.Join(err, c.wait(ctx, indicationAge, indicationAge), one.sendToAll(ctx, n))
}

// misbehaved has an SGSN do a misdeed, with a guest as the context that it is about.
func (n *ggsnWorld) misbehaved(what string, times int) func(context.Context, *campaign) error {
	return func(ctx context.Context, c *campaign) error {
		one := n.churns[c.random.IntN(len(n.churns))]
		return one.guest(ctx, func(ctx context.Context) error { return one.misbehave(ctx, what, times) })
	}
}

// begin starts the SGSNs, with the terminals of those flows that last.
func (n *ggsnWorld) begin(ctx context.Context, c *campaign) error {
	if n.way == wayOrderly {
		if err := n.attachTerminals(ctx); err != nil {
			return err
		}
	}
	for i, at := range []netip.Addr{churn4, churn6} {
		one := n.newChurn(i, at, c)
		n.churns = append(n.churns, one)
		if err := n.startSGSN(ctx, one.subject); err != nil {
			return err
		}
		go one.run(ctx)
	}
	return nil
}

// startSGSN starts an SGSN, and notes what was there before it.
func (n *ggsnWorld) startSGSN(ctx context.Context, s *subject) (err error) {
	if n.before[s], err = s.traces(); err != nil {
		return err
	}
	return errors.Join(s.instance.configure(s.section()), s.start(ctx))
}

// finish ends the SGSNs, and waits until the GGSN has no context and no address in use.
func (n *ggsnWorld) finish(ctx context.Context) (left []string, err error) {
	for _, one := range n.churns {
		close(one.over)
		<-one.done
		left = append(left, one.left(ctx)...)
	}
	for s, before := range n.before {
		more, err := s.clean(ctx, before)
		if left = append(left, more...); err != nil {
			return left, err
		}
	}
	for _, t := range n.terminals {
		more, err := t.left()
		if left = append(left, more...); err != nil {
			return left, err
		}
	}
	left = append(left, n.emptied(ctx)...)
	return left, n.count(ctx)
}
