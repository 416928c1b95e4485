// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
)

// TestIdleStreamsGiveWay fills all places by silent connections of many addresses of one
// /64: a newcomer takes the place of the one that is silent longest, not of one that asks.
func TestIdleStreamsGiveWay(t *testing.T) {
	var s streams
	s.set(16)
	now := time.Unix(1000, 0)
	enter := func(from string, at time.Time) *stream {
		one, _ := s.enter(new(net.TCPConn), netip.MustParseAddr(from), at)
		return one
	}
	first, second := enter("2001:db8:1::1", now), enter("2001:db8:1::2", now.Add(time.Millisecond))
	if first == nil || second == nil {
		t.Fatal("no places")
	}
	if enter("2001:db8:1::3", now.Add(leastIdle/2)) != nil {
		t.Error("a third place for one /64, whose connections are young")
	}
	s.asked(first, now.Add(leastIdle))
	if enter("2001:db8:1::3", now.Add(2*leastIdle)) == nil || !s.open[first] || s.open[second] {
		t.Error("the silent one stays")
	}
	s.leave(second) // it hears of it later
	if s.count() != 2 || s.by[first.client] != 2 {
		t.Errorf("%d connections, %v", s.count(), s.by)
	}
	for i := range 14 {
		if enter(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String(), now.Add(3*leastIdle)) == nil {
			t.Fatal("no place for another client")
		}
	}
	if enter("::ffff:192.0.2.99", now.Add(3*leastIdle)) == nil || s.open[first] || s.count() != 16 {
		t.Error("all are taken, and the silent one stays")
	}
}

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

// TestListenTwice: the operator hears that it is the list that takes a port twice.
func TestListenTwice(t *testing.T) {
	port := free(t).Port()
	for _, listen := range [][]string{{"::", "127.0.0.1"}, {"::", "0.0.0.0"}, {"0.0.0.0", "::"}, {"127.0.0.1", "::"}, {"::", "::1"}, {"127.0.0.1", "127.0.0.1"}} {
		cfg := config.DefaultDNS64()
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
