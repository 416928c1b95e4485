// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// Addresses that the figure adds to those of the Teredo topology.
var (
	handoffSIP   = netip.MustParseAddr("2001:db8::7")
	handoffGGSN6 = netip.MustParseAddr("2001:db8::9")
	handoffGn    = netip.MustParseAddr("10.9.2.1") // of the SGSN of the second network
)

// Links of the terminal, and the far end of both.
const (
	handoffUMTS, handoffGPRS = "umts", "gprs"
	handoffRadio             = "radio"
)

// handoffNet is figure 4 of the Teredo paper (WCMC 2006). Tildes are wires, each of them a radio:
//
//	                                            IPv6 Internet 2001:db8::/64
//	   +~~ umts ~~ sgsn-umts ----- ggsn-umts ---+--------+-------+--------+
//	   |                                 ::9        ::7 |   ::5 |    ::3 |
//	+----+                                            sip    host    relay
//	| ue |                                                            .3 |
//	+----+                        NAT                                    |
//	   |                         ggsn-1 --------+------------------------+
//	   +~~ gprs ~~ sgsn-gprs --- ggsn-2 --------+         .1 .2 |
//	       10.50.x              ...          IPv4 Internet   server
//
// The host is the figure's CH, the server that of Teredo, and sip the SIP server. Beside the one
// NAT of the figure stand others, one for each kind; the terminal is attached at one at a time.
type handoffNet struct {
	*teredoNet
	handoffWorld
	node, sip  *lab.Node
	umts, gprs *handoffAccess
	core6      *lab.Node // the GGSN of the first network
	boxes      []*handoffBox
	client     *teredoClient
	ue, ch     *sipPhone
	theirs     *baresipPhone // in the place of ch
	native     netip.Addr    // of the terminal in the first network
	lost       time.Time     // when that was lost
}

// handoffAccess is a radio with the SGSN behind it.
type handoffAccess struct {
	wire *lab.Wire
	sgsn *lab.Node
	instance
}

// handoffBox is a GGSN with a NAT.
type handoffBox struct {
	handoffNAT
	node     *lab.Node
	at       gsns
	pool     netip.Prefix
	external netip.Addr
	inside   atomic.Pointer[netip.Addr] // of the terminal that is attached
}

// handoffNAT is a kind of box.
type handoffNAT struct {
	kind lab.NATKind
	// rewriting marks one that changes addresses in payloads, too.
	rewriting bool
}

func (b handoffNAT) String() string {
	if b.rewriting {
		return string(b.kind) + ", rewriting"
	}
	return string(b.kind)
}

// restricted reports whether the box lets in answers alone, by one mapping for all.
func (b handoffNAT) restricted() bool {
	return b.kind == lab.AddressRestricted || b.kind == lab.PortRestricted
}

// handoffWorld says how the topology is drawn.
type handoffWorld struct {
	boxes  []handoffNAT
	jitter bool       // the radios have that of the profile
	loss   float64    // of the radios, each way
	guide  *callGuide // tells what happens; nil: no one does
	// kamailio is the SIP server in the place of ours, baresip the host's telephone.
	kamailio, baresip bool
}

// radio is the wire of either network.
func (w handoffWorld) radio() lab.WireConfig {
	c := lab.UMTS()
	for _, lane := range []*lab.LaneConfig{&c.AtoB, &c.BtoA} {
		if !w.jitter {
			lane.Jitter = 0
		}
		lane.Loss = w.loss
	}
	return c
}

// drawHandoff draws the topology and starts all of it. The terminal is attached to the first network.
func drawHandoff(ctx context.Context, e *lab.Env, w handoffWorld) (_ *handoffNet, err error) {
	name := handoffName
	if w.guide != nil {
		name = callTourName
	}
	t, err := drawTeredo(ctx, e, name, teredoPlan{})
	if err != nil {
		return nil, err
	}
	n := &handoffNet{teredoNet: t, handoffWorld: w}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	n.draw()
	if err := n.lab.Err(); err != nil {
		return nil, err
	}
	// Packets that a GGSN or a relay hands over together are one to a cable, and to a capture.
	for _, x := range []tap{{n.core6, "gi"}, {n.relay, "v6"}, {n.host, "v6"}} {
		if err := x.node.DisableOffloads(x.iface); err != nil {
			return nil, err
		}
	}
	for _, x := range []tap{{n.node, handoffUMTS}, {n.node, handoffGPRS}, {n.host, "v6"}} {
		if err := e.Capture(x.node, x.iface); err != nil {
			return nil, err
		}
	}
	return n, n.start(ctx)
}

