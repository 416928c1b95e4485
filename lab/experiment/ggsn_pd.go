// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// ggsnPDName is the name of the experiment.
const ggsnPDName = "ggsn-pd"

// ggsnPD is the experiment: a prefix for the network behind a terminal.
var ggsnPD = lab.Experiment{
	Name:      ggsnPDName,
	Summary:   "a /56 is delegated to a router behind a UE, Debian's dhcpcd, whose LAN host reaches a server by IPv6",
	NeedsRoot: true,
	Needs:     []string{"dhcpcd"},
	Run:       runGGSNPD,
}

// pdPool has a /56 for each context.
var pdPool = netip.MustParsePrefix("2001:db8:6000::/44")

// pdPings are those of a measurement, and in short form.
const (
	pdPings      = 100
	pdPingsShort = 20
)

// pdGuide takes the tour.
//
//	host --- lan --- ue ~~~ sgsn ------ gn ------ ggsn -- gi -- srv
//	         a /64 of the   10.9.1.1    10.9.1.2                2001:db8:9:2::2
//	         delegated /56
type pdGuide struct {
	*walk
	host, ue, sgsn, ggsn, srv *lab.Node
	has                       pdContext
	inside                    netip.Addr // of the host
	client                    *lab.Proc
}

// pdContext is what the GGSN tells of a context.
type pdContext struct {
	Prefix6    netip.Prefix   `json:"prefix6"`
	Delegated6 []netip.Prefix `json:"delegated6"`
}

func runGGSNPD(ctx context.Context, e *lab.Env) (err error) {
	e.Step("Delegated prefixes: a router behind a UE, and a host behind that.")
	g, err := newPDGuide(ctx, e)
	if err != nil {
		return err
	}
	// Last, since with Env.Keep it waits until the person has seen enough.
	defer func() { err = errors.Join(err, g.close()) }()
	g.take(ctx, []walkStep{
		{"The GGSN starts, with a /56 for each context", g.startGGSN},
		{"The UE attaches, and has the first /64 of its /56", g.attach},
		{"dhcpcd asks for the rest, knowing how to leave the /64 out", g.delegate},
		{"The LAN has a /64 of it, and a host there an address", g.address},
		{"The host reaches the server", g.reach},
		{"The server reaches the host", func(ctx context.Context) (string, error) { return g.ping(ctx, g.srv, g.inside) }},
		{"An address that nobody delegated gets nowhere", g.spoof},
		{"The GGSN restarts, and the host still reaches the server", g.restart},
		{"dhcpcd gives its prefix back, which nobody has then", g.release},
	})
	r := &report.Report{Experiment: ggsnPDName, Title: "A prefix for the network behind a terminal"}
	g.tell(r)
	return finish(e, r)
}

// newPDGuide draws the topology.
func newPDGuide(ctx context.Context, e *lab.Env) (_ *pdGuide, err error) {
	w, err := newWalk(ctx, e, ggsnPDName)
	if err != nil {
		return nil, err
	}
	l := w.lab
	g := &pdGuide{walk: w, host: l.Node("host"), ue: l.Node("ue"), sgsn: l.Node("sgsn"), ggsn: l.Node("ggsn"), srv: l.Node("srv")}
	l.Link(g.host, "eth0", g.ue, "lan")
	l.Link(g.sgsn, "gn", g.ggsn, "gn")
	l.Link(g.ggsn, "gi", g.srv, "gi")
	g.sgsn.Addr("gn", core4.sgsn.String()+"/24")
	g.ggsn.Forward(true, true).Addr("gn", core4.ggsn.String()+"/24").Addr("gi", coreGi6.String()+"/64")
	g.srv.Addr("gi", coreSrv6.String()+"/64").Route("default6", coreGi6.String())
	g.ue.Forward(false, true)
	if err := errors.Join(l.Err(), e.Capture(g.ggsn, "gn")); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *pdGuide) startGGSN(ctx context.Context) (string, error) {
	return "", g.serve(ctx, g.ggsn, core4.section(filepath.Join(g.dir, "ggsn.state"))+
		fmt.Sprintf("[[ggsn.apn]]\nname = \"internet\"\npool6 = [%q]\ndelegate = 56\n", pdPool))
}

func (g *pdGuide) attach(ctx context.Context) (string, error) {
	i := instance{g.sgsn, g.env.Binary, g.dir, "sgsn"}
	if err := g.start(ctx, g.sgsn, i.attaching(core4, "internet", "v6", "--netns", g.ue.Namespace())); err != nil {
		return "", err
	}
	wait, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	if _, err := last(g.running).WaitFor(wait, "msg=configured"); err != nil {
		return "", err
	}
	err := g.ask(ctx)
	return g.has.Prefix6.String(), err
}

// ask has the GGSN tell of the context.
func (g *pdGuide) ask(ctx context.Context) error {
	out, err := g.run(ctx, g.ggsn, g.env.Binary, "ggsn", "contexts", "--json", "--socket", g.socket("ggsn"))
	if err != nil {
		return err
	}
	var list struct{ Contexts []pdContext }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	if len(list.Contexts) != 1 {
		return fmt.Errorf("contexts are %s", out)
	}
	g.has = list.Contexts[0]
	return nil
}

func (g *pdGuide) clientFile() string { return filepath.Join(g.dir, "dhcpcd.conf") }

