// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// gsns are the addresses of the two nodes, of one family.
type gsns struct{ sgsn, ggsn netip.Addr }

// section is a GGSN's part of the configuration, which its access points are to follow.
func (at gsns) section(state string) string {
	family := 4
	if at.ggsn.Is6() {
		family = 6
	}
	return fmt.Sprintf("[[ggsn]]\ngsn_address%d = %q\npeers = [%q]\nstate_file = %q\n", family, at.ggsn, at.sgsn, state)
}

// Addresses of the mobile core, and what its GGSN has for UEs.
var (
	core4     = gsns{netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("10.9.1.2")}
	core6     = gsns{netip.MustParseAddr("2001:db8:9:1::1"), netip.MustParseAddr("2001:db8:9:1::2")}
	coreGi4   = netip.MustParseAddr("10.9.2.1")
	coreGi6   = netip.MustParseAddr("2001:db8:9:2::1")
	coreSrv4  = netip.MustParseAddr("10.9.2.2")
	coreSrv6  = netip.MustParseAddr("2001:db8:9:2::2")
	corePool4 = netip.MustParsePrefix("10.45.0.0/20")
	corePool6 = netip.MustParsePrefix("2001:db8:6:2000::/52")
	coreDNS4  = netip.MustParseAddr("9.9.9.9")
	coreDNS6  = netip.MustParseAddr("2001:db8::53")
)

// coreNet is a mobile core without its radio: UEs are TUN devices of the SGSN's node.
//
//	sgsn 10.9.1.1 ------- gn ------- 10.9.1.2 ggsn 10.9.2.1 -- gi -- 10.9.2.2 srv
//	     2001:db8:9:1::1      2001:db8:9:1::2      2001:db8:9:2::1   2001:db8:9:2::2
type coreNet struct {
	daemons         *daemons
	lab             *lab.Lab
	sgsn, ggsn, srv *lab.Node
	at              gsns // what the nodes talk to each other by
	dir             string

	// Of our GGSN, the addresses, further keys, of the node and of each access point, and further access points.
	pool4, pool6 netip.Prefix
	more, apn    string
	further      []coreAccess
}

// coreAccess is an access point of our GGSN, with its keys.
type coreAccess struct{ name, keys string }

// drawCore draws the topology.
func drawCore(ctx context.Context, e *lab.Env, name string, at gsns) (_ *coreNet, err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &coreNet{lab: l, sgsn: l.Node("sgsn"), ggsn: l.Node("ggsn"), srv: l.Node("srv"), at: at, pool4: corePool4, pool6: corePool6}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	l.Link(n.sgsn, "gn", n.ggsn, "gn")
	l.Link(n.ggsn, "gi", n.srv, "gi")
	n.sgsn.Addr("gn", core4.sgsn.String()+"/24", core6.sgsn.String()+"/64")
	// Packets from one UE to another come and go by one device.
	n.ggsn.Forward(true, true).Sysctl("net.ipv4.conf.all.send_redirects", "0").Sysctl("net.ipv4.conf.default.send_redirects", "0")
	n.ggsn.Addr("gn", core4.ggsn.String()+"/24", core6.ggsn.String()+"/64").Addr("gi", coreGi4.String()+"/24", coreGi6.String()+"/64")
	n.srv.Addr("gi", coreSrv4.String()+"/24", coreSrv6.String()+"/64").Route("default", coreGi4.String()).Route("default6", coreGi6.String())
	if err := errors.Join(l.Err(), e.Capture(n.ggsn, "gn")); err != nil {
		return n, err
	}
	if n.dir, err = l.TempDir(0o700); err != nil {
		return n, err
	}
	n.daemons = &daemons{env: e, dir: n.dir, ctx: ctx}
	return n, nil
}

// Close ends all that runs and removes the topology.
func (n *coreNet) Close() error { return n.lab.Close() }

// startGGSN starts a GGSN with an APN for each family.
func (n *coreNet) startGGSN(ctx context.Context, who maker) error {
	if who == isthmus {
		i := n.daemons.isthmus(n.ggsn, "ggsn")
		if err := i.configure(n.section()); err != nil {
			return err
		}
		p, err := n.daemons.keep(i.launch(ctx, "isthmus-ggsn"))
		if err != nil {
			return err
		}
		return running(ctx, p)
	}
	c, err := peersOf(n.daemons.env).OsmoGGSN(n.dir, peers.OsmoGGSN{Name: "ggsn", Bind: n.at.ggsn, APNs: []peers.OsmoAPN{
		{Name: coreAPN(false), Device: "tun4", Pool: corePool4, DNS: coreDNS4},
		{Name: coreAPN(true), Device: "tun6", Pool: corePool6, DNS: coreDNS6},
	}})
	p, err := n.daemons.startPeer(ctx, n.ggsn, "osmo-ggsn", c, err)
	if err != nil {
		return err
	}
	return serving(ctx, n.ggsn, p, gtpPort)
}

// section is our GGSN's part of the configuration.
func (n *coreNet) section() string {
	text := n.at.section(filepath.Join(n.dir, "ggsn.state")) + fmt.Sprintf("reversed_tid = [%q]\n", n.at.sgsn) + n.more
	for _, a := range []struct {
		v6   bool
		key  string
		pool netip.Prefix
		dns  netip.Addr
	}{{false, "pool4", n.pool4, coreDNS4}, {true, "pool6", n.pool6, coreDNS6}} {
		text += fmt.Sprintf("[[ggsn.apn]]\nname = %q\n%s = [%q]\ndns = [%q]\n", coreAPN(a.v6), a.key, a.pool, a.dns) + n.apn
	}
	for _, a := range n.further {
		text += fmt.Sprintf("[[ggsn.apn]]\nname = %q\n%s", a.name, a.keys) + n.apn
	}
	return text
}

