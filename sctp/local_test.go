// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

func TestBroadcastOfPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{
		"192.0.2.1/24": "192.0.2.255", "192.0.2.129/26": "192.0.2.191", "10.0.0.1/8": "10.255.255.255", "192.0.2.1/30": "192.0.2.3",
		"192.0.2.1/31": "", "192.0.2.1/32": "", "2001:db8::1/64": "", "127.0.0.1/8": "127.255.255.255",
	} {
		got, ok := broadcast(netip.MustParsePrefix(prefix))
		if ok != (want != "") || ok && got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, %t", prefix, got, ok)
		}
	}
}

// TestAddressOfSeveralLinks: an address that several links have can be used as long as one of them works.
func TestAddressOfSeveralLinks(t *testing.T) {
	ns, local := testutil.NewNetns(t), netip.MustParseAddr("192.0.2.1")
	ns.Do(t, func() error {
		for _, name := range []string{"d0", "d1"} {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "to-" + name}); err != nil {
				return err
			}
		}
		if err := hosts(map[string][]string{"d0": {"192.0.2.1/32"}, "d1": {"192.0.2.1/32"}, "to-d0": nil, "to-d1": nil}); err != nil {
			return err
		}
		e, err := onLoopback().Open(context.Background(), "sctp4+udp", ":0")
		if err != nil {
			return err
		}
		defer e.Close()
		for _, down := range []string{"", "d0", "d1", "d0 d1"} {
			for _, name := range []string{"d0", "d1"} {
				link, err := netlink.LinkByName(name)
				switch {
				case err != nil:
				case strings.Contains(down, name):
					err = netlink.LinkSetDown(link)
				default:
					err = errors.Join(netlink.LinkSetUp(link), carries(name))
				}
				if err != nil {
					return err
				}
			}
			now, err := e.listAddresses()
			if err != nil {
				return err
			}
			of := 0
			for _, a := range now.fresh {
				if a == local {
					of++
				}
			}
			want := 1
			if down == "d0 d1" {
				want = 0
			}
			if up, there := now.present[local]; !there || up != (want > 0) || of != want {
				t.Errorf("down %q: there %t, works %t, %d times", down, there, up, of)
			}
		}
		return nil
	})
}

// TestDialToBroadcast is refused at once, and sends nothing.
func TestDialToBroadcast(t *testing.T) {
	for _, from := range []string{":0", "127.0.0.1:0"} {
		e, err := onLoopback().Open(context.Background(), "sctp+udp", from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Dial(context.Background(), "127.255.255.255:5000"); !errors.Is(err, assoc.ErrNoPath) || e.Stats().Sent > 0 {
			t.Errorf("from %s: %v", from, err)
		}
		e.Close()
	}
}
