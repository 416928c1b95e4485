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
		for _, one := range URI(t.Context(), names, &u, "UDP") {
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
	got := URI(t.Context(), names, &u, "UDP")
	if len(got) != 2 || got[0].Remote.String() != "192.0.2.1:5080" || got[1].Remote.String() != "192.0.2.2:5081" {
		t.Errorf("%+v", got)
	}
}