// draw draws what the Teredo topology has not.
func (n *handoffNet) draw() {
	l := n.lab
	n.node, n.sip, n.core6 = l.Node("ue"), l.Node("sip"), l.Node("ggsn-umts")
	l.Link(n.sip, "v6", n.bridge6, "")
	n.sip.Addr("v6", handoffSIP.String()+"/64")
	n.umts, n.gprs = drawAccess(n.daemons, n.node, handoffUMTS, n.radio()), drawAccess(n.daemons, n.node, handoffGPRS, n.radio())

	l.Link(n.umts.sgsn, "gn", n.core6, "gn")
	l.Link(n.core6, "gi", n.bridge6, "")
	n.umts.sgsn.Addr("gn", core4.sgsn.String()+"/24")
	n.core6.Forward(false, true).Addr("gn", core4.ggsn.String()+"/24").Addr("gi", handoffGGSN6.String()+"/64")
	for _, node := range []*lab.Node{n.host, n.sip, n.server, n.relay} {
		node.Route(corePool6.String(), handoffGGSN6.String())
	}
	for _, node := range []*lab.Node{n.core6, n.sip} {
		node.Route("2001::/32", relayAddr6.String())
	}

	gn := l.Bridge("gn")
	l.Link(n.gprs.sgsn, "gn", gn, "")
	n.gprs.sgsn.Addr("gn", handoffGn.String()+"/24")
	for i, kind := range n.handoffWorld.boxes {
		n.boxes = append(n.boxes, n.drawBox(i+1, kind, gn))
	}

	// Routers are solicited until one answers (RFC 7559): solicitations may be lost.
	n.node.Sysctl("net.ipv6.conf."+handoffUMTS+".router_solicitations", "-1").Sysctl("net.ipv6.conf."+handoffGPRS+".disable_ipv6", "1")
	n.client = &teredoClient{net: n.teredoNet, node: n.node, name: "ue", lines: []string{`native = "standby"`}}
}

// drawAccess draws a terminal's radio, and the SGSN behind it.
func drawAccess(d *daemons, ue *lab.Node, name string, radio lab.WireConfig) *handoffAccess {
	l := ue.Lab()
	a := &handoffAccess{sgsn: l.Node("sgsn-" + name)}
	a.wire, _ = l.Wire(ue, name, a.sgsn, handoffRadio, radio) // the lab keeps the error
	a.instance = d.isthmus(a.sgsn, "sgsn")
	return a
}

// drawBox draws a GGSN of the second network.
func (n *handoffNet) drawBox(number int, kind handoffNAT, gn *lab.Node) *handoffBox {
	l := n.lab
	b := &handoffBox{
		handoffNAT: kind,
		at:         gsns{handoffGn, netip.AddrFrom4([4]byte{10, 9, 2, byte(10 + number)})},
		pool:       netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(50 + number), 0, 0}), 16),
		external:   netip.AddrFrom4([4]byte{203, 0, 113, byte(10 * number)}),
	}
	b.node = l.NAT(fmt.Sprintf("ggsn-%d", number), lab.NATConfig{Kind: kind.kind, InputDrop: true, External: b.external, Inside: []string{"ggsn"}})
	l.Link(b.node, "gn", gn, "")
	b.node.Addr("gn", b.at.ggsn.String()+"/24")
	if kind.rewriting {
		_, _ = l.Wire(b.node, "e4", n.bridge4, "", lab.WireConfig{AtoB: lab.LaneConfig{Rewrite: b.outward}, BtoA: lab.LaneConfig{Rewrite: b.inward}})
	} else {
		l.Link(b.node, "e4", n.bridge4, "")
	}
	b.node.Addr("e4", b.external.String()+"/24")
	return b
}

// outward and inward change the terminal's address in payloads to the box's, and back.

func (b *handoffBox) outward(frame []byte) bool {
	inside := b.inside.Load()
	return inside != nil && lab.RewriteAddress(*inside, b.external)(frame)
}

func (b *handoffBox) inward(frame []byte) bool {
	inside := b.inside.Load()
	return inside != nil && lab.RewriteAddress(b.external, *inside)(frame)
}