// delegate has a client ask, which is over when the LAN has its address.
func (g *pdGuide) delegate(ctx context.Context) (string, error) {
	program, err := peersOf(g.env).Program("dhcpcd")
	if err != nil {
		return "", err
	}
	// Addresses and routes of the context are the emulator's.
	text := "duid\nnoipv6rs\nipv6only\nallowinterfaces ue lan\nscript /bin/true\noption dhcp6_pd_exclude\ninterface ue\nia_pd 1 lan/1\n"
	if err := os.WriteFile(g.clientFile(), []byte(text), 0o600); err != nil {
		return "", err
	}
	// What it writes down is nobody else's.
	if err := g.start(ctx, g.ue, lab.Process{Name: "dhcpcd", Path: "unshare", Args: []string{"-m", "sh", "-c",
		fmt.Sprintf("mount -t tmpfs none /var/lib && mount -t tmpfs none /run && exec %s -B -d -6 -f %s ue", program, g.clientFile())}}); err != nil {
		return "", err
	}
	g.client = last(g.running)
	wait, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	if _, err := last(g.running).WaitFor(wait, "lan: executing: /bin/true DELEGATED6"); err != nil {
		return "", err
	}
	if err := g.ask(ctx); err != nil {
		return "", err
	}
	if all := g.has.Delegated6; len(all) != 1 || all[0].Bits() != 56 || !all[0].Overlaps(g.has.Prefix6) {
		return "", fmt.Errorf("the GGSN says that %v is delegated beside %v", all, g.has.Prefix6)
	}
	return g.has.Delegated6[0].String(), nil
}

// address gives the host an address of the LAN, which is not that of the UE's link.
func (g *pdGuide) address(context.Context) (string, error) {
	raw := g.has.Delegated6[0].Addr().As16()
	raw[7] |= 1 // the subnet that dhcpcd was told to take
	router := netip.AddrFrom16(raw).Next()
	if g.has.Prefix6.Contains(router) {
		return "", fmt.Errorf("the LAN would have the link's %v", g.has.Prefix6)
	}
	g.inside = router.Next()
	g.host.Addr("eth0", g.inside.String()+"/64").Route("default6", router.String())
	return g.inside.String(), g.lab.Err()
}

func (g *pdGuide) reach(ctx context.Context) (string, error) {
	count := pdPings
	if g.env.Runs > 0 {
		count = pdPingsShort
	}
	r, err := g.host.Ping(ctx, lab.Ping{To: coreSrv6, Count: count, Interval: 10 * time.Millisecond, Timeout: answerWait})
	if err == nil && r.Lost() > 0 {
		err = fmt.Errorf("%d of %d pings were lost", r.Lost(), r.Sent())
	}
	return fmt.Sprintf("%d of %d pings, %.3f ms", r.Received(), r.Sent(), milliseconds(r.Median())), err
}

// spoof has the UE send from an address of somebody else's prefix, which goes no further than the SGSN; what a GGSN makes
// of such packets is for its own tests.
func (g *pdGuide) spoof(ctx context.Context) (string, error) {
	raw := g.has.Delegated6[0].Addr().As16()
	raw[6] ^= 1
	alien := netip.AddrFrom16(raw).Next()
	g.ue.Addr("lan", alien.String()+"/128")
	if err := g.lab.Err(); err != nil {
		return "", err
	}
	out, err := g.run(ctx, g.ue, "ping", "-c", "1", "-W", "1", "-I", alien.String(), coreSrv6.String())
	if err == nil {
		return "", fmt.Errorf("it was answered: %s", strings.TrimSpace(out))
	}
	return alien.String(), nil
}

func (g *pdGuide) restart(ctx context.Context) (string, error) {
	p := g.running[0]
	g.running = g.running[1:]
	if err := p.Stop(); err != nil {
		return "", err
	}
	if _, err := g.startGGSN(ctx); err != nil {
		return "", err
	}
	before := g.has
	if err := g.ask(ctx); err != nil {
		return "", err
	}
	if g.has.Prefix6 != before.Prefix6 || !slices.Equal(g.has.Delegated6, before.Delegated6) {
		return "", fmt.Errorf("the context has %+v, and had %+v", g.has, before)
	}
	return g.reach(ctx)
}

// release has the client give back what it has (RFC 8415 section 18.2.7), and end, by its own command: then the GGSN has
// delegated nothing, and nobody is reached there.
func (g *pdGuide) release(ctx context.Context) (string, error) {
	program, err := peersOf(g.env).Program("dhcpcd")
	if err != nil {
		return "", err
	}
	g.running = slices.DeleteFunc(g.running, func(p *lab.Proc) bool { return p == g.client })
	if _, err := g.run(ctx, g.ue, "nsenter", "--mount", "--target", strconv.Itoa(g.client.PID()), program, "-6", "-f", g.clientFile(), "-k", "ue"); err != nil {
		return "", err
	}
	select {
	case <-g.client.Done():
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(daemonStart):
		return "", fmt.Errorf("dhcpcd does not end; it wrote:\n%s", lastLines(g.client.Log()))
	}
	had := g.has.Delegated6
	for end := time.Now().Add(answerWait); len(g.has.Delegated6) > 0; time.Sleep(10 * time.Millisecond) { // its message may be on its way
		if err := g.ask(ctx); err != nil {
			return "", err
		}
		if len(g.has.Delegated6) > 0 && time.Now().After(end) {
			return "", fmt.Errorf("the GGSN still delegates %v; dhcpcd wrote:\n%s", g.has.Delegated6, lastLines(g.client.Log()))
		}
	}
	if r, err := g.srv.Ping(ctx, lab.Ping{To: g.inside, Count: 1, Timeout: time.Second}); err == nil && r.Received() > 0 {
		return "", fmt.Errorf("the server still reaches %v", g.inside)
	}
	return had[0].String(), nil
}
