// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"net/netip"
	"strings"
	"testing"
	"time"
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
