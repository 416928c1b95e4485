// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

var teredo = netip.MustParsePrefix("2001::/32")

// query asks for a relay on "wan".
var query = Query{Devices: []string{"wan"}, Tunnel: "tun", Prefixes: []netip.Prefix{teredo}}

// router makes a namespace that forwards IPv6 between "wan" and "lan" and has a
// route for Teredo into "tun"; nothing there stands in the way.
func router(t *testing.T) *testutil.Netns {
	t.Helper()
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		for _, name := range []string{"wan", "lan", "tun"} {
			l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-far"}
			if err := netlink.LinkAdd(l); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: l.PeerName}}); err != nil {
				return err
			}
		}
		if err := forward("1"); err != nil {
			return err
		}
		return netlink.RouteAdd(routeTo("2001::/32", "tun"))
	})
	return ns
}

func forward(value string) error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte(value), 0o644)
}

// reversePath sets the reverse path filter of a link.
func reversePath(link, value string) error {
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+link+"/rp_filter", []byte(value), 0)
}

func routeTo(prefix, link string) *netlink.Route {
	l, err := netlink.LinkByName(link)
	if err != nil {
		panic(err)
	}
	dst, err := netlink.ParseIPNet(prefix)
	if err != nil {
		panic(err)
	}
	return &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst}
}

// routeFrom adds an IPv6 route for packets from one prefix to another of the same
// length; the library has none.
func routeFrom(src, dst string, bits uint8, link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET6, Dst_len: bits, Src_len: bits, Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_STATIC, Type: unix.RTN_UNICAST,
	}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, netip.MustParseAddr(dst).AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_SRC, netip.MustParseAddr(src).AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(l.Attrs().Index))))
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// nft loads a ruleset into the calling thread's namespace.
func nft(t *testing.T, ruleset string) func() error {
	path, err := peers.Tool("nft")
	if err != nil {
		testutil.Missing(t, err)
	}
	return func() error {
		cmd := exec.Command(path, "-f", "-")
		// Each block ends in a line of its own, as nft wants it.
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(ruleset, "} }", "}\n}"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nft: %s", out)
			return err
		}
		return nil
	}
}

