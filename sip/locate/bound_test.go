// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package locate

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
)

// counted counts questions.
type counted struct {
	zone
	questions int
}

func (c *counted) LookupNAPTR(ctx context.Context, name string) ([]NAPTR, error) {
	c.questions++
	return c.zone.LookupNAPTR(ctx, name)
}

func (c *counted) LookupSRV(ctx context.Context, service, protocol, name string) (string, []*net.SRV, error) {
	c.questions++
	return c.zone.LookupSRV(ctx, service, protocol, name)
}

func (c *counted) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c.questions++
	return c.zone.LookupNetIP(ctx, network, host)
}

// TestBounds asks no more than is of use, and has targets of both families.
func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name      string
		addresses func(host int) []string
		questions int
		of6, of4  int
	}{
		{"hosts without an address", func(int) []string { return nil }, maxQuestions, 0, 0},
		{"enough of both families", func(host int) []string {
			return []string{fmt.Sprintf("2001:db8::%x", host), fmt.Sprintf("192.0.2.%d", host)}
		}, 18, perFamily, perFamily},
		{"IPv6 alone, but for the last", func(host int) (list []string) {
			if host == perFamily {
				return []string{"192.0.2.1"}
			}
			for i := range 20 {
				list = append(list, fmt.Sprintf("2001:db8::%x:%x", host, i))
			}
			return list
		}, maxQuestions, perFamily, 1},
	} {
		names := &counted{zone: zone{naptr: map[string][]NAPTR{}, services: map[string][]*net.SRV{}, addresses: map[string][]string{}}}
		for i := range maxServices {
			service := fmt.Sprintf("service%d.example.", i)
			names.naptr["example.net"] = append(names.naptr["example.net"], NAPTR{1, uint16(i), "s", "SIP+D2U", "", service})
			for j := range maxServices {
				host := 1 + i*maxServices + j
				name := fmt.Sprintf("host%d.example", host)
				names.services[service] = append(names.services[service], &net.SRV{Target: name + ".", Port: 5060})
				names.zone.addresses[name] = tt.addresses(host)
			}
		}
		u := message.URI{Scheme: "sip", Host: "example.net"}
		of6, of4 := 0, 0
		for _, one := range URI(t.Context(), names, &u, "UDP", everything) {
			if one.Remote.Addr().Is4() {
				of4++
			} else {
				of6++
			}
		}
		if names.questions != tt.questions || of6 != tt.of6 || of4 != tt.of4 {
			t.Errorf("%s: %d questions, %d targets of IPv6 and %d of IPv4, want %d, %d and %d", tt.name, names.questions, of6, of4, tt.questions, tt.of6, tt.of4)
		}
	}
}

// TestUsable leaves out what cannot be reached: it takes no place of the others, and is not asked for.
func TestUsable(t *testing.T) {
	names := &counted{zone: zone{
		naptr: map[string][]NAPTR{"example.net": {
			{1, 1, "s", "SIPS+D2T", "", "tls.example."}, {2, 1, "s", "SIP+D2T", "", "tcp.example."}, {3, 1, "s", "SIP+D2U", "", "udp.example."},
		}},
		services: map[string][]*net.SRV{
			"tcp.example.": {{Target: "a.example.", Port: 5060}}, "udp.example.": {{Target: "a.example.", Port: 5060}},
		},
		addresses: map[string][]string{"a.example": {"192.0.2.99", "2001:db8::99"}},
	}}
	for i := range maxServices {
		host := fmt.Sprintf("tls%d.example", i)
		names.services["tls.example."] = append(names.services["tls.example."], &net.SRV{Target: host + ".", Port: 5061})
		names.addresses[host] = []string{fmt.Sprintf("192.0.2.%d", i+1)}
	}
	for _, tt := range []struct {
		name, uri, transport string
		usable               Usable
		questions            int
		want                 string
	}{
		{"no TLS", "sip:example.net", "UDP", func(transport string, _ bool) bool { return transport != "TLS" }, 7,
			"TCP [2001:db8::99]:5060, TCP 192.0.2.99:5060, UDP [2001:db8::99]:5060, UDP 192.0.2.99:5060"},
		{"TLS by IPv6 alone", "sip:example.net", "UDP", func(transport string, v4 bool) bool { return transport != "TLS" || !v4 }, 16,
			"TCP [2001:db8::99]:5060, TCP 192.0.2.99:5060, UDP [2001:db8::99]:5060, UDP 192.0.2.99:5060"},
		{"IPv4 alone, without TLS", "sip:example.net", "UDP", func(transport string, v4 bool) bool { return transport != "TLS" && v4 }, 5,
			"TCP 192.0.2.99:5060, UDP 192.0.2.99:5060"},
		{"sips without TLS", "sips:example.net", "TLS", func(transport string, _ bool) bool { return transport != "TLS" }, 1, ""},
	} {
		u, err := message.ParseURI(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		names.questions = 0
		if got := written(URI(t.Context(), names, &u, tt.transport, tt.usable)); got != tt.want || names.questions != tt.questions {
			t.Errorf("%s: by %d questions %s, want by %d %s", tt.name, names.questions, got, tt.questions, tt.want)
		}
	}
}

// filtered answers as Go's resolver does where some records name no host.
type filtered struct{ zone }

func (f filtered) LookupSRV(ctx context.Context, service, protocol, name string) (string, []*net.SRV, error) {
	cname, list, _ := f.zone.LookupSRV(ctx, service, protocol, name)
	return cname, list, &net.DNSError{Err: "DNS response contained records which contain invalid names", Name: name}
}

// TestInvalidRecord has one record of a service name no host: the others are servers all the same.
func TestInvalidRecord(t *testing.T) {
	names := filtered{zone{
		services:  map[string][]*net.SRV{"_sip._udp.example.net": {{Target: "a.example.", Port: 5080}, {Target: "b.example.", Port: 5081}}},
		addresses: map[string][]string{"a.example": {"192.0.2.1"}, "b.example": {"192.0.2.2"}, "example.net": {"192.0.2.9"}},
	}}
	u := message.URI{Scheme: "sip", Host: "example.net"}
	got := URI(t.Context(), names, &u, "UDP", everything)
	if len(got) != 2 || got[0].Remote.String() != "192.0.2.1:5080" || got[1].Remote.String() != "192.0.2.2:5081" {
		t.Errorf("%+v", got)
	}
}
