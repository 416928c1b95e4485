// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// twice is a node with two VRFs, behind each of which a server has the same addresses:
//
//	               +- red  10.9.9.1 -- 10.9.9.9
//	sgsn -- gn ggsn
//	               +- blue 10.9.9.1 -- 10.9.9.9
type twice struct {
	ns            *testutil.Netns
	far           map[string]*testutil.Netns // by VRF
	user, control *net.UDPConn               // of the SGSN
	codec         gtp.Codec
	seq           uint16
}

var (
	side    = map[bool]netip.Addr{false: netip.MustParseAddr("10.9.9.1"), true: netip.MustParseAddr("2001:db8:b::1")}
	servers = map[bool]netip.Addr{false: netip.MustParseAddr("10.9.9.9"), true: netip.MustParseAddr("2001:db8:b::9")}
	tables  = map[string]uint32{"red": 100, "blue": 101}
)

// twoVRFs are two access points whose terminals have the same addresses, and one in no VRF.
const twoVRFs = `name = "red"
vrf = "red"
pool4 = ["10.45.0.9"]
pool6 = ["2001:db8:6000::/64"]
[[ggsn.apn]]
name = "blue"
vrf = "blue"
pool4 = ["10.45.0.9"]
pool6 = ["2001:db8:6000::/64"]
[[ggsn.apn]]
name = "main"
pool4 = ["10.46.0.0/16"]`

func newTwice(t *testing.T) *twice {
	t.Helper()
	w := &twice{ns: testutil.NewNetns(t), far: map[string]*testutil.Netns{}}
	for name, table := range tables {
		w.ns.AddVRF(t, name, table)
	}
	join := func(link, vrf string, far *testutil.Netns, here, there map[bool]netip.Addr) {
		w.ns.Do(t, func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: "far", PeerNamespace: netlink.NsFd(far.Handle())}
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
			if vrf != "" {
				v, err := netlink.LinkByName(vrf)
				if err != nil || netlink.LinkSetMaster(veth, v) != nil {
					return errors.Join(err, errors.New("not in the VRF"))
				}
			}
			return errors.Join(address(link, here), forward())
		})
		far.Do(t, func() error { return address("far", there) })
		far.AwaitLinks(t, "far")
	}
	sgsn := testutil.NewNetns(t)
	join("gn", "", sgsn, nodeAddr, sgsnAddr)
	for name := range tables {
		far := testutil.NewNetns(t)
		w.far[name] = far
		join("to-"+name, name, far, side, servers)
		far.Do(t, func() error {
			var errs []error
			for _, via := range side {
				zero := &net.IPNet{IP: make(net.IP, via.BitLen()/8), Mask: net.CIDRMask(0, via.BitLen())}
				errs = append(errs, netlink.RouteAdd(&netlink.Route{Dst: zero, Gw: via.AsSlice()}))
			}
			return errors.Join(errs...)
		})
		answer(t, far, name)
	}
	listen := func(port uint16) (conn *net.UDPConn) {
		sgsn.Do(t, func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(sgsnAddr[false], port)))
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	w.user, w.control = listen(gtp.PortUser), listen(gtp.PortControl)
	return w
}

// answer has a server say its name to whoever asks.
func answer(t *testing.T, ns *testutil.Netns, name string) {
	t.Helper()
	ns.Do(t, func() error {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 7})
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			for buf := make([]byte, 2048); ; {
				_, from, err := conn.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort([]byte(name), from)
			}
		}()
		return nil
	})
}

// open makes a context of an access point.
func (w *twice) open(t *testing.T, n int, apn string) (r gtp.CreateResponse) {
	t.Helper()
	m := request(n, sgsnAddr[false], gtp.PDPTypeIPv4v6)
	name, err := gtp.ParseAPN(apn)
	if err != nil {
		t.Fatal(err)
	}
	w.seq++
	m.APN = gtp.Some(name)
	b, err := w.codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: w.seq}, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.control.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortControl)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	_ = w.control.SetReadDeadline(time.Now().Add(testutil.Patience))
	k, err := w.control.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	h, err := gtp.ParseHeader(buf[:k])
	if err == nil {
		_, err = w.codec.Parse(&h, &r)
	}
	if err != nil || !r.Cause.Accepted() {
		t.Fatalf("%s: %v %v", apn, r.Cause, err)
	}
	return r
}

