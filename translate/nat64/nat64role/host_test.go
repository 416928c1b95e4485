// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// TestKeepsFromHost: a client reaches no service of the gateway's, neither at an address
// that it has or gets, nor at loopback where routes let it in, nor by broadcast; until the
// operator allows it, and then loopback still not.
func TestKeepsFromHost(t *testing.T) {
	configtest.InEffect(t, "nat64", "allow_host")
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		n := start(t, w, c)
		n.attached(t, c.FastPath)
		var service net.Listener
		w.Gateway.Do(t, func() (err error) {
			all := os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
			service, err = net.Listen("tcp4", "0.0.0.0:80")
			return errors.Join(all, err)
		})
		defer service.Close()
		datagrams := gatewaytest.Open(t, w.Gateway, netip.AddrPortFrom(netip.IPv4Unspecified(), 80))
		newFlow(t, w, 7000).passes(t) // the programs know the client

		six := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 7001))
		broadcast := netip.MustParseAddr("192.0.2.255")
		later := netip.MustParseAddr("198.51.100.9")
		w.Gateway.Do(t, func() error { return gatewaytest.Address("v4", later.String()+"/32") })
		n.awaitClosed(t, later)
		for _, a := range []netip.Addr{gatewaytest.Gateway4, later, broadcast} {
			if err := dial(t.Context(), t, w, a); !errors.Is(err, syscall.EACCES) {
				t.Errorf("to %s: %v", a, err)
			}
			six.Send(t, netip.AddrPortFrom(inPool6(a), 80), "closed")
		}
		keptFrom(t, w, n, netip.MustParseAddr("127.0.0.1"))
		for end := time.Now().Add(testutil.Patience); n.stats().Dropped[nat64.OwnAddress] < 6; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d packets were dropped as own_address", n.stats().Dropped[nat64.OwnAddress])
			}
		}
		if punted := n.fast.Status().Packets["punt"]["no_next_hop"]; (punted >= 6) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have left %d packets without a next hop", punted)
		}

		c.AllowHost = true
		if keys, err := roletest.Reload(Role, n, n.cfg, c); err != nil || len(keys) > 0 {
			t.Fatalf("reload: %v, waiting %v", err, keys)
		}
		six.Send(t, netip.AddrPortFrom(inPool6(gatewaytest.Gateway4), 80), "open")
		datagrams.Wants(t, "open", 64) // and nothing before
		for _, a := range []netip.Addr{gatewaytest.Gateway4, later} {
			if err := dial(t.Context(), t, w, a); err != nil {
				t.Errorf("to %s, when it is allowed: %v", a, err)
			}
			conn, err := service.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if local := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); local != a {
				t.Errorf("somebody came to %s before", local)
			}
			conn.Close()
		}
		keptFrom(t, w, n, netip.MustParseAddr("127.0.0.1"))
	})
}

// inPool6 is how six writes an IPv4 address.
func inPool6(a netip.Addr) netip.Addr {
	raw, four := netip.MustParseAddr("2001:db8:64::").As16(), a.As4()
	copy(raw[12:], four[:])
	return netip.AddrFrom16(raw)
}

// keptFrom fails unless a connection to an address is dropped without a word.
func keptFrom(t *testing.T, w *gatewaytest.World, n *NAT64, to netip.Addr) {
	t.Helper()
	dropped := func() uint64 { return n.stats().Dropped[nat64.Reason(translate.ReasonIllegalDestination)] }
	before := dropped()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	go func() {
		for dropped() == before && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := dial(ctx, t, w, to); err == nil {
		t.Errorf("%s was reached", to)
	}
	if dropped() == before {
		t.Errorf("nothing to %s was dropped", to)
	}
}

// awaitClosed waits until the translator has heard of an address.
func (n *NAT64) awaitClosed(t *testing.T, a netip.Addr) {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
		n.mu.Lock()
		heard := slices.Contains(n.local, netip.PrefixFrom(a, 32))
		n.mu.Unlock()
		if heard {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not known", a)
		}
	}
}

// dial opens a connection of six to a web server until ctx is done.
func dial(ctx context.Context, t *testing.T, w *gatewaytest.World, to netip.Addr) error {
	t.Helper()
	var failed error
	w.Six.Do(t, func() error {
		d := net.Dialer{Timeout: testutil.Patience}
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(inPool6(to), 80).String())
		if failed = err; err == nil {
			conn.Close()
		}
		return nil
	})
	return failed
}
