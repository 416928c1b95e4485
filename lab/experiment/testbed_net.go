// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/dot1x"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Addresses of the testbed.
var (
	testbedGi         = netip.MustParseAddr("2001:db8:9:3::1") // of the GGSN
	testbedRADIUS     = netip.MustParseAddrPort("[2001:db8:9:3::2]:1812")
	testbedRouter     = netip.MustParseAddr("2001:db8:9:3::4")
	testbedAccounting = netip.AddrPortFrom(testbedRADIUS.Addr(), 1813)
	testbedMedia      = netip.MustParseAddr("2001:db8:9:3::5")
	testbedLAN        = netip.MustParsePrefix("2001:db8:9:4::/64") // of the WLAN
)

// Names of the testbed: of who is authenticated, and by what.
const (
	testbedSecret   = "xyzzy5461" // between the RADIUS server and who asks it
	testbedPassword = "arctangent"
	testbedOther    = "240010123456780"
	testbedWLAN     = "wlan" // the terminal's interface, and the access router's
)

// testbedPrograms are what the testbed cannot do without.
var testbedPrograms = []string{"nft", "freeradius", "hostapd", "wpa_supplicant", "radvd"}

// testbedWorld are the radios, in the order of cutLinks, and the round trips that the study gives for them, in ms.
type testbedWorld struct {
	radios [2]lab.WireConfig
	trips  [2]float64
}

// Worlds: as the study has measured its radios by ping; as it states them; and the first one without the jitter of UMTS.
func testbedMeasured() testbedWorld {
	return testbedWorld{[2]lab.WireConfig{lab.WLAN(), lab.UMTS()}, [2]float64{1.019, 207.94}}
}

func testbedStated() testbedWorld {
	return testbedWorld{[2]lab.WireConfig{steady(lab.WLAN(), 5*time.Millisecond), steady(lab.UMTS(), 90*time.Millisecond)}, [2]float64{10, 180}}
}

func testbedMean() testbedWorld {
	w := testbedMeasured()
	w.radios[1] = umtsWithoutJitter()
	return w
}

// steady is a radio with that delay each way, and no jitter.
func steady(w lab.WireConfig, delay time.Duration) lab.WireConfig {
	for _, lane := range []*lab.LaneConfig{&w.AtoB, &w.BtoA} {
		lane.Delay, lane.Jitter = delay, 0
	}
	return w
}

// losing is a world whose radios lose packets.
func (w testbedWorld) losing(loss float64) testbedWorld {
	for i := range w.radios {
		w.radios[i].AtoB.Loss, w.radios[i].BtoA.Loss = loss, loss
	}
	return w
}

// testbedNet is figure 1 of the study (Bokor, Huszák and Jeney, 2010). Tildes are wires, each of them a radio:
//
//	                   Gn: IPv4              Gi: IPv6, 2001:db8:9:3::/64
//	   +~~ umts ~~ sgsn-umts ---- ggsn-umts ----+-----------+----------+
//	+----+                                  ::1 |       ::2 |      ::5 |
//	| ue |                                      |        radius      media
//	+----+                                  ::4 |
//	   +~~ wlan ~~~~~~~~~~~~~~~~~~~~~~ router --+
//	       2001:db8:9:4::/64
//
// The router's port to the WLAN is closed until the terminal has proved who it is by EAP-TLS; the GGSN's access point
// asks the same RADIUS server. The media server has one address. The terminal sends by the interface that has the
// source address, and prefers the WLAN.
type testbedNet struct {
	testbedWorld
	lab                             *lab.Lab
	daemons                         *daemons
	ue, ggsn, router, radius, media *lab.Node
	umts                            *handoffAccess
	wlan                            *lab.Wire
	server                          *lab.Proc // of RADIUS
	certs                           *dot1x.Certificates
	port                            *dot1x.Port
	supplicant                      *dot1x.Supplicant
	mac                             string        // of the terminal's WLAN card
	addresses                       [2]netip.Addr // of the terminal, in the order of cutLinks
	times                           testbedTimes
}

// testbedTimes are how long the terminal took to come in.
type testbedTimes struct {
	context time.Duration // from the order to the context and its address
	eap     time.Duration // from the association to the open port
	address time.Duration // from there to the address of the WLAN, which is duplicate address detection most of all
}