// carry sends a packet of a terminal, again while links settle, and returns the first one for it
// that fits.
func (w *twice) carry(t *testing.T, r *gtp.CreateResponse, ip []byte, teid uint32, fits func([]byte) bool) []byte {
	t.Helper()
	b, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, ip)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	var next time.Time
	for end := time.Now().Add(testutil.Patience); ; {
		if !time.Now().Before(next) {
			if _, err := w.user.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
				t.Fatal(err)
			}
			next = time.Now().Add(200 * time.Millisecond)
			_ = w.user.SetReadDeadline(next)
		}
		k, err := w.user.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if h, err := gtp.ParseHeader(buf[:k]); err == nil && h.Type == gtp.TypeGPDU && h.TEID == teid && fits(h.Payload) {
			return h.Payload
		}
	}
}

// reaches fails unless a terminal reaches the server of its VRF by both families.
func (w *twice) reaches(t *testing.T, n int, r *gtp.CreateResponse, name string) {
	t.Helper()
	teid := 0x1000 + uint32(n)
	ask := udp(r.EndUserAddress.Value.IPv4, servers[false], 64, 4)
	binary.BigEndian.PutUint16(ask[20:], 5000)
	binary.BigEndian.PutUint16(ask[22:], 7)
	got := w.carry(t, r, ask, teid, func(p []byte) bool { return p[0]>>4 == 4 && p[9] == packet.ProtoUDP })
	if said := string(got[28:]); said != name {
		t.Errorf("the terminal of %s reached the server of %q", name, said)
	}
	ping := packet.AppendICMPv6(nil, r.EndUserAddress.Value.IPv6, servers[true], 64, 128, 0, []byte{0, 1, 0, 2})
	w.carry(t, r, ping, teid, func(p []byte) bool { return p[0]>>4 == 6 && p[6] == packet.ProtoICMPv6 && p[40] == 129 })
}

// refused fails unless a terminal is told that nothing leads to an address, by the VRF's own table.
func (w *twice) refused(t *testing.T, n int, r *gtp.CreateResponse, to map[bool]netip.Addr) {
	t.Helper()
	teid := 0x1000 + uint32(n)
	w.carry(t, r, udp(r.EndUserAddress.Value.IPv4, to[false], 64, 4), teid, func(p []byte) bool { return p[0]>>4 == 4 && p[9] == packet.ProtoICMPv4 && p[20] == 3 })
	ping := packet.AppendICMPv6(nil, r.EndUserAddress.Value.IPv6, to[true], 64, 128, 0, []byte{0, 1, 0, 2})
	w.carry(t, r, ping, teid, func(p []byte) bool { return p[0]>>4 == 6 && p[6] == packet.ProtoICMPv6 && p[40] == 1 })
}

// TestVRFs: terminals of two VRFs have the same addresses, and each reaches what has the same
// address as another in the other VRF, but nothing outside; what somebody takes away comes back;
// another process goes on with the contexts of each; and nothing stays behind.
func TestVRFs(t *testing.T) {
	configtest.InEffect(t, "ggsn.apn", "vrf")
	w := newTwice(t)
	node := fmt.Sprintf("peers = [\"192.0.2.7\", \"10.45.0.0/16\"]\nannounce = true\nstate_file = %q", filepath.Join(t.TempDir(), "state"))
	g, stop := started(t, w.ns, written(t, node, twoVRFs))
	red, blue := w.open(t, 1, "red"), w.open(t, 2, "blue")
	check := func(when string) {
		t.Helper()
		t.Log(when)
		w.reaches(t, 1, &red, "red")
		w.reaches(t, 2, &blue, "blue")
	}
	check("at first")
	if got := g.AnnouncedPrefixes(); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("10.46.0.0/16")}) {
		t.Errorf("announced are %v", got)
	}
	w.refused(t, 1, &red, sgsnAddr)
	st := g.Status().(Status)
	if st.Address4 != nodeAddr[false] || st.Address6 != nodeAddr[true] {
		t.Errorf("ICMP errors outside of VRFs come from %s and %s", st.Address4, st.Address6)
	}
	if !maps.Equal(st.VRFs, map[string]string{"ggsn-red": "red", "ggsn-blue": "blue"}) || st.State != "serving" || len(w.tables(t, "ggsn-red")) != 2 {
		t.Errorf("status %+v", st)
	}
	w.ns.Do(t, func() error {
		l, err := netlink.LinkByName("ggsn-red")
		return errors.Join(err, netlink.LinkSetNoMaster(l))
	})
	await(t, func() bool { return slices.Equal(w.tables(t, "ggsn-red"), []int{100, 100}) })
	check("somebody has taken a device out")
	next := written(t, node, strings.Replace(twoVRFs, "pool4 = [\"10.45.0.9\"]", "pool4 = [\"10.47.0.0/16\"]", 1))
	if err := reloaded(t, w.ns, g, next); err != nil {
		t.Fatal(err)
	}
	check("another pool in one of them")
	elsewhere := strings.Replace(twoVRFs, "vrf = \"red\"", "vrf = \"green\"\ninterface = \"ggsn-red\"", 1)
	if err := reloaded(t, w.ns, g, written(t, node, elsewhere)); err == nil || !strings.Contains(err.Error(), "changes its VRF") {
		t.Errorf("a device leaves its VRF by a reload: %v", err)
	}
	stop()
	g, stop = started(t, w.ns, next)
	if check("another process"); g.Status().(Status).Adopted != 2 {
		t.Errorf("status %+v", g.Status())
	}
	stop()
	w.ns.Do(t, func() error {
		for _, device := range []string{"ggsn-red", "ggsn-blue"} {
			if _, err := netlink.LinkByName(device); err == nil {
				t.Errorf("%s stays", device)
			}
		}
		return nil
	})
}