// gtpPort is that of GTPv1-C, which osmo-ggsn opens last but one of its three.
const gtpPort = 2123

// coreAPN is the access point of a family.
func coreAPN(v6 bool) string {
	if v6 {
		return "inet6"
	}
	return "internet"
}

// attachment says how a UE is attached.
type attachment struct {
	version int  // of GTP
	v6      bool // the PDP type
}

// attachments are all.
var attachments = []attachment{{0, false}, {0, true}, {1, false}, {1, true}}

// String names it for people.
func (a attachment) String() string {
	family := "IPv4"
	if a.v6 {
		family = "IPv6"
	}
	return fmt.Sprintf("GTPv%d, %s", a.version, family)
}

// server is whom the UE talks to.
func (a attachment) server() netip.Addr {
	if a.v6 {
		return coreSrv6
	}
	return coreSrv4
}

// pool is where its address comes from.
func (a attachment) pool() netip.Prefix {
	if a.v6 {
		return corePool6
	}
	return corePool4
}

// mobile is a UE that is attached.
type mobile struct {
	core    *coreNet
	sgsn    maker
	process *lab.Proc
	addr    netip.Addr
}

// testIMSI is the UE's.
const testIMSI = "240010123456789"

// ueDevice is the UE's TUN device in the SGSN's node.
const ueDevice = "ue"

// attach has an emulator of an SGSN attach a UE, and waits until it has its address and route.
// Ours has these flags beside those that it needs.
func (n *coreNet) attach(ctx context.Context, who maker, a attachment, flags ...string) (*mobile, error) {
	p, err := n.startSGSN(ctx, who, a, flags)
	if err != nil {
		return nil, err
	}
	m := &mobile{core: n, sgsn: who, process: p}
	if who == isthmus { // it takes no orders before, though the UE may have its address
		if err := running(ctx, p); err != nil {
			return nil, err
		}
	}
	err = poll(ctx, daemonStart, 5*time.Millisecond, func(context.Context) (bool, error) {
		m.addr = addressOn(n.sgsn, ueDevice, a.pool())
		return m.addr.IsValid(), alive(p.Name(), p)
	})
	if err != nil {
		return nil, fmt.Errorf("the UE got no address of %v: %w; the log of %s ends:\n%s", a.pool(), err, p.Name(), lastLines(p.Log()))
	}
	return m, nil
}

// startSGSN starts an emulator of an SGSN with a UE.
func (n *coreNet) startSGSN(ctx context.Context, who maker, a attachment, flags []string) (*lab.Proc, error) {
	if who == isthmus {
		i := n.daemons.isthmus(n.sgsn, "sgsn")
		family := "v4"
		if a.v6 {
			family = "v6"
		}
		return n.daemons.start(ctx, n.sgsn, i.attaching(n.at, coreAPN(a.v6), family, append([]string{"--gtp", strconv.Itoa(a.version)}, flags...)...))
	}
	c, err := peersOf(n.daemons.env).Sgsnemu(n.dir, peers.Sgsnemu{
		Name: "sgsnemu", Listen: n.at.sgsn, Remote: n.at.ggsn, APN: coreAPN(a.v6), IPv6: a.v6, GTPVersion: a.version, Device: ueDevice,
	})
	return n.daemons.startPeer(ctx, n.sgsn, "sgsnemu", c, err)
}

// attaching is our emulator of an SGSN, with a UE.
func (i instance) attaching(at gsns, apn, family string, more ...string) lab.Process {
	return lab.Process{Name: "isthmus-sgsn", Path: i.binary, Args: append([]string{
		"sgsn", "attach", "--local", at.sgsn.String(), "--ggsn", at.ggsn.String(), "--apn", apn, "--type", family,
		"--imsi", "240010123456789", "--tun", ueDevice, "--socket", i.socket(),
		"--state-file", filepath.Join(i.dir, i.name+".state"),
	}, more...)}
}

// addressOn is the address of a device, of a pool, once the default route leads by it; not valid before.
func addressOn(node *lab.Node, device string, pool netip.Prefix) (addr netip.Addr) {
	handle, family := node.Kernel(), unix.AF_INET
	if pool.Addr().Is6() {
		family = unix.AF_INET6
	}
	link, err := handle.LinkByName(device)
	if err != nil {
		return addr
	}
	addresses, err := handle.AddrList(link, family)
	if err != nil {
		return addr
	}
	routes, err := handle.RouteListFiltered(family, &netlink.Route{LinkIndex: link.Attrs().Index, Dst: nil}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
	if err != nil || len(routes) == 0 {
		return addr
	}
	for _, one := range addresses {
		if got, _ := netip.AddrFromSlice(one.IP); pool.Contains(got.Unmap()) && one.Flags&unix.IFA_F_TENTATIVE == 0 {
			addr = got.Unmap()
		}
	}
	return addr
}

// detach ends the context, and then the emulator.
func (m *mobile) detach(ctx context.Context) error {
	if err := m.process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	said := `delete PDP context response\. Cause value: 128`
	if m.sgsn == isthmus {
		said = `msg=ended .*cause="?request accepted"? .*reason=detached`
	}
	_, err := m.process.WaitFor(wait, said)
	if m.sgsn != isthmus {
		_ = m.process.Signal(unix.SIGKILL) // it would stay for 20 s
	}
	<-m.process.Done()
	m.core.daemons.forget(m.process)
	return err
}
