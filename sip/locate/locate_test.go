// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
)

// zone answers from lists.
type zone struct {
	services  map[string][]*net.SRV
	addresses map[string][]string
}

func (z zone) LookupSRV(_ context.Context, service, protocol, name string) (string, []*net.SRV, error) {
	list := z.services["_"+service+"._"+protocol+"."+name]
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

// TestResolve finds where URIs lead (RFC 3263 section 4).
func TestResolve(t *testing.T) {
	names := zone{
		services: map[string][]*net.SRV{
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
	} {
		u, err := message.ParseURI(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, one := range resolve(t.Context(), names, &u, tt.transport) {
			words = append(words, fmt.Sprintf("%s %s", one.Transport, one.Remote))
		}
		if got := strings.Join(words, ", "); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
