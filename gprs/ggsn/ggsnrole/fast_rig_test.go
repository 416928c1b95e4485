// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// fastRig is a node with a fast path between two SGSNs and a server, all played by the test:
//
//	sgsn 192.0.2.7, 192.0.2.8 -- gn 192.0.2.1 ggsn gi 10.9.9.1 -- 10.9.9.9 server
//	                                               2001:db8:b::1 -- 2001:db8:b::9
type fastRig struct {
	g             *GGSN
	running       *roletest.Running
	ns            *testutil.Netns
	state         string
	user, control map[netip.Addr]*net.UDPConn // of SGSNs
	server        map[bool]*net.UDPConn       // by whether it is of IPv6
	codec         gtp.Codec
	seq           uint16
}

var (
	firstSGSN, secondSGSN = sgsnAddr[false], netip.MustParseAddr("192.0.2.8")
	// fastModes are the ways by programs.
	fastModes = []fastpath.Mode{fastpath.ModeTC, fastpath.ModeXDP}
)

// Ports of the packets inside.
const terminalPort, serverPort = 5000, 7000

// fastContext is a context with what of its packets has passed, by the test's own count.
type fastContext struct {
	gtp.CreateResponse
	sgsn     netip.Addr // that has the user plane
	teid     uint32     // there
	up, down ggsn.Traffic
}

func newFastRig(t *testing.T, node, apn string) *fastRig {
	t.Helper()
	r := newBareRig(t)
	r.start(t, node, apn)
	return r
}

// newBareRig is one without a node.
func newBareRig(t *testing.T) *fastRig {
	t.Helper()
	r := &fastRig{ns: testutil.NewNetns(t), state: filepath.Join(t.TempDir(), "state"), user: map[netip.Addr]*net.UDPConn{}, control: map[netip.Addr]*net.UDPConn{}, server: map[bool]*net.UDPConn{}}
	sgsn, server := testutil.NewNetns(t), testutil.NewNetns(t)
	for _, ns := range []*testutil.Netns{r.ns, sgsn, server} {
		ns.AddressesAtOnce(t)
	}
	r.join(t, "gn", sgsn, nodeAddr, sgsnAddr)
	r.join(t, "gi", server, side, servers)
	sgsn.Do(t, func() error { return address("far", map[bool]netip.Addr{false: secondSGSN}) })
	r.ns.AwaitLinks(t, "gn", "gi")
	server.Do(t, func() error {
		var errs []error
		for _, via := range side {
			zero := &net.IPNet{IP: make(net.IP, via.BitLen()/8), Mask: net.CIDRMask(0, via.BitLen())}
			errs = append(errs, netlink.RouteAdd(&netlink.Route{Dst: zero, Gw: via.AsSlice()}))
		}
		return errors.Join(errs...)
	})
	listen := func(ns *testutil.Netns, a netip.Addr, port uint16) (conn *net.UDPConn) {
		ns.Do(t, func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for _, a := range []netip.Addr{firstSGSN, secondSGSN} {
		r.user[a], r.control[a] = listen(sgsn, a, gtp.PortUser), listen(sgsn, a, gtp.PortControl)
	}
	for six, a := range servers {
		r.server[six] = listen(server, a, serverPort)
	}
	return r
}

// join makes a link to another namespace, whose end there takes what is redirected into it.
func (r *fastRig) join(t *testing.T, link string, far *testutil.Netns, here, there map[bool]netip.Addr) {
	t.Helper()
	far.Show(t) // old kernels tell nothing of a device whose far end is hidden
	r.ns.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: "far", PeerNamespace: netlink.NsFd(far.Handle())}
		return errors.Join(netlink.LinkAdd(veth), address(link, here), forward())
	})
	far.Do(t, func() error {
		return errors.Join(address("far", there), testutil.ReceiveByNAPI("far", true), testutil.ChecksumByDevice("far", false))
	})
	far.AwaitLinks(t, "far")
}

// settings are those of the rig's node.
func (r *fastRig) settings(t *testing.T, node, apn string) Settings {
	t.Helper()
	return written(t, fmt.Sprintf("peers = [\"192.0.2.7\", \"192.0.2.8\"]\nstate_file = %q\n%s", r.state, node), apn)
}

