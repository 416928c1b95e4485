// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import "path"

// suite is the tests of one package that run in the machine.
type suite struct {
	// Package is below the module.
	Package string `json:"package"`
	// Run is the pattern of the tests, all if empty.
	Run string `json:"run,omitempty"`
}

// program is the file of the suite's tests in the machine.
func (s suite) program() string { return "/tests/" + path.Base(s.Package) + ".test" }

// folder is where its tests run; it holds the package's files.
func (s suite) folder() string { return "/src/" + s.Package }

// plan is what depends on the kernel: every program of the fast path and its
// packet tables, how it is attached, what it must not bypass, and packets
// through whole relays.
var plan = []suite{
	{Package: "fastpath"},
	{Package: "fastpath/attach"},
	{Package: "fastpath/follow"},
	{Package: "fastpath/pinned"},
	{Package: "fastpath/probe"},
	{Package: "teredo/teredobpf"},
	{Package: "translate/nat64/nat64bpf"},
	{Package: "translate/siit/siitbpf"},
	{Package: "fastpath/differ", Run: "Table|Modes|Life|Samples|Generations|Classes|Stamps|NAT64Rows|FuzzSIIT"},
	{Package: "fastpath/bypass"},
	{Package: "internal/port"},
	{Package: "internal/host", Run: "VRF"},
	{Package: "gprs/ggsn/ggsnrole", Run: "VRF"},
	{Package: "teredo/relay/relayrole", Run: "FastPath"},
	{Package: "teredo/client/clientrole", Run: "FastPath|HostRelay"},
	{Package: "lab/experiment", Run: "^(TestFastPathOfEveryKind|TestNothingIsBypassedSilently|TestVRFsAnnounced)$"},
}

// kernelSCTP is what needs a kernel that speaks SCTP itself; where it does, no other test meets the traffic that it
// expects.
var kernelSCTP = []suite{{Package: "sctp", Run: "^TestKernelSCTP"}}

// sctpModules are those of kernelSCTP.
var sctpModules = []string{"sha1_generic", "sha256_generic", "hmac", "udp_tunnel", "ip6_udp_tunnel", "sctp"}

// wanted are the modules that the tests need: what nodes are joined by, what
// programs are attached to, and what a fast path must not bypass. Those they
// need come along; one that a kernel does not have as a module may be built in.
var wanted = []string{
	"crc32c_generic", // nf_tables needs its algorithm and does not say so
	"veth", "tun", "dummy", "bridge", "bonding", "8021q", "macvlan", "ifb", "vrf",
	"sch_ingress", "sch_tbf", "cls_bpf", "act_bpf", "cls_u32", "cls_matchall", "act_mirred", "sch_fq_codel",
	"nf_tables", "nft_chain_nat", "nft_masq", "nft_nat", "nft_ct", "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_inet", "nft_limit", "nft_hash", "nft_numgen",
	"nft_fib_inet", "nf_conntrack", "ip_tables", "ip6_tables", "iptable_filter", "ip6table_filter",
	"ip_gre", "ip6_gre", "sit", "ip6_tunnel", "ipip", "xfrm_user",
	"ipv6", "af_packet", "inet_diag", "udp_diag", "tcp_diag", "overlay",
}
