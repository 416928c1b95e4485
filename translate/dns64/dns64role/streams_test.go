// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSilence: a name server that seems silent again and again is told of once a minute,
// and when it is well again only if it was told that it was not.
func TestSilence(t *testing.T) {
	var s silence
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	for _, step := range []struct {
		after time.Duration
		well  bool
		news  bool
	}{
		{0, true, false},
		{1 * time.Second, false, true},
		{2 * time.Second, false, false},
		{3 * time.Second, true, true},
		{4 * time.Second, false, false},
		{5 * time.Second, true, false},
		{6 * time.Second, false, false},
		{1*time.Second + silenceAgain, false, true}, // still, or again: now it is time
		{2*time.Second + silenceAgain, true, true},
	} {
		if got := s.news(step.well, at(step.after)); got != step.news {
			t.Errorf("after %v, well %v: news %v", step.after, step.well, got)
		}
	}
}

// TestListenOnAllOfIPv4: that is none of IPv6's, where another socket may be.
func TestListenOnAllOfIPv4(t *testing.T) {
	port := free(t).Port()
	at, beside := netip.AddrPortFrom(netip.IPv4Unspecified(), port), netip.AddrPortFrom(netip.IPv6Loopback(), port)
	r := serve(t, func(c *Settings) { c.Listen = []netip.AddrPort{at} }, free(t))
	r.at = netip.AddrPortFrom(loopback, port)
	for _, network := range []string{"udp", "tcp"} {
		r.query(t, network, func(q *dns.Msg) { q.SetQuestion("localhost.", dns.TypeAAAA) })
		client := &dns.Client{Net: network, Timeout: patience}
		m, _, err := client.Exchange(new(dns.Msg).SetQuestion("localhost.", dns.TypeAAAA), beside.String())
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v answers %v, %v", network, beside, m, err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, listen := range [][]netip.AddrPort{{at, beside}, {beside, at}} {
		cfg := defaults()
		cfg.Listen = listen
		sockets, err := open(cfg.Listen)
		if err != nil {
			t.Errorf("%v: %v", listen, err)
		}
		sockets.close()
		if err := Examine(cfg); err != nil {
			t.Errorf("%v: %v", listen, err)
		}
	}
}

// TestListenTwice: the operator hears that it is the list that takes a port twice.
func TestListenTwice(t *testing.T) {
	port := free(t).Port()
	for _, listen := range [][]string{{"::", "127.0.0.1"}, {"::", "0.0.0.0"}, {"0.0.0.0", "::"}, {"127.0.0.1", "::"}, {"::", "::1"}, {"127.0.0.1", "127.0.0.1"}} {
		cfg := defaults()
		cfg.Listen = nil
		for _, a := range listen {
			cfg.Listen = append(cfg.Listen, netip.AddrPortFrom(netip.MustParseAddr(a), port))
		}
		sockets, opening := open(cfg.Listen)
		if opening == nil {
			sockets.close()
		}
		for _, err := range []error{opening, Examine(cfg)} {
			if err == nil || strings.Contains(err.Error(), "another program") || !strings.Contains(err.Error(), "leave one of them out") {
				t.Errorf("%v: %v", listen, err)
			}
		}
	}
}
