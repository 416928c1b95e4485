// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package locate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// zone answers from lists.
type zone struct {
	naptr     map[string][]NAPTR
	services  map[string][]*net.SRV
	addresses map[string][]string
}

func (z zone) LookupNAPTR(_ context.Context, name string) ([]NAPTR, error) {
	return z.naptr[name], nil
}

func (z zone) LookupSRV(_ context.Context, service, protocol, name string) (string, []*net.SRV, error) {
	if service != "" {
		name = "_" + service + "._" + protocol + "." + name
	}
	list := z.services[name]
	if len(list) == 0 {
		return "", nil, errors.New("none")
	}
	return name, list, nil
}

func (z zone) LookupNetIP(_ context.Context, network, host string) (list []netip.Addr, err error) {
	for _, text := range z.addresses[host] {
		if a := netip.MustParseAddr(text); a.Is4() == (network == "ip4") {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("none")
	}
	return list, nil
}

// written are targets as a text.
func written(list []transaction.Target) string {
	words := make([]string, 0, len(list))
	for _, one := range list {
		words = append(words, fmt.Sprintf("%s %s", one.Transport, one.Remote))
	}
	return strings.Join(words, ", ")
}

func everything(string, bool) bool { return true }

// TestURI finds where URIs lead (RFC 3263 section 4).
func TestURI(t *testing.T) {
	record := func(order, preference uint16, flags, service, expression, to string) NAPTR {
		return NAPTR{order, preference, flags, service, expression, to}
	}
	many := slices.Repeat([]*net.SRV{{Target: "a.example.", Port: 5060}}, 100)
	names := zone{
		naptr: map[string][]NAPTR{
			"naptr.example": {
				record(20, 10, "s", "SIP+D2U", "", "udp.naptr.example."), record(10, 20, "s", "SIP+D2T", "", "tcp.naptr.example."),
				record(10, 10, "S", "sips+d2t", "", "tls.naptr.example."), record(1, 1, "s", "SIP+D2S", "", "udp.naptr.example."),
				record(1, 1, "u", "SIP+D2U", "!^.*$!sip:x@y!", "."), record(1, 1, "a", "SIP+D2U", "", "udp.naptr.example."),
			},
			"useless.example": {record(1, 1, "s", "SIP+D2U", "", "nowhere.example."), record(1, 1, "s", "SIP+D2U", "", ".")},
			"many.example":    slices.Repeat([]NAPTR{record(1, 1, "s", "SIP+D2U", "", "many.naptr.example.")}, 100),
		},
		services: map[string][]*net.SRV{
			"udp.naptr.example.": {{Target: "b.example.", Port: 5081}}, "tcp.naptr.example.": {{Target: "b.example.", Port: 5082}},
			"tls.naptr.example.": {{Target: "b.example.", Port: 5083}}, "many.naptr.example.": many, "_sip._udp.useless.example": {{Target: "b.example.", Port: 5084}},
			"_sip._udp.naptr.example": {{Target: "b.example.", Port: 5085}},
			"_sip._udp.both.example":  {{Target: "a.example.", Port: 5080}, {Target: "b.example.", Port: 5060}},
			"_sip._tcp.both.example":  {{Target: "b.example.", Port: 5090}},
			"_sip._tcp.tcp.example":   {{Target: "b.example.", Port: 5090}},
			"_sips._tcp.both.example": {{Target: "a.example.", Port: 5071}},
			"_sip._udp.dead.example":  {{Target: "nowhere.example.", Port: 5060}},
		},
		addresses: map[string][]string{"a.example": {"192.0.2.1", "2001:db8::1"}, "b.example": {"192.0.2.2"}, "both.example": {"192.0.2.9"}, "dead.example": {"192.0.2.8"}},
	}
	for _, tt := range []struct{ name, uri, transport, want string }{
		{"a port", "sip:a.example:5062", "UDP", "UDP [2001:db8::1]:5062, UDP 192.0.2.1:5062"},
		{"services", "sip:both.example", "UDP", "UDP [2001:db8::1]:5080, UDP 192.0.2.1:5080, UDP 192.0.2.2:5060"},
		{"the transport that is asked for", "sip:both.example;transport=tcp", "TCP", "TCP 192.0.2.2:5090"},
		{"TLS", "sips:both.example", "TLS", "TLS [2001:db8::1]:5071, TLS 192.0.2.1:5071"},
		{"services of TCP alone", "sip:tcp.example", "UDP", "TCP 192.0.2.2:5090"},
		{"not another transport than the one asked for", "sip:tcp.example;transport=udp", "UDP", ""},
		{"no service", "sip:a.example", "UDP", "UDP [2001:db8::1]:5060, UDP 192.0.2.1:5060"},
		{"no service of TLS", "sips:b.example", "TLS", "TLS 192.0.2.2:5061"},
		{"a service without an address", "sip:dead.example", "UDP", "UDP 192.0.2.8:5060"},
		{"nothing", "sip:nowhere.example", "UDP", ""},
		{"NAPTR by order and preference", "sip:naptr.example", "UDP", "TLS 192.0.2.2:5083, TCP 192.0.2.2:5082, UDP 192.0.2.2:5081"},
		{"NAPTR of TLS alone", "sips:naptr.example", "TLS", "TLS 192.0.2.2:5083"},
		{"no NAPTR where the URI has a transport", "sip:naptr.example;transport=udp", "UDP", "UDP 192.0.2.2:5085"},
		{"NAPTR that lead nowhere", "sip:useless.example", "UDP", "UDP 192.0.2.2:5084"},
		{"an address", "sip:[2001:db8::7]", "TLS", "TLS [2001:db8::7]:5061"},
		{"maddr", "sip:naptr.example;maddr=192.0.2.7", "UDP", "UDP 192.0.2.7:5060"},
	} {
		u, err := message.ParseURI(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		if got := written(URI(t.Context(), names, &u, tt.transport, everything)); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
	u, _ := message.ParseURI("sip:many.example")
	if n := len(URI(t.Context(), names, &u, "UDP", everything)); n != maxTargets {
		t.Errorf("%d targets of a domain that names far too many", n)
	}
}

// TestSystem asks name servers by sockets: the first says nothing of use, the second cuts off what it
// says by UDP.
func TestSystem(t *testing.T) {
	serve := func(network string, handle dns.HandlerFunc) string {
		ready := make(chan struct{})
		s := &dns.Server{Addr: "127.0.0.1:0", Net: network, Handler: handle, NotifyStartedFunc: func() { close(ready) }}
		go func() { _ = s.ListenAndServe() }()
		<-ready
		t.Cleanup(func() { _ = s.Shutdown() })
		if network == "udp" {
			return s.PacketConn.LocalAddr().String()
		}
		return s.Listener.Addr().String()
	}
	answer := func(change func(*dns.Msg)) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			change(m)
			_ = w.WriteMsg(m)
		}
	}
	at := map[string]string{
		"udp 127.0.0.2:53": serve("udp", answer(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure })),
		"udp 127.0.0.3:53": serve("udp", answer(func(m *dns.Msg) { m.Truncated = true })),
		"tcp 127.0.0.3:53": serve("tcp", answer(func(m *dns.Msg) {
			rr, err := dns.NewRR(m.Question[0].Name + ` NAPTR 10 20 "s" "SIP+D2T" "" _sip._tcp.example.net.`)
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
		})),
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.2\nnameserver 127.0.0.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := NewSystem(func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at[network+" "+address])
	})
	names.Servers = file
	got, err := names.LookupNAPTR(t.Context(), "example.net")
	want := []NAPTR{{10, 20, "s", "SIP+D2T", "", "_sip._tcp.example.net."}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