// start starts all programs and telephones.
func (n *handoffNet) start(ctx context.Context) error {
	if err := n.startCore(ctx, isthmus, isthmus); err != nil {
		return err
	}
	type program struct {
		instance
		sections string
	}
	all := []program{
		{n.daemons.isthmus(n.core6, "ggsn"), core4.section(filepath.Join(n.daemons.dir, "umts.state")) +
			fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool6 = [%q]\n", coreAPN(true), corePool6)},
		{n.umts.instance, sgsnSection(core4.sgsn)},
		{n.gprs.instance, sgsnSection(handoffGn)},
	}
	for i, b := range n.boxes {
		all = append(all, program{n.daemons.isthmus(b.node, "ggsn"), b.at.section(filepath.Join(n.daemons.dir, fmt.Sprintf("gprs%d.state", i))) +
			fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool4 = [%q]\n", coreAPN(false), b.pool)})
	}
	for _, p := range all {
		if _, err := n.daemons.keep(p.run(ctx, p.sections)); err != nil {
			return err
		}
	}
	for _, p := range n.daemons.run {
		if err := running(ctx, p); err != nil {
			return err
		}
	}
	if err := n.serveSIP(ctx); err != nil {
		return err
	}
	var err error
	if n.client.process, err = n.daemons.startIsthmus(ctx, n.node, "client", n.client.section()); err != nil {
		return err
	}
	if err := n.umts.open(ctx, core4.ggsn, true); err != nil {
		return err
	}
	if err := poll(ctx, daemonStart, 5*time.Millisecond, func(context.Context) (bool, error) {
		n.native = addressOn(n.node, handoffUMTS, corePool6)
		return n.native.IsValid(), nil
	}); err != nil {
		return fmt.Errorf("the terminal has no address by UMTS: %w", err)
	}
	n.guide.say("All programs run. The terminal is attached to UMTS and has %v.", n.native)
	return n.startPhones(ctx)
}

// startPhones starts the telephones, and waits until the terminal is registered.
func (n *handoffNet) startPhones(ctx context.Context) (err error) {
	if err := n.startHost(ctx); err != nil {
		return err
	}
	set := terminalSettings(handoffSIP)
	if n.guide != nil {
		set.Sound = n.guide.tone
	}
	if n.ue, err = startPhone(ctx, n.node, set); err != nil {
		return err
	}
	return awaitBinding(ctx, n.bindings, n.native)
}

// registrar is our SIP server.
func (n *handoffNet) registrar() instance { return n.daemons.isthmus(n.sip, "registrar") }

// sgsnSection is the configuration of an SGSN without terminals.
func sgsnSection(at netip.Addr) string {
	return fmt.Sprintf("[[sgsn]]\nlocal = [%q]\nrestart_counter = \"clock\"\n", at)
}

// open has the SGSN open a context for the terminal behind the radio.
func (a *handoffAccess) open(ctx context.Context, ggsn netip.Addr, v6 bool) error {
	return a.openAs(ctx, ggsn, v6, "", "")
}

// openAs does so for a terminal that says who its user is.
func (a *handoffAccess) openAs(ctx context.Context, ggsn netip.Addr, v6 bool, user, password string) error {
	family := "v4"
	if v6 {
		family = "v6"
	}
	var done sgsnrole.Done
	return a.order(ctx, "sgsn", "attach", sgsnrole.Attached{Terminal: sgsnrole.Terminal{
		GGSN: ggsn.String(), APN: coreAPN(v6), Type: family, IMSI: testIMSI, GTP: 1, NSAPI: 5, TUN: ueDevice, Link: handoffRadio,
		User: user, Password: password, Auth: "chap",
	}}, &done)
}

// attach attaches the terminal to the second network, as its modem does: a context, then the address
// by DHCP. The link has two ends: nobody is looked for there.
func (n *handoffNet) attach(ctx context.Context, b *handoffBox) error {
	if err := n.gprs.open(ctx, b.at.ggsn, false); err != nil {
		return err
	}
	n.guide.say("GPRS: the terminal is attached, with a context of IPv4 alone.")
	lease, err := n.node.Lease(ctx, handoffGPRS)
	if err != nil {
		return err
	}
	inside := lease.Addr.Addr()
	n.guide.say("GPRS: it has the private address %v, behind a %v NAT that has %v.", inside, b, b.external)
	b.inside.Store(&inside)
	n.node.Addr(handoffGPRS, lease.Addr.String())
	if err := n.lab.Err(); err != nil {
		return err
	}
	n.client.local, n.client.external, n.client.kind, n.client.nat = inside, b.external, b.kind, b.node
	everybody := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if err := n.node.Know(handoffGPRS, lease.Router, everybody); err != nil {
		return err
	}
	return setRoute((*lab.Kernel).RouteReplace).byDefault(n.node, handoffGPRS, lease.Router.String(), sipUsual)
}

// detach takes the terminal out of the second network. The box keeps its mappings until they end.
func (n *handoffNet) detach(ctx context.Context, b *handoffBox) error {
	var done sgsnrole.Done
	if err := n.gprs.order(ctx, "sgsn", "detach", sgsnrole.Detached{Which: sgsnrole.Which{IMSI: testIMSI, NSAPI: 5}}, &done); err != nil {
		return err
	}
	h := n.node.Kernel()
	link, err := h.LinkByName(handoffGPRS)
	if err != nil {
		return err
	}
	list, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range list {
		err = errors.Join(err, h.AddrDel(link, &a))
	}
	b.inside.Store(nil)
	n.guide.say("GPRS: the terminal is detached.")
	return err
}

// lose takes the first network away, in the middle of whatever is on the air, and says when.
func (n *handoffNet) lose() (at time.Time, err error) {
	at = time.Now()
	n.lost = at
	n.umts.wire.Cut()
	n.node.Down(handoffUMTS)
	n.guide.say("UMTS is lost, with all that is on the air.")
	return at, n.lab.Err()
}

// carrierPause is how soon after one change of a carrier the kernel tells of another.
const carrierPause = 1100 * time.Millisecond

// regain brings it back, and says when.
func (n *handoffNet) regain() (at time.Time, err error) {
	time.Sleep(time.Until(n.lost.Add(carrierPause)))
	n.umts.wire.Restore()
	n.node.Sysctl(handoffDefault, "1")
	at = time.Now()
	n.node.Up(handoffUMTS)
	n.guide.say("UMTS is back, and GPRS works on.")
	return at, n.lab.Err()
}

// handoffDefault says whether a router advertisement brings the default route by the first network.
const handoffDefault = "net.ipv6.conf." + handoffUMTS + ".accept_ra_defrtr"

// unroute takes the default route by the first network away, which works on, and says when. The next router
// advertisement, some seconds behind the first (RFC 4861 section 6.2.4), does not bring it back.
func (n *handoffNet) unroute() (at time.Time, err error) {
	h := n.node.Kernel()
	link, err := h.LinkByName(handoffUMTS)
	if err != nil {
		return at, err
	}
	routes, err := h.RouteListFiltered(unix.AF_INET6, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
	if err != nil {
		return at, err
	}
	for _, r := range routes {
		if isDefault6(r.Dst) || r.Dst == nil {
			n.node.Sysctl(handoffDefault, "0")
			if err := n.lab.Err(); err != nil {
				return at, err
			}
			n.guide.say("The default route by UMTS goes, and UMTS works on.")
			at = time.Now()
			return at, h.RouteDel(&r)
		}
	}
	return at, errors.New("the terminal has no default route by UMTS")
}

// nameOf is who has an address.
func (n *handoffNet) nameOf(a netip.AddrPort) string {
	at := a.Addr()
	switch {
	case at == hostAddr:
		return "host"
	case at == handoffSIP:
		return "sip"
	case a.Port() == dhcpServer:
		return "gprs"
	case a.Port() == dhcpClient || corePool6.Contains(at) || teredo.Prefix.Contains(at) ||
		slices.ContainsFunc(n.boxes, func(b *handoffBox) bool { return b.pool.Contains(at) }):
		return "ue"
	}
	return n.teredoNet.nameOf(a)
}

// closePhones ends the telephones.
func (n *handoffNet) closePhones() error {
	err := errors.Join(n.ue.close(), n.ch.close())
	n.ue, n.ch = nil, nil
	return err
}

// close ends telephones, programs and topology.
func (n *handoffNet) close() error {
	return errors.Join(n.closePhones(), n.teredoNet.Close(), n.theirs.close())
}
