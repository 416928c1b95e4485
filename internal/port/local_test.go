// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestLocalPrefix connects by addresses that no interface has.
func TestLocalPrefix(t *testing.T) {
	ns := testutil.NewNetns(t)
	var host *Host
	var inside Namespace
	ns.Do(t, func() (err error) {
		if host, err = OpenHost(); err != nil {
			return err
		}
		inside, err = CurrentNamespace()
		return err
	})
	defer inside.Close()
	for range 2 { // the second time it is there
		if err := host.AddLocal("lo", netip.MustParsePrefix("fd00::2:0:0/96")); err != nil {
			t.Fatal(err)
		}
	}
	control := func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = FreeBind(fd, "lo") }); err != nil {
			return err
		}
		return failed
	}
	at := netip.MustParseAddrPort("[fd00::2:0:7]:2121")
	var listener net.Listener
	err := inside.Do(func() (err error) {
		listener, err = (&net.ListenConfig{Control: control}).Listen(context.Background(), "tcp6", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	from := netip.MustParseAddr("fd00::2:0:8")
	call := func() error {
		conn, err := (&net.Dialer{
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Control: control,
		}).Dial("tcp6", at.String())
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := inside.Do(call); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr(); got != from {
		t.Errorf("the connection comes from %s, want %s", got, from)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := inside.Do(call); err == nil {
		t.Error("the addresses are still this host's")
	}
}
