// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// gprsTeredoName is the name of the experiment.
const gprsTeredoName = "gprs-teredo"

// gprsTeredo is the experiment: IPv6 for UEs of a network that has private IPv4 alone.
var gprsTeredo = lab.Experiment{
	Name:      gprsTeredoName,
	Summary:   "a UE with private IPv4, with each kind of NAT at its GGSN, has IPv6 by Teredo: reaches a host and is reached",
	NeedsRoot: true,
	Needs:     natPrograms,
	Run:       runGPRSTeredo,
}

// What each UE does.
const (
	ueTeredoPings = 100
	ueTeredoBytes = 8 << 20
	// In short form, of the kinds ueTeredoKinds alone.
	ueTeredoPingsShort = 20
	ueTeredoBytesShort = 1 << 20
)

// ueTeredoKinds are the boxes of most homes, and of most operators.
var ueTeredoKinds = []lab.NATKind{lab.PortRestricted, lab.SymmetricRandom}

// uePool is the private IPv4 of all UEs: each core has its own.
var uePool = netip.MustParsePrefix("10.45.0.0/16")

// drawCore puts a mobile core in front of the client:
//
//	client ~~~ sgsn ------ gn ------ ggsn e4 --- IPv4 Internet
//	10.45.0.x  10.9.N.1    10.9.N.2  NAT
func (c *teredoClient) drawCore(number int) {
	l, at := c.net.lab, coreOf(number)
	c.sgsn = l.Node(fmt.Sprintf("sgsn%d", number))
	c.nat = l.NAT(fmt.Sprintf("ggsn%d", number), lab.NATConfig{Kind: c.kind, InputDrop: true, External: c.external, Inside: []string{"ggsn"}})
	l.Link(c.sgsn, "gn", c.nat, "gn")
	c.sgsn.Addr("gn", at.sgsn.String()+"/24")
	c.nat.Addr("gn", at.ggsn.String()+"/24")
	c.core = at
}

// coreOf are the addresses of a core's two nodes.
func coreOf(number int) gsns {
	return gsns{netip.AddrFrom4([4]byte{10, 9, byte(number), 1}), netip.AddrFrom4([4]byte{10, 9, byte(number), 2})}
}

