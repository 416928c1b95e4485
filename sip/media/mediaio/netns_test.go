// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media"
)

// TestHardHandoff cuts the way of a call whose host has another, in namespaces:
//
//	                      a
//	alice 2001:db8:a::1 ------ 2001:db8:a::2 bob 2001:db8:f::9
//	      2001:db8:b::1 ------ 2001:db8:b::2
//	                      b
func TestHardHandoff(t *testing.T) {
	here, there := testutil.NewNetns(t), testutil.NewNetns(t)
	here.AddressesAtOnce(t)
	there.AddressesAtOnce(t)
	here.Do(t, func() error {
		for _, name := range []string{"a", "b"} {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(there.Handle())}
			if err := netlink.LinkAdd(pair); err != nil {
				return err
			}
		}
		return nil
	})
	for end, n := range map[string]*testutil.Netns{"1": here, "2": there} {
		n.Do(t, func() error {
			for _, name := range []string{"a", "b"} {
				if err := address(name, "2001:db8:"+name+"::"+end+"/64"); err != nil {
					return err
				}
			}
			if end == "2" {
				return address("lo", "2001:db8:f::9/128")
			}
			return nil
		})
	}
	here.AwaitLinks(t, "a", "b")
	there.AwaitLinks(t, "a", "b")
	here.Do(t, func() error {
		for i, name := range []string{"a", "b"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			_, bob, _ := net.ParseCIDR("2001:db8:f::9/128")
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: bob, Gw: net.ParseIP("2001:db8:" + name + "::2"), Priority: 100 * (i + 1)}); err != nil {
				return err
			}
		}
		return nil
	})

	h := newHost(t, Config{})
	alice, bob := newParty(t, h, "2001:db8:a::1", nil), newParty(t, h, "2001:db8:f::9", nil)
	here.Do(t, func() error {
		for i, name := range []string{"a", "b"} {
			if err := alice.Open(i, Local{netip.MustParseAddr("2001:db8:" + name + "::1"), name}); err != nil {
				return err
			}
		}
		return nil
	})
	there.Do(t, func() error { return bob.Open(0, Local{Address: netip.MustParseAddr("2001:db8:f::9")}) })
	exchange(t, alice, 0, bob)
	alice.frames(t, 10)
	bob.frames(t, 10)

	// The way is cut, and for a while nobody notices: what the socket cannot send waits for the
	// move, and nothing of it is lost.
	here.Do(t, func() error { return down("a") })
	await(t, "packets that cannot be sent", func() bool {
		alice.mu.Lock()
		defer alice.mu.Unlock()
		return len(alice.unsent) > 3
	})
	if err := alice.Move(1); err != nil {
		t.Fatal(err)
	}
	// Bob's media follows alice's before he has heard of the move by signalling.
	alice.awaitEvent(t, media.PathHeard, 1)
	bob.awaitEvent(t, media.SourceMoved, 0)
	exchange(t, alice, 1, bob)
	alice.frames(t, 10)
	bob.frames(t, 10)
	for name, p := range map[string]*party{"alice": alice, "bob": bob} {
		s, tally := p.stats()
		if (s.Lost == 0) != (p == bob) || uint64(s.Lost) > tally.Missing() || tally.Displaced+tally.Damaged+tally.Repeated != 0 {
			t.Errorf("%s: %+v, %+v", name, s, tally)
		}
	}
	bob.Do(func(s *media.Stream, _ time.Time, _ *media.Output) {
		if want := alice.At(1); s.Remote() != want {
			t.Errorf("bob sends to %s, not to %s", s.Remote(), want)
		}
	})
}

// address gives one to a link, which is up then.
func address(link, text string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func down(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.LinkSetDown(l)
}