func (r *fastRig) start(t *testing.T, node, apn string) {
	t.Helper()
	g, err := New(r.settings(t, node, apn), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	r.g, r.running = g, roletest.Start(t, r.ns, g)
}

// reload gives the node another configuration.
func (r *fastRig) reload(t *testing.T, node, apn string) (restart []string) {
	t.Helper()
	restart, err := roletest.Reload(Role, r.g, r.g.cfg, r.settings(t, node, apn))
	if err != nil {
		t.Fatal(err)
	}
	return restart
}

func (r *fastRig) status() driver.Status { return r.g.fast.Status() }

// takes waits until packets take a way.
func (r *fastRig) takes(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); r.status().Path != path; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the path is %s, want %s: %s", r.status().Path, path, r.status().Why)
		}
	}
}

// forwarded is what programs have carried.
func (r *fastRig) forwarded() (up, down uint64) {
	f := r.status().Packets["forward"]
	return f["up_forwarded"], f["down_forwarded"]
}

// ask sends a request of an SGSN and reads the answer.
func (r *fastRig) ask(t *testing.T, from netip.Addr, teid uint32, m, answer gtp.Message) {
	t.Helper()
	r.seq++
	b, err := r.codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: r.seq, TEID: teid}, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.control[from].WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortControl)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 2048); ; {
		_ = r.control[from].SetReadDeadline(time.Now().Add(testutil.Patience))
		n, err := r.control[from].Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := gtp.ParseHeader(buf[:n]); err == nil && h.Type == answer.Type() {
			if _, err := r.codec.Parse(&h, answer); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// open makes a context of IPv4 at the first SGSN.
func (r *fastRig) open(t *testing.T, n int, change ...func(*gtp.CreateRequest)) *fastContext {
	t.Helper()
	m := request(n, firstSGSN, gtp.PDPTypeIPv4)
	for _, f := range change {
		f(m)
	}
	c := &fastContext{sgsn: m.AddressUser, teid: m.TEIDData}
	r.ask(t, firstSGSN, 0, m, &c.CreateResponse)
	if !c.Cause.Accepted() {
		t.Fatalf("the context is refused: %v", c.Cause)
	}
	return c
}

// address is that of the terminal. Of IPv6 it is one of the prefix.
func (c *fastContext) address(six bool) netip.Addr {
	if six {
		return c.EndUserAddress.Value.IPv6
	}
	return c.EndUserAddress.Value.IPv4
}

// datagram is a packet of UDP with a right checksum.
func datagram(from, to netip.AddrPort, text string) []byte {
	b := udp(from.Addr(), to.Addr(), 64, len(text))
	body := b[len(b)-8-len(text):]
	binary.BigEndian.PutUint16(body, from.Port())
	binary.BigEndian.PutUint16(body[2:], to.Port())
	copy(body[8:], text)
	sum := uint64(packet.ProtoUDP) + uint64(len(body))
	for _, a := range []netip.Addr{from.Addr(), to.Addr()} {
		sum = packet.Sum(sum, a.AsSlice())
	}
	binary.BigEndian.PutUint16(body[6:], ^packet.Fold(packet.Sum(sum, body)))
	return b
}

// sendUp sends a packet of the terminal by a G-PDU.
func (r *fastRig) sendUp(t *testing.T, c *fastContext, six bool, text string) {
	t.Helper()
	ip := datagram(netip.AddrPortFrom(c.address(six), terminalPort), netip.AddrPortFrom(servers[six], serverPort), text)
	b, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c.TEIDData.Value}, ip)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.user[c.sgsn].WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
		t.Fatal(err)
	}
}

// arrives reads until the server gets a text from the terminal, within a time; and notes the packet.
func (r *fastRig) arrives(t *testing.T, c *fastContext, six bool, text string, within time.Duration) bool {
	t.Helper()
	buf := make([]byte, 2048)
	for end := time.Now().Add(within); ; {
		_ = r.server[six].SetReadDeadline(end)
		n, from, err := r.server[six].ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		if from.Addr().Unmap() != c.address(six) || from.Port() != terminalPort {
			t.Errorf("the server got a packet from %s, want %s", from, c.address(six))
		}
		c.up.Packets++
		c.up.Octets += uint64(n + innerHeaders(six))
		if string(buf[:n]) == text {
			return true
		}
	}
}

