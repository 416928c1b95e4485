// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestPing(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	for _, tt := range []struct {
		to, problem string
		wait        time.Duration
	}{
		{"127.0.0.1", "", testutil.Patience},
		{"::1", "", testutil.Patience},
		// The kernel refuses at once, if the machine lets anybody ask in that time.
		{"192.0.2.1", "192.0.2.1 cannot be reached: ", 3 * time.Second},
		{"2001:db8::1", "2001:db8::1 cannot be reached: ", 3 * time.Second},
	} {
		t.Run(tt.to, func(t *testing.T) {
			t.Parallel()
			ns.Do(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
				defer cancel()
				err := ping(ctx, netip.MustParseAddr(tt.to))
				if (err == nil) != (tt.problem == "") || err != nil && !strings.HasPrefix(err.Error(), tt.problem) {
					t.Errorf("error %v, want %q", err, tt.problem)
				}
				return nil
			})
		})
	}
}

// TestAnswered: only a reply with the nonce is one.
func TestAnswered(t *testing.T) {
	ns := testutil.NewNetns(t)
	nonce, other := []byte("0123456789abcdef"), []byte("0123456789abcdeF")
	echo := func(of icmp.Type, data []byte) icmp.Message {
		return icmp.Message{Type: of, Body: &icmp.Echo{Data: data}}
	}
	const reply = ipv4.ICMPTypeEchoReply
	for _, tt := range []struct {
		name  string
		heard []icmp.Message
		want  bool
	}{
		{"the reply", []icmp.Message{echo(reply, nonce)}, true},
		{"a reply to somebody else", []icmp.Message{echo(reply, other)}, false},
		{"a reply that begins alike", []icmp.Message{echo(reply, append(nonce[:16:16], 'x'))}, false},
		{"a reply without data", []icmp.Message{echo(reply, nil)}, false},
		{"the request, which a raw socket hears", []icmp.Message{echo(ipv4.ICMPTypeEcho, nonce)}, false},
		{"an error", []icmp.Message{{Type: ipv4.ICMPTypeDestinationUnreachable, Body: &icmp.DstUnreach{Data: nonce}}}, false},
		{"the reply behind others", []icmp.Message{echo(ipv4.ICMPTypeEcho, nonce), echo(reply, other), echo(reply, nonce)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns.Do(t, func() error {
				if err := os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte("1"), 0); err != nil {
					return err
				}
				conn, err := icmp.ListenPacket("ip4:icmp", "127.0.0.1")
				if err != nil {
					return err
				}
				defer conn.Close()
				for _, m := range tt.heard {
					b, err := m.Marshal(nil)
					if err != nil {
						return err
					}
					if _, err := conn.WriteTo(b, &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
						return err
					}
				}
				if got := answered(&icmpConn{PacketConn: conn}, make([]byte, 1500), 1, reply, nonce); got != tt.want {
					t.Errorf("answered %v", got)
				}
				return nil
			})
		})
	}
}

// TestPingInVain sends to an address on a link where no one answers.
func TestPingInVain(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("192.0.2.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := ping(ctx, netip.MustParseAddr("192.0.2.1")); err == nil || err.Error() != "192.0.2.1 does not answer" {
			t.Errorf("error %v", err)
		}
		return nil
	})
}

// TestSignsOfAnEarlierProcess has a process end without a word, and a successor
// that announces less.
func TestSignsOfAnEarlierProcess(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		relay, server := netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")
		first, err := openSigns(config.DefaultAnnounce(), "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if err := first.Announce(relay, server); err != nil {
			return err
		}
		if err := first.Close(true); err != nil {
			return err
		}
		count := func(want int) {
			t.Helper()
			routes, err := testutil.Whole(func() ([]netlink.Route, error) {
				return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: 119}, netlink.RT_FILTER_TABLE)
			})
			if err != nil || len(routes) != want {
				t.Errorf("%d routes, %v; want %d", len(routes), err, want)
			}
		}
		count(2)
		second, err := openSigns(config.DefaultAnnounce(), "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if err := second.Announce(relay); err != nil {
			return err
		}
		count(2)
		if err := second.AddPeers(); err != nil {
			return err
		}
		count(1)
		if err := second.Close(false); err != nil {
			return err
		}
		count(0)
		return nil
	})
}

// TestSignsAreRestored has someone remove a route that a routing daemon exports.
func TestSignsAreRestored(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		s, err := openSigns(config.DefaultAnnounce(), "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if err := s.Announce(netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")); err != nil {
			return err
		}
		routes := func() ([]netlink.Route, error) {
			return testutil.Whole(func() ([]netlink.Route, error) {
				return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: 119}, netlink.RT_FILTER_TABLE)
			})
		}
		all, err := routes()
		for _, r := range all {
			err = errors.Join(err, netlink.RouteDel(&r))
		}
		for end := time.Now().Add(testutil.Patience); err == nil; time.Sleep(time.Millisecond) {
			var now []netlink.Route
			if now, err = routes(); len(now) == 2 {
				break
			}
			if time.Now().After(end) {
				t.Errorf("there are %v", now)
				break
			}
		}
		return errors.Join(err, s.Close(false))
	})
}
