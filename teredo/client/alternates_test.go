// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

func alternates(list ...string) (t teredo.Trailers) {
	t.Nonce = 7
	for i, s := range list {
		t.Alternates[i] = netip.MustParseAddrPort(s)
	}
	t.NumAlt = len(list)
	return t
}

// Whom alternate addresses may aim our bubbles at: neighbours behind our own NAT,
// and no one else.
func TestAlternates(t *testing.T) {
	for _, tt := range []struct {
		name    string
		option  option
		src     netip.Addr
		list    []string
		bubbled []string
		dropped string
	}{
		{"neighbour", nil, neighbour, []string{"192.168.1.7:4000"}, []string{"192.168.1.7:4000"}, ""},
		{"four of them", nil, neighbour, []string{"192.168.1.7:4000", "192.168.1.8:4000", "10.0.0.1:4000", "172.16.0.1:4000"},
			[]string{"192.168.1.7:4000", "192.168.1.8:4000", "10.0.0.1:4000", "172.16.0.1:4000"}, ""},
		{"client with another public address", nil, peerAddr, []string{"192.168.1.7:4000"}, nil, ""},
		{"stranger in the Internet", nil, peerAddr, []string{"203.0.113.99:4000"}, nil, ""},
		{"range that is allowed", func(c *client.Config) { c.Alternates = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
			peerAddr, []string{"10.0.0.1:4000", "192.168.1.7:4000"}, []string{"10.0.0.1:4000"}, ""},
		{"ourselves", nil, neighbour, []string{"192.168.1.2:3551", "192.168.1.2:4000", "198.51.100.10:4000"}, nil, "alternate_refused 3"},
		{"broadcast", nil, neighbour, []string{"192.168.1.255:4000"}, nil, "alternate_refused 1"},
		{"port of a service", nil, neighbour, []string{"192.168.1.7:53", "192.168.1.7:1023"}, nil, "alternate_refused 2"},
		{"its mapped address again", nil, neighbour, []string{"198.51.100.10:41000"}, nil, ""},
		{"switched off", func(c *client.Config) { c.NoHairpin = true }, neighbour, []string{"192.168.1.7:4000"}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var options []option
			if tt.option != nil {
				options = append(options, tt.option)
			}
			b := newQualified(t, options...)
			b.c.LocalChanged(local, []netip.Addr{netip.MustParseAddr("192.168.1.255")}, b.now, &b.out)
			b.indirect(tt.src, alternates(tt.list...))
			var got []string
			mapped, _ := teredo.ParseAddr(tt.src, teredo.Prefix)
			for _, d := range b.out.UDP {
				if d.To != mapped.Mapped && d.To.Addr() != peerServer {
					got = append(got, d.To.String())
					p, _ := teredo.Parse(d.Payload)
					if tr, _ := teredo.ParseTrailers(p.Trailers); !teredo.IsBubble(p.IPv6) || tr.Nonce != 7 || tr.NumAlt != 0 {
						t.Errorf("sent %x", d.Payload)
					}
				}
			}
			b.want("bubbles", got, tt.bubbled...)
			if got := b.dropped(); got != tt.dropped {
				t.Errorf("dropped %q, want %q", got, tt.dropped)
			}
		})
	}
}

// Alternate addresses that are no unicast addresses, or in a place where they may
// not be.
func TestMalformedAlternates(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:4000", "224.0.0.1:4000", "255.255.255.255:4000", "0.0.0.0:4000", "240.0.0.1:4000", "192.168.1.7:0"} {
		b := newQualified(t)
		b.want(bad, b.indirect(neighbour, alternates(bad)))
		if got := b.dropped(); got != "bad_alternate_address 1" {
			t.Errorf("%s: dropped %q", bad, got)
		}
	}
	b := newQualified(t)
	b.want("direct bubble", b.on(0, peerMapping, withTrailers(peerAddr, b.address(), alternates("192.168.1.7:4000"))))
	b.want("sent to a peer that is proved",
		b.indirect(peerAddr, alternates("192.168.1.7:4000")), "to peer: bubble with nonce")
}

// However many clients claim our public address, bubbles to alternates are few.
func TestAlternatesAreLimited(t *testing.T) {
	b := newQualified(t)
	for i := range 100 {
		src := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.AddrPortFrom(mapping.Addr(), uint16(42000+i))}.IP()
		b.indirect(src, alternates("192.168.1.7:4000", "192.168.1.8:4000", "192.168.1.9:4000", "192.168.1.10:4000"))
	}
	if n := b.c.Stats().AlternateBubbles; n != 40 {
		t.Errorf("%d bubbles for 400 alternates at once", n)
	}
}