func TestFind(t *testing.T) {
	host := query
	host.Host = true
	xdp := query
	xdp.XDP = true
	translator := query
	translator.Forward4 = true
	tunnel := translator
	tunnel.Local4 = true
	absent := translator
	absent.Devices = []string{"nope0"}
	forward4 := func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }
	reverse := func(value string) func() error {
		return func() error { return errors.Join(forward4(), reversePath("wan", value)) }
	}
	tests := []struct {
		name  string
		query Query
		nft   string
		do    func() error
		tcx   string   // the name of a program on "wan"
		want  []string // a part of each finding's sentences
	}{
		{name: "nothing", query: query},
		{
			name: "empty chains that accept", query: query,
			nft: `table inet filter {
				chain forward { type filter hook forward priority 0; policy accept; }
				chain input { type filter hook input priority 0; policy accept; }
			}`,
		},
		{
			name: "a forward chain that drops something", query: query,
			nft:  `table inet filter { chain forward { type filter hook forward priority 0; ip6 daddr 2001:db8::/32 drop; } }`,
			want: []string{"an nftables chain at forward: chain forward of table inet filter has 1 rule and looks at packets of both directions. Remove"},
		},
		{
			name: "a forward chain whose policy drops", query: query,
			nft:  `table ip6 filter { chain f { type filter hook forward priority 0; policy drop; } }`,
			want: []string{"chain f of table ip6 filter drops what no rule accepts and looks at packets of both directions."},
		},
		{
			name: "the same on a host that forwards nothing", query: host,
			nft: `table ip6 filter { chain f { type filter hook forward priority 0; policy drop; } }`,
		},
		{
			name: "forwarded IPv4 is none of our packets", query: query,
			nft: `table ip filter { chain forward { type filter hook forward priority 0; policy drop; counter; } }`,
		},
		{
			name: "forwarded IPv4 is a translator's", query: translator, do: forward4,
			nft:  `table ip filter { chain forward { type filter hook forward priority 0; policy drop; counter; } }`,
			want: []string{"chain forward of table ip filter has 1 rule, drops what no rule accepts and looks at packets of both directions."},
		},
		{
			name: "masquerading beside a translator", query: translator, do: forward4,
			nft: `table ip nat { chain post { type nat hook postrouting priority 100; oifname "wan" masquerade; } }`,
			want: []string{
				"chain post of table ip nat has 1 rule and looks at packets of both directions.",
				"connection tracking: a rule in chain post of table ip nat needs it",
			},
		},
		{
			name: "input of IPv4 is none of a translator's", query: translator, do: forward4,
			nft: `table ip filter { chain input { type filter hook input priority 0; policy drop; } }`,
		},
		{
			name: "input and output of IPv4 are a tunnel's", query: tunnel, do: forward4,
			nft: `table ip filter {
				chain input { type filter hook input priority 0; udp dport 2152 counter; }
				chain output { type filter hook output priority 0; udp dport 2152 counter; } }`,
			want: []string{
				"an nftables chain at input: chain input of table ip filter has 1 rule and looks at packets of both directions.",
				"an nftables chain at output: chain output of table ip filter has 1 rule and looks at packets of both directions.",
			},
		},
		{
			name: "a translator on a host that forwards no IPv4", query: translator,
			want: []string{"the switch of IPv4 forwarding, which is off: the kernel would forward nothing from wan to tun"},
		},
		{
			name: "a strict reverse path filter before a translator", query: translator, do: reverse("1"),
			want: []string{"the reverse path filter: the kernel drops packets that come in by wan from addresses to which another way leads (net.ipv4.conf.wan.rp_filter, or that of all, is 1). Switch"},
		},
		{name: "a loose reverse path filter", query: translator, do: reverse("2")},
		{name: "a relay, which asks its clients for a sign of life itself", query: query, do: reverse("1")},
		{name: "a device that is not there", query: absent},
		{
			name: "prerouting", query: query,
			nft: `table ip raw { chain p { type filter hook prerouting priority -300; udp dport 3545 counter; counter; } }`,
			want: []string{
				"an nftables chain at prerouting: chain p of table ip raw has 2 rules and looks at packets from clients.",
			},
		},
		{
			name: "input of IPv4 alone matters", query: query,
			nft: `table inet filter { chain input { type filter hook input priority 0; udp dport 3545 accept; } }
			      table ip6 filter { chain input { type filter hook input priority 0; policy drop; } }`,
			want: []string{"chain input of table inet filter has 1 rule and looks at packets from clients."},
		},
		{
			name: "ingress of the device", query: query,
			nft:  `table netdev t { chain i { type filter hook ingress device "wan" priority 0; counter drop; } }`,
			want: []string{"chain i of table netdev t has 1 rule and"},
		},
		{
			name: "ingress of several devices", query: query,
			nft:  `table netdev t { chain i { type filter hook ingress devices = { "lan", "wan" } priority 0; counter; } }`,
			want: []string{"chain i of table netdev t has 1 rule and"},
		},
		{
			name: "ingress of another device", query: query,
			nft: `table netdev t { chain i { type filter hook ingress device "lan" priority 0; counter drop; } }`,
		},
		{
			name: "ingress of the device in a table inet", query: query,
			nft:  `table inet t { chain i { type filter hook ingress device "wan" priority 0; counter drop; } }`,
			want: []string{"chain i of table inet t has 1 rule and"},
		},
		{
			name: "egress of the device, which tc passes", query: query,
			nft: `table netdev t { chain e { type filter hook egress device "wan" priority 0; counter; } }`,
		},
		{
			name: "egress of the device, which XDP skips", query: xdp,
			nft:  `table netdev t { chain e { type filter hook egress device "wan" priority 0; counter; } }`,
			want: []string{"chain e of table netdev t has 1 rule and"},
		},
		{
			name: "a chain that nobody calls tracks connections", query: query,
			nft:  `table inet t { chain unused { ct state established accept; } }`,
			want: []string{"connection tracking: a rule in chain unused of table inet t needs it"},
		},
		{
			name: "masquerading of IPv4", query: query,
			nft: `table ip nat { chain post { type nat hook postrouting priority 100; oifname "wan" masquerade; } }`,
			want: []string{
				"chain post of table ip nat has 1 rule and looks at packets to clients.",
				"connection tracking: a rule in chain post of table ip nat needs it",
			},
		},
		{
			name: "a policy rule of IPv4", query: query,
			do:   func() error { return netlink.RuleAdd(rule(netlink.FAMILY_V4)) },
			want: []string{"IPv4 policy routing: there is 1 policy rule beyond the kernel's own, first that of priority 1000 (fwmark 0x1)."},
		},
		{
			name: "two policy rules of IPv6", query: query,
			do: func() error {
				other := rule(netlink.FAMILY_V6)
				other.Priority, other.IifName = 999, "wan"
				if err := netlink.RuleAdd(other); err != nil {
					return err
				}
				return netlink.RuleAdd(rule(netlink.FAMILY_V6))
			},
			want: []string{"IPv6 policy routing: there are 2 policy rules beyond the kernel's own, first that of priority 999 (iif wan fwmark 0x1)."},
		},
		{
			name: "forwarding switched off", query: query, do: func() error { return forward("0") },
			want: []string{"the switch of IPv6 forwarding, which is off: "},
		},
		{name: "a host needs no forwarding", query: host, do: func() error { return forward("0") }},
		{
			name: "an ingress filter", query: query,
			do:   func() error { return filter("wan", netlink.HANDLE_MIN_INGRESS, "police") },
			want: []string{"traffic control at ingress of wan: there is a bpf filter of preference 7 of somebody else."},
		},
		{
			name: "an ingress filter of our own", query: query,
			do: func() error { return filter("wan", netlink.HANDLE_MIN_INGRESS, "isthmus-relay") },
		},
		{
			name: "a filter of another device", query: query,
			do: func() error { return filter("lan", netlink.HANDLE_MIN_INGRESS, "police") },
		},
		{
			name: "an egress filter, which tc passes", query: query,
			do: func() error { return filter("wan", netlink.HANDLE_MIN_EGRESS, "police") },
		},
		{
			name: "an egress filter, which XDP skips", query: xdp,
			do:   func() error { return filter("wan", netlink.HANDLE_MIN_EGRESS, "police") },
			want: []string{"traffic control at egress of wan: "},
		},
		{
			name: "a program at tcx", query: query, tcx: "police",
			want: []string{"there is a BPF program named police of somebody else."},
		},
		{name: "a program of our own at tcx", query: query, tcx: "isthmus_ingress"},
		{
			name: "an IPsec policy", query: query, do: ipsec,
			want: []string{"IPsec: there is 1 policy that may protect or refuse packets."},
		},
		{
			name: "a more specific route", query: query,
			do:   func() error { return netlink.RouteAdd(routeTo("2001:0:c633:6401::/64", "lan")) },
			want: []string{"another route for 2001:0:c633:6401::/64: its packets would go to this instance, by its route for 2001::/32, and not through lan."},
		},
		{
			name: "a better route", query: query,
			do: func() error {
				r := routeTo("2001::/32", "lan")
				r.Priority = 10
				return netlink.RouteAdd(r)
			},
			want: []string{"another route for 2001::/32: "},
		},
		{
			name: "a worse route", query: query,
			do: func() error {
				r := routeTo("2001::/32", "lan")
				r.Priority = 5000
				return netlink.RouteAdd(r)
			},
		},
		{
			name: "a route beside", query: query,
			do: func() error { return netlink.RouteAdd(routeTo("2001:1::/32", "lan")) },
		},
		{
			name: "a route for some sources", query: query,
			do: func() error {
				return routeFrom("2001:db8:5::", "2001:db8:6::", 48, "lan")
			},
			want: []string{"IPv6 routes for some sources: one of them is that to 2001:db8:6::/48 through lan"},
		},
		{
			name: "an own route that is more specific", query: query,
			do: func() error { return netlink.RouteAdd(routeTo("2001:0:c633:6401::/64", "tun")) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ns := router(t)
			if tt.nft != "" {
				ns.Do(t, nft(t, tt.nft))
			}
			if tt.do != nil {
				ns.Do(t, tt.do)
			}
			if tt.tcx != "" {
				needTCX(t)
				ns.Do(t, func() error { return attachTCX(t, "wan", tt.tcx) })
			}
			checkFindings(t, ns, tt.query, tt.want)
		})
	}
}

// checkFindings compares all sentences with the wanted parts.
func checkFindings(t *testing.T, ns *testutil.Netns, q Query, want []string) {
	t.Helper()
	ns.Do(t, func() error {
		found, err := Find(q)
		if err != nil {
			t.Errorf("something could not be read: %v", err)
		}
		for _, f := range found {
			if strings.HasSuffix(f.What, ".") || strings.HasSuffix(f.Detail, ".") || !strings.HasSuffix(f.Remedy, ".") {
				t.Errorf("what and detail are no sentences, the remedy is one: %q", f)
			}
		}
		if len(found) != len(want) {
			t.Errorf("%d findings, want %d: %q", len(found), len(want), found)
		}
		for i := range min(len(want), len(found)) {
			if all := found[i].String(); !strings.Contains(all, want[i]) {
				t.Errorf("finding %d is %q, without %q", i, all, want[i])
			}
		}
		again, err := Find(q)
		if err != nil {
			return err
		}
		if len(again) != len(found) {
			t.Errorf("looking twice found %q, then %q", found, again)
		}
		return nil
	})
}