// TestVRFHasAddressesOfTheHost: where others in a VRF have addresses that this host has outside of it, who is
// found there is up to the order of the host's policy rules, of which a warning says how it is to be.
func TestVRFHasAddressesOfTheHost(t *testing.T) {
	w := newTwice(t)
	twin := &net.IPNet{IP: net.IPv4(203, 0, 113, 7).To4(), Mask: net.CIDRMask(32, 32)}
	add := func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, &netlink.Addr{IPNet: twin}))
	}
	w.far["red"].Do(t, add)
	w.ns.Do(t, func() error {
		way := &netlink.Route{Dst: twin, Gw: servers[false].AsSlice(), Table: int(tables["red"])}
		return errors.Join(add(), netlink.RouteAdd(way))
	})
	cfg := written(t, fmt.Sprintf("peers = [\"192.0.2.7\"]\nstate_file = %q", filepath.Join(t.TempDir(), "state")), twoVRFs)
	_, stop := started(t, w.ns, cfg)
	defer stop()
	red := w.open(t, 1, "red")
	ask := udp(red.EndUserAddress.Value.IPv4, netip.MustParseAddr("203.0.113.7"), 64, 4)
	binary.BigEndian.PutUint16(ask[20:], 5000)
	binary.BigEndian.PutUint16(ask[22:], 7)
	answered := func(protocol byte, warnings int) []byte {
		t.Helper()
		w.ns.Do(t, func() error {
			if list := cfg.exposed(); len(list) != warnings {
				t.Errorf("warnings %q, want %d", list, warnings)
			}
			return nil
		})
		return w.carry(t, &red, ask, 0x1001, func(p []byte) bool { return p[0]>>4 == 4 && p[9] == protocol })
	}
	if p := answered(packet.ProtoICMPv4, 1); p[20] != 3 { // of the host, where nothing listens
		t.Errorf("the answer is % x", p)
	}
	w.ns.Do(t, localLast)
	if p := answered(packet.ProtoUDP, 0); string(p[28:]) != "red" {
		t.Errorf("the answer is % x", p)
	}
	w.reaches(t, 1, &red, "red")
}

// TestVRFHostsAreNoSGSNs: who is in a VRF and has the address of an SGSN speaks to the node by a setting of the
// host alone, with which the node does not start.
func TestVRFHostsAreNoSGSNs(t *testing.T) {
	w := newTwice(t)
	cfg := written(t, fmt.Sprintf("peers = [\"192.0.2.7\"]\nstate_file = %q", filepath.Join(t.TempDir(), "state")), twoVRFs)
	_, stop := started(t, w.ns, cfg)
	defer stop()
	var forger *net.UDPConn
	w.far["red"].Do(t, func() (err error) {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		is := &net.IPNet{IP: sgsnAddr[false].AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: is}); err != nil {
			return err
		}
		forger, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(sgsnAddr[false], gtp.PortControl)))
		return err
	})
	defer forger.Close()
	// The answers of both go to the SGSN.
	echo := func(conn *net.UDPConn, sequence uint16) {
		t.Helper()
		b, err := w.codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: sequence}, &gtp.EchoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortControl)); err != nil {
			t.Fatal(err)
		}
	}
	answered := func() uint16 {
		t.Helper()
		buf := make([]byte, 2048)
		_ = w.control.SetReadDeadline(time.Now().Add(testutil.Patience))
		for {
			k, err := w.control.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if h, err := gtp.ParseHeader(buf[:k]); err == nil && h.Type == gtp.TypeEchoResponse {
				return h.Sequence
			}
		}
	}
	accept := func(what string) {
		w.ns.Do(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/udp_l3mdev_accept", []byte(what), 0) })
	}
	accept("0")
	echo(forger, 100)
	echo(w.control, 200)
	if of := answered(); of != 200 {
		t.Errorf("the first answer is that of %d", of)
	}
	accept("1")
	echo(forger, 101)
	for answered() != 101 { // what the setting is refused for
	}
	w.ns.Do(t, func() error {
		if err := examine(&cfg); err == nil || !strings.Contains(err.Error(), "run sysctl -w net.ipv4.udp_l3mdev_accept=0") {
			t.Errorf("the check says %v", err)
		}
		return nil
	})
}

