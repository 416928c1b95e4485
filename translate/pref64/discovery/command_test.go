// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/role"
)

// TestCommand asks a name server that a test stands in for.
func TestCommand(t *testing.T) {
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
		fails  bool
		usage  bool // since the command line is wrong
		out    string
		err    string
	}{
		{"found", asked(), true, false, false, "2001:db8:64::/96  by dns\n", ""},
		{"found, as JSON", asked("--json"), true, false, false, `"prefix": "2001:db8:64::/96"`, ""},
		{"not found", asked(), false, true, false, "", "no NAT64 was found"},
		{"not found, as JSON", asked("--json"), false, true, false, "[]\n", ""},
		{"a name server that is none", []string{"--resolver", "dns.example.net"}, true, true, true, "", "not the address of a name server"},
		{"an interface that is none", []string{"--interface", "none0"}, true, true, false, "", "there is no interface none0"},
		{"an IPv6 host behind the NAT64", asked("--check", "2001:db8::1"), true, true, true, "", "not an IPv4 address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			useful.Store(tt.useful)
			var command Command
			parser, err := kong.New(&command)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.Parse(append([]string{"discover"}, tt.args...))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			parsed.BindTo(&out, (*io.Writer)(nil))
			parsed.BindTo(t.Context(), (*context.Context)(nil))
			err = parsed.Run()
			if usage := errors.As(err, new(role.UsageError)); usage != tt.usage || err != nil != tt.fails || !strings.Contains(out.String(), tt.out) || tt.err != "" && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v\n%s", err, &out)
			}
		})
	}
}

// TestCommandTellsOfBroken: a script learns by the status that a prefix does not work.
func TestCommandTellsOfBroken(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		c := discoverCommand{JSON: asJSON}
		err := c.print(&out, []foundPrefix{{Source: "dns", Problem: "no one answers"}})
		if !errors.Is(err, role.ErrReported) || !strings.Contains(out.String(), "no one answers") {
			t.Errorf("JSON %t: error %v\n%s", asJSON, err, &out)
		}
	}
}
