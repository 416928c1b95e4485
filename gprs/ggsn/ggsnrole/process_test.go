// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// core is a node as a process, with an SGSN of plain sockets beside it:
//
//	ggsn 192.0.2.1, 2001:db8:9::1 -- gn -- 192.0.2.7, 2001:db8:9::7 sgsn
type core struct {
	ns      *testutil.Netns
	sgsn    *testutil.Netns
	manager program.Manager
	notify  string
	dir     string
	path    string // of the configuration
	socket  string // of the control
	codec   gtp.Codec
	seq     uint16
	control map[bool]*net.UDPConn // of the SGSN, by whether it is of IPv6
	user    *net.UDPConn
}

var (
	nodeAddr = map[bool]netip.Addr{false: netip.MustParseAddr("192.0.2.1"), true: netip.MustParseAddr("2001:db8:9::1")}
	sgsnAddr = map[bool]netip.Addr{false: netip.MustParseAddr("192.0.2.7"), true: netip.MustParseAddr("2001:db8:9::7")}
)

func newCore(t *testing.T, node, apn string) *core {
	t.Helper()
	testutil.NeedRoot(t)
	c := &core{ns: testutil.NewNetns(t), dir: t.TempDir(), control: map[bool]*net.UDPConn{}}
	c.manager, c.notify = program.NewManager(t)
	c.socket = filepath.Join(c.dir, "control")
	sgsn := testutil.NewNetns(t)
	c.sgsn = sgsn
	c.ns.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "gn"}, PeerName: "gn", PeerNamespace: netlink.NsFd(sgsn.Handle())}
		return errors.Join(netlink.LinkAdd(veth), address("gn", nodeAddr), forward())
	})
	sgsn.Do(t, func() error {
		pools := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}, Gw: nodeAddr[false].AsSlice()}
		return errors.Join(address("gn", sgsnAddr), netlink.RouteAdd(pools))
	})
	c.ns.AwaitLinks(t, "gn")
	sgsn.AwaitLinks(t, "gn")
	listen := func(at netip.AddrPort) (conn *net.UDPConn) {
		sgsn.Do(t, func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for v6, a := range sgsnAddr {
		c.control[v6] = listen(netip.AddrPortFrom(a, gtp.PortControl))
	}
	c.user = listen(netip.AddrPortFrom(sgsnAddr[false], gtp.PortUser))
	c.write(t, node, apn)
	return c
}

// address gives a link its addresses.
func address(link string, list map[bool]netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	for _, a := range list {
		bits := 24 + a.BitLen()/128*40 // a /24, or a /64
		one := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}
		err = errors.Join(err, netlink.AddrAdd(l, one))
	}
	return errors.Join(err, netlink.LinkSetUp(l))
}