func innerHeaders(six bool) int {
	if six {
		return 48
	}
	return 28
}

// sendDown sends a packet of the server for the terminal.
func (r *fastRig) sendDown(t *testing.T, c *fastContext, six bool, text string) {
	t.Helper()
	if _, err := r.server[six].WriteToUDPAddrPort([]byte(text), netip.AddrPortFrom(c.address(six), terminalPort)); err != nil {
		t.Fatal(err)
	}
}

// comes reads until the terminal gets a text, within a time; and notes all packets for it, also those of the
// router of its link. An Error Indication is not what a terminal has.
func (r *fastRig) comes(t *testing.T, c *fastContext, six bool, text string, within time.Duration) bool {
	t.Helper()
	buf := make([]byte, 2048)
	for end := time.Now().Add(within); ; {
		_ = r.user[c.sgsn].SetReadDeadline(end)
		n, err := r.user[c.sgsn].Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := gtp.ParseHeader(buf[:n])
		if err != nil || h.Type != gtp.TypeGPDU || h.TEID != c.teid {
			t.Errorf("the SGSN got % x: %v", buf[:n], err)
			continue
		}
		c.down.Packets++
		c.down.Octets += uint64(len(h.Payload))
		want := datagram(netip.AddrPortFrom(servers[six], serverPort), netip.AddrPortFrom(c.address(six), terminalPort), text)
		if headers := innerHeaders(six); len(h.Payload) == len(want) && bytes.Equal(h.Payload[headers:], want[headers:]) {
			return true
		}
	}
}

// carry has the terminal and the server each send a text to the other.
func (r *fastRig) carry(t *testing.T, c *fastContext, six bool, text string) {
	t.Helper()
	r.sendUp(t, c, six, text)
	if !r.arrives(t, c, six, text, testutil.Patience) {
		t.Fatalf("%q did not arrive at the server: %+v", text, r.status())
	}
	r.sendDown(t, c, six, text)
	if !r.comes(t, c, six, text, testutil.Patience) {
		t.Fatalf("%q did not come to the terminal: %+v", text, r.status())
	}
}

// warm has packets carried until programs carry those of both directions.
func (r *fastRig) warm(t *testing.T, c *fastContext, six bool) {
	t.Helper()
	up, down := r.forwarded()
	for end := time.Now().Add(testutil.Patience); ; {
		r.carry(t, c, six, "warm")
		if u, d := r.forwarded(); u > up && d > down {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("packets take the engine: %+v", r.status())
		}
	}
}

// info is what the node says of a context.
func (r *fastRig) info(t *testing.T, c *fastContext) (x ggsn.ContextInfo) {
	t.Helper()
	found := false
	r.g.walk(ggsn.Selection{TEID: c.TEIDData.Value}, 1, func(one ggsn.ContextInfo) bool { x, found = one, true; return false })
	if !found {
		t.Fatal("there is no such context")
	}
	return x
}

// wantAccount fails unless the node counts what has passed. A router advertisement may be under way.
func (r *fastRig) wantAccount(t *testing.T, when string, c *fastContext) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); r.info(t, c).Down.Packets > c.down.Packets && time.Now().Before(end); {
		r.comes(t, c, false, "nothing more", time.Millisecond)
	}
	if x := r.info(t, c); x.Up != c.up || x.Down != c.down {
		t.Errorf("%s the account is %+v up and %+v down, want %+v and %+v", when, x.Up, x.Down, c.up, c.down)
	}
}

// valuesOf are the metrics of a node without a label.
func valuesOf(g *GGSN) map[string]float64 {
	values := map[string]float64{}
	g.Collect(func(m role.Metric) {
		if m.Reason == "" && m.Verdict == "" {
			values[m.Name] = m.Value
		}
	})
	return values
}

// testLog shows in the test what a node logs.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(logTo{t}, nil))
}

type logTo struct{ *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	l.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}
