// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nested is an attribute of attributes.
func nested(attr int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(attr|unix.NLA_F_NESTED, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}

// str is an attribute that holds a string.
func str(attr int, value string) *nl.RtAttr { return nl.NewRtAttr(attr, nl.ZeroTerminated(value)) }

// message is a netfilter message of a family.
func message(family byte, attrs ...*nl.RtAttr) []byte {
	b := []byte{family, 0, 0, 0}
	for _, a := range attrs {
		b = append(b, a.Serialize()...)
	}
	return b
}

// TestRegisteredFunctions has messages as kernels with a list of hooks send them.
func TestRegisteredFunctions(t *testing.T) {
	for _, tt := range []struct {
		name string
		msg  []byte
		want string
	}{
		{"tracking", message(unix.NFPROTO_IPV6, str(nfnlaHookFunction, "ipv6_conntrack_in"), str(nfnlaHookModule, "nf_conntrack")),
			"connection tracking"},
		{"translation", message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "nf_nat_ipv4_out"), str(nfnlaHookModule, "nf_nat")),
			"connection tracking"},
		{"reassembly", message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "ipv4_conntrack_defrag"), str(nfnlaHookModule, "nf_defrag_ipv4")), ""},
		{"an nftables chain", message(unix.NFPROTO_INET, str(nfnlaHookFunction, "nft_do_chain_inet"), str(nfnlaHookModule, "nf_tables"),
			nested(nfnlaHookChainInfo, nl.NewRtAttr(nfnlaHookInfoType, []byte{0, 0, 0, 1}))), ""},
		{"a table of iptables", message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "ipt_do_table"), str(nfnlaHookModule, "ip_tables")), ""},
		{"a BPF program", message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "nf_hook_run_bpf"),
			nested(nfnlaHookChainInfo, nl.NewRtAttr(nfnlaHookInfoType, []byte{0, 0, 0, 2}))), "a BPF program at netfilter"},
		{"a load balancer", message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "ip_vs_in_hook"), str(nfnlaHookModule, "ip_vs")),
			"the kernel's ip_vs"},
		{"a security module", message(unix.NFPROTO_IPV6, str(nfnlaHookFunction, "selinux_ip_forward")), ""},
		{"nothing but a header", message(unix.NFPROTO_IPV6), ""},
		{"less than a header", []byte{unix.NFPROTO_IPV6}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, ok := parseRegistered(tt.msg).finding("forward")
			if f.What != tt.want || ok != (tt.want != "") {
				t.Errorf("found %q, want %q", f.What, tt.want)
			}
		})
	}
}

// TestFlowtables feeds messages, since not every kernel has flowtables.
func TestFlowtables(t *testing.T) {
	table := func(devices ...*nl.RtAttr) []byte {
		return message(unix.NFPROTO_INET, str(nftaFlowtableTable, "t"), str(nftaFlowtableName, "fast"),
			nested(nftaFlowtableHook, nested(nftaFlowtableHookDevs, devices...)))
	}
	for _, tt := range []struct {
		name string
		msg  []byte
		want string
	}{
		{"of the device", table(str(nftaDeviceName, "lan"), str(nftaDeviceName, "wan")), "flowtable fast of table inet t names a device of the fast path"},
		{"of all that begin so", table(str(nftaDevicePrefix, "wa")), "flowtable fast of table inet t names a device of the fast path"},
		{"of another device", table(str(nftaDeviceName, "lan"), str(nftaDeviceName, "wan2")), ""},
		{"of none", table(), ""},
		{"cut", table(str(nftaDeviceName, "wan"))[:20], ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if f, _ := flowtable(tt.msg, query); f.Detail != tt.want {
				t.Errorf("found %q, want %q", f.Detail, tt.want)
			}
		})
	}
}