// forward has the namespace route.
func forward() error {
	return errors.Join(
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
		os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
}

// write writes the configuration.
func (c *core) write(t *testing.T, node, apn string) {
	t.Helper()
	text := fmt.Sprintf("[control]\nsocket = %q\n[[ggsn]]\ngsn_address4 = \"192.0.2.1\"\ngsn_address6 = \"2001:db8:9::1\"\npeers = [\"192.0.2.7\", \"2001:db8:9::7\"]\nstate_file = %q\n%s\n[[ggsn.apn]]\nname = \"internet\"\n%s\n",
		c.socket, filepath.Join(c.dir, "state"), node, apn)
	if c.path == "" {
		c.path = filepath.Join(c.dir, "isthmus.toml")
	}
	if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *core) serve(t *testing.T) *program.Process {
	t.Helper()
	return c.manager.Serve(t, c.ns, c.notify, c.path)
}

// ask sends a request and reads the answer.
func (c *core) ask(t *testing.T, v6 bool, teid uint32, m, answer gtp.Message) {
	t.Helper()
	c.seq++
	b, err := c.codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: c.seq, TEID: teid}, m)
	if err != nil {
		t.Fatal(err)
	}
	conn := c.control[v6]
	if _, err := conn.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[v6], gtp.PortControl)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	_ = conn.SetReadDeadline(time.Now().Add(testutil.Patience))
	for {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := gtp.ParseHeader(buf[:n]); err == nil && h.Type == answer.Type() {
			if _, err := c.codec.Parse(&h, answer); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// open makes a context.
func (c *core) open(t *testing.T, n int, v6 bool) (r gtp.CreateResponse) {
	t.Helper()
	c.ask(t, v6, 0, request(n, sgsnAddr[v6], gtp.PDPTypeIPv4v6), &r)
	if !r.Cause.Accepted() {
		t.Fatalf("the context is refused: %v", r.Cause)
	}
	return r
}

// counter is what the node tells of its restarts.
func (c *core) counter(t *testing.T) uint8 {
	t.Helper()
	var r gtp.EchoResponse
	c.ask(t, false, 0, &gtp.EchoRequest{}, &r)
	return r.Recovery
}

// status is what the node says of itself.
func (c *core) status(t *testing.T) (st Status) {
	t.Helper()
	_, out := program.Call(t, "status", "--json", "--socket", c.socket)
	var all struct {
		Instances []struct{ State Status }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Instances) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return all.Instances[0].State
}

// values are the node's counters without a reason.
func (c *core) values(t *testing.T) map[string]float64 {
	t.Helper()
	_, out := program.Call(t, "status", "--json", "--socket", c.socket)
	var all struct {
		Instances []struct{ Values map[string]float64 }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Instances) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return all.Instances[0].Values
}

// carriedOctets is how long the packet of [core.carried] is.
const carriedOctets = 20 + 8 + 8

// carried sends a packet through a context to the SGSN's host, which refuses it by ICMP, and
// reports whether the terminal got that.
func (c *core) carried(t *testing.T, r *gtp.CreateResponse) bool {
	t.Helper()
	b, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, udp(r.EndUserAddress.Value.IPv4, sgsnAddr[false], 64, carriedOctets-28))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.user.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	_ = c.user.SetReadDeadline(time.Now().Add(testutil.Patience))
	for {
		n, err := c.user.Read(buf)
		if err != nil {
			return false
		}
		h, err := gtp.ParseHeader(buf[:n])
		switch {
		case err != nil:
		case h.Type == gtp.TypeErrorIndication:
			return false
		case h.Type == gtp.TypeGPDU && h.Payload[0]>>4 == 4: // not the router of the link
			return true
		}
	}
}

// TestRestart keeps contexts, and the counter, while the process restarts in good order, and
// raises the counter if they are lost.
func TestRestart(t *testing.T) {
	c := newCore(t, "", "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]")
	p := c.serve(t)
	first := c.counter(t)
	r, over6 := c.open(t, 1, false), c.open(t, 2, true)
	if !over6.AddressUser.Value.Is6() {
		t.Errorf("over IPv6 the user plane is at %v", over6.AddressUser.Value)
	}
	if !c.carried(t, &r) {
		t.Fatalf("nothing is carried\n%s", p.Log())
	}
	for _, end := range []struct {
		how      syscall.Signal
		contexts int
		raised   uint8
	}{{syscall.SIGUSR2, 2, 0}, {syscall.SIGTERM, 2, 0}, {syscall.SIGKILL, 0, 1}, {syscall.SIGTERM, 0, 1}} {
		c.manager.End(t, p, end.how)
		p = c.serve(t)
		if n := c.status(t).Contexts; n != end.contexts || c.counter(t) != first+end.raised {
			t.Errorf("after %v: %d contexts, counter %d, want %d and %d\n%s", end.how, n, c.counter(t), end.contexts, first+end.raised, p.Log())
		}
		if end.contexts > 0 && !c.carried(t, &r) {
			t.Errorf("after %v nothing is carried", end.how)
		}
	}
	c.manager.End(t, p, syscall.SIGTERM)
}

// TestOrders lists contexts and peers, ends some, refuses others, and keeps all over a reload
// that gives them another pool.
func TestOrders(t *testing.T) {
	const six = "pool6 = [\"2001:db8:6000::/44\"]\n"
	c := newCore(t, "", six+"pool4 = [\"10.45.0.0/16\"]")
	p := c.serve(t)
	r := c.open(t, 1, false)
	c.open(t, 2, true)
	address := r.EndUserAddress.Value.IPv4.String()
	program.Commands(t, c.socket,
		program.Row{Args: "ggsn contexts", Want: address},
		program.Row{Args: "ggsn contexts --json --imsi 240010000000001", Want: `"address4":"` + address + `"`},
		program.Row{Args: "ggsn contexts --sgsn 192.0.2.99", Status: 1, Want: "there is no such context"},
		program.Row{Args: "ggsn contexts --imsi x", Status: 2, Want: "IMSI"},
		program.Row{Args: "ggsn peers --json", Want: `"contexts":1,"opened":1`},
		program.Row{Args: "ggsn stats", Want: "contexts created"},
		program.Row{Args: "ggsn delete", Status: 1, Want: "say which contexts"},
		program.Row{Args: "ggsn delete --imsi 240019999999999", Status: 1, Want: "there is no such context"},
	)
	c.write(t, "", six+"pool4 = [\"10.46.0.0/16\"]")
	p.Signal(t, syscall.SIGHUP)
	p.AwaitLog(t, "reload")
	await(t, func() bool { return c.status(t).Leaving != nil })
	if !c.carried(t, &r) {
		t.Error("a context of the pool that has gone is not carried for")
	}
	program.Commands(t, c.socket,
		program.Row{Args: "ggsn delete --imsi 240010000000001", Want: "have answered: 1"},
		program.Row{Args: "ggsn drain --rate 0", Want: "those that there are stay"},
	)
	var refused gtp.CreateResponse
	c.ask(t, false, 0, request(3, sgsnAddr[false], gtp.PDPTypeIPv4), &refused)
	if refused.Cause.Accepted() {
		t.Error("a context is taken while the node drains")
	}
	program.Commands(t, c.socket, program.Row{Args: "ggsn undrain", Want: "contexts are taken again"})
	if again := c.open(t, 3, false); !netip.MustParsePrefix("10.46.0.0/16").Contains(again.EndUserAddress.Value.IPv4) {
		t.Errorf("a new context has %v", again.EndUserAddress.Value.IPv4)
	}
	c.manager.Expect(t, "RELOADING=1", p)
	c.manager.Expect(t, "READY=1", p)
	c.manager.End(t, p, syscall.SIGTERM)
}

// await waits until something is so.
func await(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to that")
		}
	}
}

// TestContextLog logs contexts if it is to.
func TestContextLog(t *testing.T) {
	c := newCore(t, "context_log = true", "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]")
	p := c.serve(t)
	c.open(t, 1, false)
	p.AwaitLog(t, "context_created")
	if !strings.Contains(p.Log(), "imsi=240010000000001") {
		t.Errorf("the subscriber is not named\n%s", p.Log())
	}
	c.manager.End(t, p, syscall.SIGTERM)
}
