// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// pathReport is what `isthmus status` knows of the way that packets take.
type pathReport struct {
	Path     string `json:"path"`
	Why      string `json:"why"`
	Bypassed []struct {
		What   string `json:"what"`
		Detail string `json:"detail"`
		Remedy string `json:"remedy"`
	} `json:"bypassed"`
	Packets map[string]map[string]uint64 `json:"packets"`
}

// askPath asks the running relay.
func (n *teredoNet) askPath(ctx context.Context) (p pathReport, err error) {
	state := struct {
		FastPath *pathReport `json:"fast_path"`
	}{&p}
	err = n.daemons.isthmus(n.relay, "relay").state(ctx, &state)
	return p, err
}

// awaitPath waits until packets take that way.
func (n *teredoNet) awaitPath(t *testing.T, ctx context.Context, want string) pathReport {
	t.Helper()
	for end := time.Now().Add(daemonStart); ; time.Sleep(10 * time.Millisecond) {
		p, err := n.askPath(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if p.Path == want {
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("packets take the path %s and not %s: %s; %+v", p.Path, want, p.Why, p.Bypassed)
		}
	}
}

// fastPackets is how many packets the fast path has carried.
func (p *pathReport) fastPackets() uint64 {
	return p.Packets["forward"]["encap_forwarded"] + p.Packets["forward"]["decap_forwarded"]
}

// netfilterRule drops what the host sends to clients.
const netfilterRule = `table inet guard { chain forward { type filter hook forward priority 0; ip6 daddr 2001::/32 icmpv6 type echo-request drop; }; }`

// TestNothingIsBypassedSilently gives a relay that forwards by its fast path a
// firewall, a policy rule and a VRF, one after the other. Each keeps its effect
// from then on, status says why the engine carries the packets, and when it goes,
// the fast path comes back.
func TestNothingIsBypassedSilently(t *testing.T) {
	t.Parallel()
	blackhole := netlink.Route{Table: 100, Type: unix.RTN_BLACKHOLE}
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V6, 100, 50
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue"}, Table: 200}
	for _, c := range []struct {
		name      string
		set, undo func(context.Context, *lab.Node) error
		says      string // of the first finding
		blocks    bool   // packets of the host to clients
	}{
		{
			name: "forward drop rule",
			set:  func(ctx context.Context, relay *lab.Node) error { return run(ctx, relay, "nft", netfilterRule) },
			undo: func(ctx context.Context, relay *lab.Node) error {
				return run(ctx, relay, "nft", "delete", "table", "inet", "guard")
			},
			says: "an nftables chain at forward", blocks: true,
		},
		{
			name: "policy rule",
			set: func(_ context.Context, relay *lab.Node) error {
				if err := relay.Kernel().RouteAdd(&blackhole); err != nil {
					return err
				}
				return relay.Kernel().RuleAdd(rule)
			},
			undo: func(_ context.Context, relay *lab.Node) error { return relay.Kernel().RuleDel(rule) },
			says: "IPv6 policy routing", blocks: true,
		},
		{
			name: "VRF",
			set: func(_ context.Context, relay *lab.Node) error {
				if err := relay.Kernel().LinkAdd(vrf); err != nil {
					return err
				}
				device, err := relay.Kernel().LinkByName("v6")
				if err != nil {
					return err
				}
				return relay.Kernel().LinkSetMaster(device, vrf)
			},
			undo: func(_ context.Context, relay *lab.Node) error { return removeVRF(relay, vrf) },
			says: "policy routing",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, e := testEnv(t)
			n := testNet(t, ctx, e, []lab.NATKind{lab.FullCone})
			blackhole.Dst = &net.IPNet{IP: net.ParseIP("2001::"), Mask: net.CIDRMask(32, 128)}
			rule.Dst = blackhole.Dst
			if err := n.startRelay(ctx, isthmus); err != nil {
				t.Fatal(err)
			}
			startAll(t, ctx, n)
			before := n.awaitPath(t, ctx, "tc")
			// The first packets wait for bubbles, all of them on a busy machine.
			now := before
			for end := time.Now().Add(daemonStart); now.fastPackets() == before.fastPackets(); now = n.awaitPath(t, ctx, "tc") {
				if n.mustReach(t, ctx, true); time.Now().After(end) {
					t.Fatalf("the fast path carries nothing: %v", now.Packets)
				}
			}

			if err := c.set(ctx, n.relay); errors.Is(err, unix.EOPNOTSUPP) && c.name == "VRF" {
				t.Skip("this kernel has no VRF")
			} else if err != nil {
				t.Fatal(err)
			}
			stays := n.awaitPath(t, ctx, "engine")
			t.Logf("why: %s", stays.Why)
			if len(stays.Bypassed) == 0 || !strings.Contains(stays.Bypassed[0].What, c.says) || !strings.Contains(stays.Why, c.says) {
				t.Errorf("status says %q, bypassed %+v; want %q", stays.Why, stays.Bypassed, c.says)
			}
			if c.blocks {
				n.mustReach(t, ctx, false)
			}
			if after := n.awaitPath(t, ctx, "engine"); after.fastPackets() != stays.fastPackets() {
				t.Errorf("the fast path went on: %v, then %v", stays.Packets, after.Packets)
			}

			if err := c.undo(ctx, n.relay); err != nil {
				t.Fatal(err)
			}
			n.awaitPath(t, ctx, "tc")
			if c.blocks {
				n.mustReach(t, ctx, true)
			}
		})
	}
}

// removeVRF deletes a VRF with the policy rules for VRFs, which the kernel adds with
// the first one and keeps.
func removeVRF(node *lab.Node, vrf *netlink.Vrf) error {
	const priority = 1000 // include/net/l3mdev.h
	err := node.Kernel().LinkDel(vrf)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rule := netlink.NewRule()
		rule.Family, rule.Priority = family, priority
		err = errors.Join(err, node.Kernel().RuleDel(rule))
	}
	return err
}

// run runs a command in a node.
func run(ctx context.Context, node *lab.Node, argv ...string) error {
	_, err := node.Run(ctx, argv...)
	return err
}

// mustReach checks whether the host's echo requests reach the client.
func (n *teredoNet) mustReach(t *testing.T, ctx context.Context, want bool) {
	t.Helper()
	p := lab.Ping{To: n.clients[0].addr, Count: 5, Interval: 20 * time.Millisecond}
	if want {
		p.Timeout = answerWait
	}
	r, err := n.host.Ping(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if reached := r.Lost() == 0; reached != want || !want && r.Lost() < r.Sent() {
		t.Errorf("%d of %d pings were lost; reached should be %t", r.Lost(), r.Sent(), want)
	}
}
