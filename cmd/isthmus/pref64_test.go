// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// TestPref64Discover asks a name server that a test stands in for.
func TestPref64Discover(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[bool]string{true: "ipv4only.arpa. 60 IN AAAA 2001:db8:64::192.0.0.170", false: "ipv4only.arpa. 60 IN AAAA 2001:db8::1"}
	var useful atomic.Bool
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		rr, _ := dns.NewRR(answers[useful.Load()])
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	at := conn.LocalAddr().String()
	// Named several times, it is asked again where a busy machine lets it be silent.
	asked := func(args ...string) []string {
		return append(args, "--resolver", at, "--resolver", at, "--resolver", at)
	}
	for _, tt := range []struct {
		name   string
		args   []string
		useful bool
		status int
		out    string
		err    string
	}{
		{"found", asked(), true, 0, "2001:db8:64::/96  by dns\n", ""},
		{"found, as JSON", asked("--json"), true, 0, `"prefix": "2001:db8:64::/96"`, ""},
		{"not found", asked(), false, exitFailed, "", "no NAT64 was found"},
		{"not found, as JSON", asked("--json"), false, exitFailed, "[]\n", ""},
		{"a name server that is none", []string{"--resolver", "dns.example.net"}, true, exitUsage, "", "not the address of a name server"},
		{"an interface that is none", []string{"--interface", "none0"}, true, exitFailed, "", "there is no interface none0"},
		{"an IPv6 host behind the NAT64", asked("--check", "2001:db8::1"), true, exitUsage, "", "not an IPv4 address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			useful.Store(tt.useful)
			var out, failed strings.Builder
			status := execute(append([]string{"pref64", "discover"}, tt.args...), streams{&out, &failed})
			if status != tt.status || !strings.Contains(out.String(), tt.out) || !strings.Contains(failed.String(), tt.err) {
				t.Errorf("status %d\n%s%s", status, &out, &failed)
			}
		})
	}
}

// TestPref64Broken: a script learns by the status that a prefix does not work.
func TestPref64Broken(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		c := Pref64DiscoverCmd{JSON: asJSON}
		err := c.print(&out, []foundPrefix{{Source: "dns", Problem: "nobody answers"}})
		if !errors.Is(err, quietError(exitFailed)) || !strings.Contains(out.String(), "nobody answers") {
			t.Errorf("JSON %t: error %v\n%s", asJSON, err, &out)
		}
	}
}
