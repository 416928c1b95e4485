// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestResolvers(t *testing.T) {
	var all []netip.AddrPort
	for _, a := range []string{"2001:db8::53", "127.0.0.53", "::1", "192.0.2.1", "2001:db8::54"} {
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr(a), 53))
	}
	want := []netip.AddrPort{all[0], all[4]}
	if got := beyond(all); !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
}

// TestHostsResolversChange has the list of the host's name servers written when the uplink has
// its address already, as by DHCPv6: nothing else changes, and the prefix is found.
func TestHostsResolversChange(t *testing.T) {
	testutil.NeedRoot(t)
	t.Parallel()
	conn, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(knowsPrefix)}
	go func() { _ = server.ActivateAndServe() }()
	defer conn.Close()
	var listed atomic.Bool
	f := &finder{cfg: written(t, ""), log: slog.New(slog.DiscardHandler), fallback: func() []netip.AddrPort {
		if !listed.Load() {
			return nil
		}
		return []netip.AddrPort{conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	}}
	defer f.stop()
	lo := port.Uplink6{Name: "lo", Index: 1}
	if _, err := f.follow(t.Context(), lo, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{0, 1} {
		select {
		case set := <-f.sets:
			if len(set.Prefixes) != want {
				t.Fatalf("it has found %v", set.Prefixes)
			}
		case <-time.After(patience):
			t.Fatalf("it does not tell of %d prefixes", want)
		}
		listed.Store(true)
		if _, err := f.follow(t.Context(), lo, true); err != nil {
			t.Fatal(err)
		}
	}
}

// knowsPrefix answers as a DNS64 of the network's NAT64.
func knowsPrefix(w dns.ResponseWriter, q *dns.Msg) {
	rr, err := dns.NewRR("ipv4only.arpa. 600 IN AAAA 2001:db8:64::192.0.0.170")
	if err != nil {
		panic(err)
	}
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{rr}
	_ = w.WriteMsg(m)
}
