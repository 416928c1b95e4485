// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64role"
)

// TestPings sends echo requests of all sizes through the CLAT and a NAT64 to a host of IPv4
// alone, which answers without DF: either way they are fragments of ICMP somewhere.
func TestPings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		mode fastpath.Mode
		mtu  int // of the uplink
	}{
		{"off", fastpath.ModeOff, 1500},
		{"off, and the least MTU", fastpath.ModeOff, 1280},
		{"tc", fastpath.ModeTC, 1500},
		{"xdp", fastpath.ModeXDP, 1500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorldBehind(t, tt.mode)
			for ns, link := range map[*testutil.Netns]string{w.host: "up0", w.site: "v4"} {
				ns.Do(t, func() error { return testutil.ReceiveByNAPI(link, true) })
			}
			for _, ns := range []*testutil.Netns{w.host, w.net} {
				ns.Do(t, func() error {
					up0, err := netlink.LinkByName("up0")
					return errors.Join(err, netlink.LinkSetMTU(up0, tt.mtu))
				})
			}
			w.startCLAT(t)
			w.await(t, "serving")
			want := map[fastpath.Mode]string{fastpath.ModeOff: "engine"}[tt.mode]
			if want == "" {
				want = string(tt.mode)
			}
			for end := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
				got := w.plat.Status().(nat64role.Status).FastPath
				if got.Path == want {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the path is %s, want %s: %s", got.Path, want, got.Why)
				}
			}
			var conn *icmp.PacketConn
			w.host.Do(t, func() (err error) { conn, err = icmp.ListenPacket("ip4:icmp", "192.0.0.1"); return err })
			defer conn.Close()
			for seq, size := range []int{56, 1232, 1233, 1300, 1400, 1452, 1453, 1472, 1473, 3000, 10000, 60000, 65507} {
				ping(t, conn, seq, size)
			}
		})
	}
}

// ping sends an echo request of that many octets of data until it is answered: the kernel may
// lose one to a fresh neighbour.
func ping(t *testing.T, conn *icmp.PacketConn, seq, size int) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data)
	request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 4711, Seq: seq, Data: data}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<16)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := conn.WriteTo(request, &net.IPAddr{IP: site.Addr().AsSlice()}); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := conn.ReadFrom(got)
			if err != nil {
				break
			}
			if m, err := icmp.ParseMessage(1, got[:n]); err == nil && m.Type == ipv4.ICMPTypeEchoReply && bytes.Equal(got[8:n], data) {
				return
			}
		}
	}
	t.Fatalf("no answer to a ping of %d octets", size)
}
