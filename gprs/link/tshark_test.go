// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
)

// TestTshark has tshark dissect every kind of answer: it finds nothing wrong, and reads the
// same values.
func TestTshark(t *testing.T) {
	var packets [][]byte
	for _, p := range []packet.IPv6{
		solicitation(terminal.Address()), neighbor(terminal.Address(), RouterAddress, RouterAddress),
		question6(DHCPServers, 11, goldenOptions(t)), question6(RouterAddress, 11, goldenOptions(t)),
		message(global, RouterAddress, 128, 0, 0, 1, 0, 1, 'x'),
		question6(DHCPServers, 3, testutil.Unhex(t, clientID+serverID+pd7+exclude)), question6(DHCPServers, 5, testutil.Unhex(t, clientID+serverID+pd8)),
	} {
		var s State
		l := terminal
		l.Delegations = new(oneDelegation)
		b, v := delegating(t).Answer(nil, l, &s, p, start)
		if !v.Answered() {
			t.Fatal(v)
		}
		packets = append(packets, b)
	}
	capture := tsharktest.Capture(t, packets)
	if out := tsharktest.Run(t, capture, "-Y", tsharktest.Complaints, "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message"); out != "" {
		t.Errorf("tshark complains of:\n%s", out)
	}
	for i, want := range []string{
		"icmpv6.nd.ra.cur_hop_limit=64 icmpv6.nd.ra.flag.m=0 icmpv6.nd.ra.flag.o=1 icmpv6.nd.ra.router_lifetime=64800 " +
			"icmpv6.opt.prefix=2001:db8:6:1:: icmpv6.opt.prefix.length=64 icmpv6.opt.prefix.flag.l=0 icmpv6.opt.prefix.flag.a=1 " +
			"icmpv6.opt.prefix.valid_lifetime=4294967295 icmpv6.opt.prefix.preferred_lifetime=4294967295 icmpv6.opt.mtu=1400 " +
			"icmpv6.opt.rdnss=2001:db8::53,2001:db8:1::53 icmpv6.opt.rdnss.lifetime=64800 icmpv6.opt.dnssl=example.com,lab.example icmpv6.opt.dnssl.lifetime=64800 " +
			"icmpv6.opt.pref64.scaled_lifetime=8100,8100 icmpv6.opt.pref64.plc=0x0000,0x0003 icmpv6.opt.pref64.prefix=64:ff9b::,2001:db8:64::",
		"icmpv6.nd.na.flag.r=1 icmpv6.nd.na.flag.s=1 icmpv6.nd.na.flag.o=0 icmpv6.nd.na.target_address=fe80::1",
		"dhcpv6.msgtype=7 dhcpv6.xid=0xabcdef dhcpv6.duiduuid.bytes=01000000000000000000000000000010 dhcpv6.dns_server=2001:db8::53,2001:db8:1::53 " +
			"dhcpv6.search_list_entry=example.com.,lab.example. dhcpv6.lifetime=86400 dhcpv6.option.type=2,1,23,24,32,83",
		"dhcpv6.msgtype=7 dhcpv6.status_code=5",
		"icmpv6.type=129",
		"dhcpv6.msgtype=7 dhcpv6.iaid=00000007 dhcpv6.iaid.t1=500 dhcpv6.iaid.t2=800 dhcpv6.iaprefix.pref_lifetime=1000 dhcpv6.iaprefix.valid_lifetime=1000 " +
			"dhcpv6.iaprefix.pref_len=59 dhcpv6.iaprefix.pref_addr=2001:db8:dead:bee0:: dhcpv6.option.type=2,1,25,26,67",
		"dhcpv6.msgtype=7 dhcpv6.iaid=00000008 dhcpv6.status_code=3",
	} {
		filter := "frame.number==" + string(rune('1'+i))
		args := []string{"-Y", filter, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=|"}
		var values []string
		for _, pair := range strings.Fields(want) {
			name, value, _ := strings.Cut(pair, "=")
			args = append(args, "-e", name)
			values = append(values, value)
		}
		if got := strings.TrimSpace(tsharktest.Run(t, capture, args...)); got != strings.Join(values, "|") {
			t.Errorf("answer %d: tshark reads\n%s, want\n%s", i+1, got, strings.Join(values, "|"))
		}
	}
}