// localLast has the addresses of this host looked up behind the tables of VRFs.
func localLast() error {
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		first, last := netlink.NewRule(), netlink.NewRule()
		first.Family, first.Table, first.Priority = family, unix.RT_TABLE_LOCAL, 0
		last.Family, last.Table, last.Priority = family, unix.RT_TABLE_LOCAL, 32765
		errs = append(errs, netlink.RuleAdd(last), netlink.RuleDel(first))
	}
	return errors.Join(errs...)
}

// TestVRFIsLeft: an access point that is in no VRF any more has its device outside, where an earlier process has
// left that inside.
func TestVRFIsLeft(t *testing.T) {
	ns := hostOf(t)
	ns.AddVRF(t, "red", 100)
	node := fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state"))
	g, err := New(written(t, node, "interface = \"gi\"\nvrf = \"red\""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := roletest.Start(t, ns, g).Leave(); err != nil {
		t.Fatal(err)
	}
	inside := func(want bool) {
		t.Helper()
		ns.Do(t, func() error {
			l, err := netlink.LinkByName("gi")
			if err == nil && (l.Attrs().MasterIndex != 0) != want {
				t.Errorf("in the VRF: %t", !want)
			}
			return err
		})
	}
	inside(true)
	outside := written(t, node, "interface = \"gi\"")
	_, stop := started(t, ns, outside)
	inside(false)
	stop()
	if g, err = New(outside, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	running := roletest.Start(t, ns, g)
	ns.Do(t, func() error { // what the operator does himself stays
		gi, err := netlink.LinkByName("gi")
		if err != nil {
			return err
		}
		red, err := netlink.LinkByName("red")
		return errors.Join(err, netlink.LinkSetMaster(gi, red))
	})
	if err := reloaded(t, ns, g, written(t, node, "interface = \"gi\"\nsession_limit = \"1h\"")); err != nil {
		t.Error(err)
	}
	inside(true)
	if err := running.Leave(); err != nil {
		t.Fatal(err)
	}
	_, stop = started(t, ns, outside)
	defer stop()
	inside(true)
}

// TestVRFCleaned: what a node that was killed has left in the tables of its VRFs is removed, and nothing while one runs.
func TestVRFCleaned(t *testing.T) {
	c := newCore(t, "", "vrf = \"red\"\npool4 = [\"10.45.0.0/16\"]\n[[ggsn.apn]]\nname = \"blue\"\nvrf = \"blue\"\npool4 = [\"10.45.0.0/16\"]")
	for name, table := range tables {
		c.ns.AddVRF(t, name, table)
	}
	clean := func(when string, removed, inUse int) {
		t.Helper()
		c.ns.Do(t, func() error {
			code, out := program.Call(t, "clean")
			if code != 0 || strings.Count(out, "removed: refusal of ") != removed || strings.Count(out, "in use: refusal of ") != inUse {
				t.Errorf("%s, isthmus clean: %d\n%s", when, code, out)
			}
			return nil
		})
	}
	p := c.serve(t)
	clean("while it runs", 0, 4)
	c.manager.End(t, p, syscall.SIGKILL)
	clean("killed", 4, 0)
	clean("once more", 0, 0)
}

// tables are those that have routes by a device.
func (w *twice) tables(t *testing.T, device string) (list []int) {
	t.Helper()
	w.ns.Do(t, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: port.RouteProtocol}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		for _, r := range routes {
			list = append(list, r.Table)
		}
		slices.Sort(list)
		return err
	})
	return list
}

// TestVRFMissing says in words that a VRF is not there, before and at the start.
func TestVRFMissing(t *testing.T) {
	ns := hostOf(t)
	cfg := written(t, fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state")), "vrf = \"red\"")
	g, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() error {
		for what, err := range map[string]error{"check": examine(&cfg), "run": g.Run(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "there is no VRF red") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := netlink.LinkByName("ggsn-red"); err == nil {
			t.Error("the device stays")
		}
		return nil
	})
}
