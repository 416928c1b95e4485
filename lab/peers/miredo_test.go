// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

var (
	serverAddr  = netip.MustParseAddr("203.0.113.1")
	serverAddr2 = netip.MustParseAddr("203.0.113.2")
	relayBind   = netip.MustParseAddrPort("203.0.113.3:3545")
)

// patience bounds what takes milliseconds; the rest is for a loaded machine.
const patience = time.Minute

// TestMiredoRunsFromThePrivateFolder starts Miredo's server, relay and client
// as scripts/peers left them, and sends a datagram each way:
//
//	client 203.0.113.9 ── veth ── 203.0.113.1, .2 server
//	                              203.0.113.3     relay
//	                              2001:db8::1     IPv6 host
func TestMiredoRunsFromThePrivateFolder(t *testing.T) {
	testutil.NeedRoot(t)
	p, err := peers.Find()
	if err != nil {
		testutil.Missing(t, err)
	}
	outside, inside := testutil.NewNetns(t), testutil.NewNetns(t)
	connect(t, outside, inside)

	dir := t.TempDir()
	start(t, outside)(p.MiredoServer(dir, peers.MiredoServer{Name: "server", Address: serverAddr, Address2: serverAddr2}))
	start(t, outside)(p.MiredoRelay(dir, peers.MiredoRelay{Name: "relay", Bind: relayBind}))
	awaitRoute(t, outside, "2001::/32")
	start(t, inside)(p.MiredoClient(dir, peers.MiredoClient{Name: "client", Server: serverAddr}))
	awaitRoute(t, inside, "::/0")

	exchange(t, inside, outside)
}

// connect lays the cable of the test's topology.
func connect(t *testing.T, outside, inside *testutil.Netns) {
	t.Helper()
	outside.Do(t, func() error {
		cable := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: "wan"},
			PeerName:      "wan",
			PeerNamespace: netlink.NsFd(inside.Handle()),
		}
		if err := netlink.LinkAdd(cable); err != nil {
			return err
		}
		// The relay forwards between its tunnel and the IPv6 network.
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	})
	outside.Do(t, func() error {
		if err := address("lo", "2001:db8::1/128"); err != nil {
			return err
		}
		return address("wan", "203.0.113.1/24", "203.0.113.2/24", "203.0.113.3/24")
	})
	inside.Do(t, func() error { return address("wan", "203.0.113.9/24") })
}

// address gives a link its addresses and sets it up.
func address(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		parsed, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return fmt.Errorf("%s on %s: %w", a, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// start returns a function that starts a command in a namespace, stops it when
// the test ends and shows what it said if the test failed.
func start(t *testing.T, n *testutil.Netns) func(*peers.Command, error) {
	return func(c *peers.Command, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd := exec.Command(c.Path, c.Args...)
		cmd.Env = append(os.Environ(), c.Env...)
		cmd.Stdout, cmd.Stderr = &said, &said
		n.Do(t, cmd.Start)
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			if t.Failed() {
				t.Logf("%s %s said:\n%s", c.Path, strings.Join(c.Args, " "), said.String())
			}
		})
	}
}

// awaitRoute waits for a route to the prefix. A daemon's hook sets it last, so
// then the tunnel can be used.
func awaitRoute(t *testing.T, n *testutil.Netns, prefix string) {
	t.Helper()
	updates := make(chan netlink.RouteUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	n.Do(t, func() error {
		return netlink.RouteSubscribeWithOptions(updates, done, netlink.RouteSubscribeOptions{ListExisting: true})
	})
	deadline := time.After(patience)
	for {
		select {
		case u := <-updates:
			if u.Type == syscall.RTM_NEWROUTE && u.Dst != nil && u.Dst.String() == prefix {
				return
			}
		case <-deadline:
			t.Fatalf("no route to %s within %v", prefix, patience)
		}
	}
}

// exchange sends datagrams from the client's namespace to the IPv6 host and answers
// back, each again until it arrives: nothing repeats what waits in vain for a tunnel to
// open, and Miredo's client drops what comes before it has its address on the device.
func exchange(t *testing.T, inside, outside *testutil.Netns) {
	t.Helper()
	var host, client net.PacketConn
	outside.Do(t, func() (err error) {
		host, err = net.ListenPacket("udp6", "[2001:db8::1]:7")
		return err
	})
	defer host.Close()
	inside.Do(t, func() (err error) {
		client, err = net.ListenPacket("udp6", "[::]:0")
		return err
	})
	defer client.Close()
	from := deliver(t, client, host, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:7")), "to the host")
	deliver(t, host, client, from, "to the client")
}

// deliver sends a datagram once a second until it has arrived, and returns from where.
func deliver(t *testing.T, by, at net.PacketConn, to net.Addr, text string) (from net.Addr) {
	t.Helper()
	buf := make([]byte, 64)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		// There may be no address or route yet, too.
		_, sent := by.WriteTo([]byte(text), to)
		if err := at.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, from, err := at.ReadFrom(buf)
		switch {
		case err == nil && string(buf[:n]) == text:
			return from
		case err == nil:
			t.Fatalf("received %q, want %q", buf[:n], text)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatal(errors.Join(sent, err))
		}
	}
	t.Fatalf("%q did not arrive within %v", text, patience)
	return nil
}