// attach starts the client's core, and gives the client its address and way.
func (c *teredoClient) attach(ctx context.Context) (p *lab.Proc, err error) {
	d := c.net.daemons
	node := d.isthmus(c.nat, "ggsn")
	p, err = node.run(ctx, c.core.section(filepath.Join(d.dir, node.name+".state"))+fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool4 = [%q]\n", coreAPN(false), uePool))
	if err == nil {
		err = running(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	if p, err = c.sgsn.Start(ctx, d.isthmus(c.sgsn, "sgsn").attaching(c.core, coreAPN(false), "v4", "--netns", c.node.Namespace())); err != nil {
		return nil, err
	}
	err = poll(ctx, daemonStart, 5*time.Millisecond, func(context.Context) (bool, error) {
		c.local = addressOn(c.node, ueDevice, uePool)
		return c.local.IsValid(), alive(p.Name(), p)
	})
	if err != nil {
		return nil, fmt.Errorf("%s got no address: %w; the log of %s ends:\n%s", c.name, err, p.Name(), lastLines(p.Log()))
	}
	return p, nil
}

// ueTeredo is what one UE reached.
type ueTeredo struct {
	client   *teredoClient
	start    time.Duration // process start to address and route
	nat      natReport
	in, out  lab.PingResult     // in is cold: nobody but the server knows the UE
	transfer lab.TransferResult // too short to tell a rate
}

func runGPRSTeredo(ctx context.Context, e *lab.Env) (err error) {
	kinds, pings, size := lab.NATKinds, ueTeredoPings, int64(ueTeredoBytes)
	if e.Runs > 0 {
		kinds, pings, size = ueTeredoKinds, ueTeredoPingsShort, ueTeredoBytesShort
	}
	e.Step("%d mobile cores, each with a UE of private IPv4 alone and a NAT of another kind at its GGSN", len(kinds))
	e.Step("Teredo gives each UE IPv6 through its NAT: a server sees its mapping and tells it an address, a relay joins it with hosts of IPv6")
	e.Step("each must see what kind of NAT it has, be reached by a host that it has not spoken to, lose none of %d pings, and get %d MiB unharmed", pings, size>>20)
	n, err := drawTeredo(ctx, e, gprsTeredoName, teredoPlan{NATs: kinds, Core: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if _, err := n.capture(); err != nil {
		return err
	}
	if err := n.startCore(ctx, isthmus, isthmus); err != nil {
		return err
	}
	var all []*ueTeredo
	for _, c := range n.clients {
		u := &ueTeredo{client: c}
		e.Step("%s NAT: the UE %v behind %v starts its Teredo client", c.kind, c.local, c.external)
		if err := u.run(ctx, pings, size); err != nil {
			return fmt.Errorf("%s NAT: %w", c.kind, err)
		}
		e.Step("  seen as %s; the address %v after %.0f ms", u.nat.Kind, c.addr, milliseconds(u.start))
		e.Step("  the host pings it: %d of %d answered; it pings the host: %d of %d; it fetches %d MiB", u.in.Received(), u.in.Sent(), u.out.Received(), u.out.Sent(), size>>20)
		all = append(all, u)
	}
	return finish(e, ueTeredoReport(all))
}

// run has a UE qualify, be reached, reach the host and fetch data from it.
func (u *ueTeredo) run(ctx context.Context, pings int, size int64) (err error) {
	c := u.client
	if err = c.start(ctx, isthmus); err != nil {
		return err
	}
	if u.start, err = c.await(ctx); err != nil {
		return err
	}
	if u.nat, err = c.awaitNAT(ctx); err != nil {
		return err
	}
	if u.in, err = c.net.host.Ping(ctx, lab.Ping{To: c.addr, Timeout: answerWait}); err != nil {
		return err
	}
	if u.out, err = c.node.Ping(ctx, lab.Ping{To: hostAddr, Count: pings, Interval: gprsInterval, Timeout: answerWait}); err != nil {
		return err
	}
	u.transfer, err = lab.Transfer(ctx, lab.TransferConfig{Server: c.net.host, Addr: hostAddr, Client: c.node, Bytes: size})
	return err
}

// ueTeredoReport is the table of all UEs.
func ueTeredoReport(all []*ueTeredo) *report.Report {
	r := &report.Report{
		Experiment: gprsTeredoName, Title: "Teredo behind the NAT of a GGSN",
		Notes: []string{"One run on bare veth, all programs on one machine; nat-matrix and teredo-start measure Teredo. The host's first ping finds a relay that does not know the UE."},
	}
	table := report.Table{
		Title:   "a UE with private IPv4 and a host with IPv6",
		Columns: []string{"NAT at the GGSN", "as the UE sees it", "address after, ms", "first ping of the host, ms", "pings of the UE", "round trip, ms", "what it fetches"},
	}
	for _, u := range all {
		kind := u.client.kind
		first, fetched := "lost", "whole"
		if u.in.Lost() == 0 {
			first = fmt.Sprintf("%.2f", milliseconds(u.in.First()))
		} else {
			r.Fault("%s NAT: the host does not reach the UE", kind)
		}
		if u.out.Lost() > 0 {
			r.Fault("%s NAT: %d of %d pings of the UE were lost", kind, u.out.Lost(), u.out.Sent())
		}
		if !u.transfer.Intact {
			fetched = "altered"
			r.Fault("%s NAT: what came to the UE is not what was sent", kind)
		}
		if behavior, err := kind.Behavior(); err != nil || u.nat.Symmetric == (behavior.Mapping == lab.EndpointIndependent) {
			r.Fault("%s NAT: the UE takes it for one with %s", kind, u.nat.Kind)
		}
		table.Rows = append(table.Rows, []string{
			string(kind), u.nat.Kind, fmt.Sprintf("%.0f", milliseconds(u.start)), first,
			fmt.Sprintf("%d of %d", u.out.Received(), u.out.Sent()), fmt.Sprintf("%.3f", milliseconds(u.out.Median())), fetched,
		})
	}
	r.Tables = []report.Table{table}
	return r
}