func TestWrappedExtensionsTrack(t *testing.T) {
	rule := func(family byte, expression, extension string) []byte {
		return message(family, str(unix.NFTA_RULE_TABLE, "t"), str(unix.NFTA_RULE_CHAIN, "c"),
			nested(unix.NFTA_RULE_EXPRESSIONS, nested(unix.NFTA_LIST_ELEM,
				str(unix.NFTA_EXPR_NAME, expression), nested(unix.NFTA_EXPR_DATA, str(unix.NFTA_MATCH_NAME, extension)))))
	}
	for _, tt := range []struct {
		name string
		msg  []byte
		want bool
	}{
		{"conntrack of iptables", rule(unix.NFPROTO_IPV4, "match", "conntrack"), true},
		{"MASQUERADE of iptables", rule(unix.NFPROTO_IPV4, "target", "MASQUERADE"), true},
		{"comment of iptables", rule(unix.NFPROTO_IPV4, "match", "comment"), false},
		{"ct", rule(unix.NFPROTO_INET, "ct", ""), true},
		{"ct of a bridge", rule(unix.NFPROTO_BRIDGE, "ct", ""), false},
		{"payload", rule(unix.NFPROTO_INET, "payload", ""), false},
	} {
		if _, _, got := tracks(tt.msg); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestVRF feeds lists of links, since not every kernel has VRFs.
func TestVRF(t *testing.T) {
	link := func(index, master int, name string) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, MasterIndex: master, Name: name}}
	}
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Index: 9, Name: "blue"}, Table: 100}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: 8, MasterIndex: 9, Name: "br0"}}
	for _, tt := range []struct {
		name  string
		links []netlink.Link
		want  string
	}{
		{"no master", []netlink.Link{vrf, link(2, 0, "wan")}, ""},
		{"in the VRF", []netlink.Link{vrf, link(2, 9, "wan")}, "the VRF blue of wan"},
		{"another device in the VRF", []netlink.Link{vrf, link(2, 0, "wan"), link(3, 9, "lan")}, ""},
		{"in a bridge in the VRF", []netlink.Link{vrf, bridge, link(2, 8, "wan")}, "the VRF blue of wan"},
		{"a master that is not listed", []netlink.Link{link(2, 9, "wan")}, ""},
		{"masters in a circle", []netlink.Link{link(2, 3, "wan"), link(3, 2, "lan")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := vrfs(tt.links, query.Devices)
			what := ""
			if len(found) > 0 {
				what = found[0].What
			}
			if what != tt.want || len(found) > 1 {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

// TestVRFOfTheKernel needs a kernel with VRFs, of which not all are.
func TestVRFOfTheKernel(t *testing.T) {
	ns := router(t)
	var refused error
	ns.Do(t, func() error {
		vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue"}, Table: 100}
		if refused = netlink.LinkAdd(vrf); refused != nil {
			return nil
		}
		wan, err := netlink.LinkByName("wan")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(wan, vrf)
	})
	if refused != nil {
		t.Skip("this kernel has no VRF")
	}
	// The kernel's rule for all VRFs is a policy rule of each family.
	checkFindings(t, ns, query, []string{
		"IPv4 policy routing: ", "IPv6 policy routing: ", "the VRF blue of wan",
	})
}

func TestDefaultRules(t *testing.T) {
	rule := func(priority, table int) netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table = netlink.FAMILY_V4, priority, table
		return *r
	}
	local, main, last := rule(0, unix.RT_TABLE_LOCAL), rule(32766, unix.RT_TABLE_MAIN), rule(32767, unix.RT_TABLE_DEFAULT)
	marked := main
	marked.Mark = 1
	for _, tt := range []struct {
		name  string
		rules []netlink.Rule
		want  bool
	}{
		{"the three of the beginning", []netlink.Rule{local, main, last}, true},
		{"one more", []netlink.Rule{local, rule(1000, 0), main, last}, false},
		{"one less", []netlink.Rule{local, main}, false},
		{"main for some packets", []netlink.Rule{local, marked, last}, false},
		{"main moved", []netlink.Rule{local, rule(100, unix.RT_TABLE_MAIN), last}, false},
		{"main twice", []netlink.Rule{local, main, main}, false},
		{"none", nil, false},
	} {
		if got := DefaultRules(tt.rules); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// FuzzMessages looks for a message that makes a parser panic.
func FuzzMessages(f *testing.F) {
	f.Add(message(unix.NFPROTO_IPV4, str(nfnlaHookFunction, "ip_vs_in_hook")))
	f.Add(message(unix.NFPROTO_INET, nested(unix.NFTA_CHAIN_HOOK, str(unix.NFTA_HOOK_DEV, "wan"))))
	f.Fuzz(func(t *testing.T, msg []byte) {
		if c, ok := parseChain(msg); ok {
			c.finding(query)
		}
		flowtable(msg, query)
		tracks(msg)
		parseRegistered(msg).finding("forward")
		parseRoute6(msg)
	})
}