// drawTestbed draws the testbed, starts all of it, and has the terminal come in by both networks.
func drawTestbed(ctx context.Context, e *lab.Env, name string, w testbedWorld) (_ *testbedNet, err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &testbedNet{testbedWorld: w, lab: l, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	n.draw()
	if err := l.Err(); err != nil {
		return nil, err
	}
	for _, x := range []tap{{n.ue, handoffUMTS}, {n.ue, testbedWLAN}, {n.media, "gi"}} {
		if err := errors.Join(x.node.DisableOffloads(x.iface), e.Capture(x.node, x.iface)); err != nil {
			return nil, err
		}
	}
	// Packets that the GGSN hands over together are one to a cable, and to a capture.
	if err := errors.Join(n.ggsn.DisableOffloads("gi"), n.start(ctx)); err != nil {
		return nil, err
	}
	_, err = together(2, func(i int) (struct{}, error) {
		return struct{}{}, []func(context.Context) error{n.joinWLAN, n.joinUMTS}[i](ctx)
	})
	if err != nil {
		return nil, err
	}
	return n, n.routeBySource()
}

// draw draws nodes and links.
func (n *testbedNet) draw() {
	l := n.lab
	n.ue, n.ggsn, n.router, n.radius, n.media = l.Node("ue"), l.Node("ggsn-umts"), l.Node("router"), l.Node("radius"), l.Node("media")
	n.umts = drawAccess(n.daemons, n.ue, handoffUMTS, n.radios[1])
	n.wlan, _ = l.Wire(n.ue, testbedWLAN, n.router, testbedWLAN, n.radios[0]) // the lab keeps the error
	l.Link(n.umts.sgsn, "gn", n.ggsn, "gn")
	n.umts.sgsn.Addr("gn", core4.sgsn.String()+"/24")
	n.ggsn.Forward(false, true).Addr("gn", core4.ggsn.String()+"/24")
	n.router.Forward(false, true).Addr(testbedWLAN, testbedLAN.Addr().Next().String()+"/64", "fe80::1/64")
	gi := l.Bridge("gi")
	for node, at := range map[*lab.Node]netip.Addr{n.ggsn: testbedGi, n.router: testbedRouter, n.radius: testbedRADIUS.Addr(), n.media: testbedMedia} {
		l.Link(node, "gi", gi, "")
		node.Addr("gi", at.String()+"/64")
		if node != n.ggsn {
			node.Route(corePool6.String(), testbedGi.String())
		}
		if node != n.router {
			node.Route(testbedLAN.String(), testbedRouter.String())
		}
	}
	// Routers are solicited until one answers (RFC 7559). Addresses of the WLAN are shared with others, and tried (RFC
	// 4862 section 5.4); a context has its own prefix. A network that is left is no way for others either.
	for _, link := range cutLinks {
		n.ue.Sysctl("net.ipv6.conf."+link+".router_solicitations", "-1").Sysctl("net.ipv6.conf."+link+".ignore_routes_with_linkdown", "1")
	}
	n.ue.Sysctl("net.ipv6.conf."+testbedWLAN+".accept_dad", "1").Sysctl("net.ipv6.conf."+testbedWLAN+".dad_transmits", "1")
	n.ue.Sysctl("net.ipv6.conf."+handoffUMTS+".ra_defrtr_metric", "2048")
}

// start starts all programs.
func (n *testbedNet) start(ctx context.Context) (err error) {
	d := n.daemons
	if n.certs, err = dot1x.MakeCertificates(d.dir); err != nil {
		return err
	}
	command, err := peersOf(d.env).FreeRADIUS(d.dir, peers.FreeRADIUS{
		Name: "radius", Listen: testbedRADIUS, Client: testbedGi, Others: []netip.Addr{testbedRouter}, Secret: testbedSecret, Detail: n.detail(),
		Users: fmt.Sprintf("%s Cleartext-Password := %q\n", dot1x.Valid.Identity(), testbedPassword),
		TLS:   &peers.RADIUSTLS{CA: n.certs.Trust, Certificate: n.certs.Server.Certificate, Key: n.certs.Server.Key},
	})
	if n.server, err = d.startPeer(ctx, n.radius, "freeradius", command, err); err != nil {
		return err
	}
	secret := filepath.Join(d.dir, "radius.secret")
	if err := os.WriteFile(secret, []byte(testbedSecret+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(n.subscribers(), []byte(testbedSubscribers), 0o600); err != nil {
		return err
	}
	var waiting []*lab.Proc
	for _, p := range []struct {
		instance
		sections string
	}{
		{d.isthmus(n.ggsn, "ggsn"), core4.section(filepath.Join(d.dir, "umts.state")) +
			fmt.Sprintf("subscribers_file = %q\naccounting_file = %q\ncharging_file = %q\n", n.subscribers(), filepath.Join(d.dir, "accounting"), n.charging()) +
			fmt.Sprintf("[[ggsn.radius]]\naddress = %q\nuse = \"both\"\nsecret_file = %q\n", testbedRADIUS.Addr(), secret) +
			fmt.Sprintf("[[ggsn.apn]]\nname = %q\npool6 = [%q]\nauthenticate = \"radius\"\naccounting = \"radius\"\n", coreAPN(true), corePool6)},
		{n.umts.instance, sgsnSection(core4.sgsn)},
		{d.isthmus(n.media, "media"), mediaSection},
	} {
		one, err := d.keep(p.run(ctx, p.sections))
		if err != nil {
			return err
		}
		waiting = append(waiting, one)
	}
	command, err = peersOf(d.env).Radvd(d.dir, peers.RouterDaemon{Name: "radvd", Links: map[string]netip.Prefix{testbedWLAN: testbedLAN}, Lifetime: time.Hour})
	if _, err := d.startPeer(ctx, n.router, "radvd", command, err); err != nil {
		return err
	}
	for _, p := range waiting {
		if err := running(ctx, p); err != nil {
			return err
		}
	}
	wait, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	if _, err := n.server.WaitFor(wait, "Ready to process requests"); err != nil {
		return err
	}
	n.port, err = dot1x.Guard(ctx, n.router, peersOf(d.env), d.dir, peers.Hostapd{
		Name: "router", Interface: testbedWLAN, Server: testbedRADIUS, Accounting: testbedAccounting, Secret: testbedSecret,
	})
	return err
}

// Files of accounts, and of whom they are.
func (n *testbedNet) detail() string      { return filepath.Join(n.daemons.dir, "radius.detail") }
func (n *testbedNet) charging() string    { return filepath.Join(n.daemons.dir, "charging.jsonl") }
func (n *testbedNet) subscribers() string { return filepath.Join(n.daemons.dir, "subscribers.toml") }

// testbedSubscribers are the terminal, which UMTS knows by its IMSI and the WLAN by the name in its certificate, and one
// who has no password.
var testbedSubscribers = fmt.Sprintf("[[subscriber]]\nimsi = %q\nprivate_id = %q\npassword = %q\n[[subscriber]]\nimsi = %q\n",
	testIMSI, dot1x.Valid.Identity(), testbedPassword, testbedOther)

// mediaSection is the media server: a voice, and what goes as fast as it can.
const mediaSection = `[[sctp_media]]
name = "media"
root = ""
heartbeat_interval = "10s"
[[sctp_media.source]]
name = "voice"
rate = 50
size = 160
octets = 100000000
[[sctp_media.source]]
name = "fast"
size = 1200
octets = 1000000000
`

// joinWLAN has the terminal prove who it is, and get its address.
func (n *testbedNet) joinWLAN(ctx context.Context) (err error) {
	link, err := n.ue.Kernel().LinkByName(testbedWLAN)
	if err != nil {
		return err
	}
	n.mac = link.Attrs().HardwareAddr.String()
	if n.supplicant, err = n.certs.Start(ctx, n.ue, peersOf(n.daemons.env), n.daemons.dir, testbedWLAN, n.port, dot1x.Valid); err != nil {
		return err
	}
	if n.times.eap, err = n.associate(ctx); err != nil {
		return err
	}
	begin := time.Now()
	n.addresses[0], err = n.awaitAddress(ctx, testbedWLAN, testbedLAN)
	n.times.address = time.Since(begin)
	return err
}

// associate has the access router notice the terminal, and returns how long that took to prove who it is.
func (n *testbedNet) associate(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	if err := n.port.Associate(n.mac); err != nil {
		return 0, err
	}
	err := n.awaitProved(ctx)
	return n.supplicant.Proved().Sub(begin), err
}

// awaitProved waits until the terminal has proved who it is, and its link works.
func (n *testbedNet) awaitProved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	if _, err := n.port.AwaitOpen(ctx); err != nil {
		return err
	}
	return poll(ctx, daemonStart, time.Millisecond, func(context.Context) (bool, error) { return !n.supplicant.Proved().IsZero(), nil })
}

// joinUMTS opens a context for the terminal, once RADIUS lets it in.
func (n *testbedNet) joinUMTS(ctx context.Context) (err error) {
	begin := time.Now()
	if err := n.umts.openAs(ctx, core4.ggsn, true, dot1x.Valid.Identity(), testbedPassword); err != nil {
		return err
	}
	n.addresses[1], err = n.awaitAddress(ctx, handoffUMTS, corePool6)
	n.times.context = time.Since(begin)
	return err
}

func (n *testbedNet) awaitAddress(ctx context.Context, link string, of netip.Prefix) (at netip.Addr, err error) {
	err = poll(ctx, daemonStart, 5*time.Millisecond, func(context.Context) (bool, error) {
		at = addressOn(n.ue, link, of)
		return at.IsValid(), nil
	})
	if err != nil {
		err = fmt.Errorf("the terminal has no address by %s: %w", link, err)
	}
	return at, err
}

// routeBySource has the terminal send by the interface whose address a packet comes from. At the far end of both is the
// router fe80::1.
func (n *testbedNet) routeBySource() error {
	for i, link := range cutLinks {
		if err := routeFrom(n.ue, link, []netip.Prefix{testbedLAN, corePool6}[i], netip.MustParseAddr("fe80::1"), 101+i); err != nil {
			return err
		}
	}
	return nil
}

// routeFrom has a node send what comes from addresses by a gateway of a link, by a table of its own.
func routeFrom(node *lab.Node, link string, from netip.Prefix, gateway netip.Addr, table int) (err error) {
	device, err := node.Kernel().LinkByName(link)
	if err != nil {
		return err
	}
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = unix.AF_INET6, table, table
	if rule.Src, err = netlink.ParseIPNet(from.String()); err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: device.Attrs().Index, Gw: gateway.AsSlice(), Table: table}
	return errors.Join(node.Kernel().RuleAdd(rule), node.Kernel().RouteAdd(route))
}

// close ends all of it. A program that had ended by itself is an error.
func (n *testbedNet) close() error { return errors.Join(n.daemons.healthy(), n.lab.Close()) }
