// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSolicitation(t *testing.T) {
	if b := AppendSolicitation(nil); !IsSolicitation(b) || !bytes.Equal(b, octets(t, "85 00 0000 00000000")) {
		t.Errorf("%x", b)
	}
	for _, tt := range []struct {
		octets string
		want   bool
	}{
		{"85 00 0000 00000000 01 01 020000000001", true},
		{"85 00 0000 00000000 01 00 020000000001", false},
		{"85 00 0000 00000000 01 02 020000000001", false},
		{"85 00 0000 00000000 01", false},
		{"85 01 0000 00000000", false},
		{"86 00 0000 00000000", false},
		{"85 00 0000", false},
	} {
		if got := IsSolicitation(octets(t, tt.octets)); got != tt.want {
			t.Errorf("%s: %v", tt.octets, got)
		}
	}
}

func TestSearch(t *testing.T) {
	for _, tt := range []struct {
		name      string
		addresses []string
		want      []string
	}{
		{"/96", []string{"2001:db8:64::192.0.0.170"}, []string{"2001:db8:64::/96"}},
		{"/64", []string{"2001:db8:64:1:c0:0:aa00::"}, []string{"2001:db8:64:1::/64"}},
		{"/56", []string{"2001:db8:64:1c0:0:aa::"}, []string{"2001:db8:64:100::/56"}},
		{"/48", []string{"2001:db8:64:c000:0:aa00::"}, []string{"2001:db8:64::/48"}},
		{"/40", []string{"2001:db8:64c0::aa:0:0:0"}, []string{"2001:db8:6400::/40"}},
		{"/32", []string{"2001:db8:c000:aa::"}, []string{"2001:db8::/32"}},
		{"the well-known prefix", []string{"64:ff9b::192.0.0.170", "64:ff9b::192.0.0.171"}, []string{"64:ff9b::/96"}},
		{"by the other address alone", []string{"2001:db8:64::192.0.0.171"}, []string{"2001:db8:64::/96"}},
		{"several, in their order", []string{"2001:db8:66::192.0.0.170", "2001:db8:66::192.0.0.171", "64:ff9b::192.0.0.170", "2001:db8:65::192.0.0.170"},
			[]string{"2001:db8:66::/96", "64:ff9b::/96", "2001:db8:65::/96"}},
		{"a suffix", []string{"2001:db8:c000:aa::1"}, []string{"2001:db8::/32"}},
		{"twice the same: the other address decides", []string{"2001:db8:c000:aa::c000:aa", "2001:db8:c000:aa::c000:ab"}, []string{"2001:db8:c000:aa::/96"}},
		{"twice, once off the places of RFC 6052", []string{"2001:db8:0:c0:0:aa:c000:aa"}, nil},
		{"an address that says nothing", []string{"2001:db8::1", "::ffff:192.0.0.170", "192.0.0.170"}, nil},
		{"off the places of RFC 6052", []string{"2001:db8:64:1:0:c000:aa:0"}, nil},
		{"a prefix that no packet goes to", []string{"fe80::192.0.0.170", "ff02::192.0.0.170"}, nil},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var addresses []netip.Addr
			for _, a := range tt.addresses {
				addresses = append(addresses, netip.MustParseAddr(a))
			}
			var got []string
			for _, p := range Search(addresses) {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSchedule sends thrice early, then at random within the interval, and soon when
// asked.
func TestSchedule(t *testing.T) {
	now := start
	s := NewSchedule(DefaultInterval, rand.New(rand.NewPCG(1, 2)), now)
	if !s.Next().Equal(now) {
		t.Error("the first is due at once")
	}
	for i := range 50 {
		now = s.Next()
		s.Sent(now)
		wait := s.Next().Sub(now)
		if i < initialCount-1 && wait > initialInterval || wait > DefaultInterval || i >= initialCount && wait < DefaultInterval/3 {
			t.Errorf("wait %v behind number %d", wait, i)
		}
	}
	s.Solicited(now.Add(time.Second))
	if wait := s.Next().Sub(now); wait != delayBetween {
		t.Errorf("%v behind another", wait)
	}
	s.Solicited(now.Add(2 * time.Second))
	if wait := s.Next().Sub(now); wait != delayBetween {
		t.Errorf("two who ask: %v", wait)
	}
	later := now.Add(time.Minute)
	s.Sent(now)
	s.Solicited(later)
	if wait := s.Next().Sub(later); wait < 0 || wait >= solicitedDelay {
		t.Errorf("answered after %v", wait)
	}
	s.Soon(MinInterval, later)
	if !s.Next().Equal(later) {
		t.Error("news are not told at once")
	}
	s.Sent(later)
	s.Soon(MinInterval, later.Add(time.Second))
	if wait := s.Next().Sub(later); wait != delayBetween {
		t.Errorf("news behind news: %v", wait)
	}
	s.Sent(s.Next())
	if wait := s.Next().Sub(later); wait > delayBetween+MinInterval {
		t.Errorf("%v with a short interval", wait)
	}
	now = later.Add(time.Hour)
	s.Soon(MaxInterval, now)
	for range 10 {
		now = s.Next()
		s.Sent(now)
		s.Failed(now)
		if wait := s.Next().Sub(now); wait != delayBetween {
			t.Errorf("%v behind one that could not be sent", wait)
		}
	}
	s.Sent(now.Add(time.Minute))
	s.Solicited(now.Add(time.Minute + 5*time.Second))
	asked := s.Next()
	s.Failed(now.Add(time.Minute))
	if !s.Next().Equal(asked) {
		t.Errorf("one that could not be sent moved the next, which was asked for, by %v", s.Next().Sub(asked))
	}
	for range initialCount - 1 {
		now = s.Next()
		s.Sent(now)
		if wait := s.Next().Sub(now); wait > initialInterval {
			t.Errorf("%v behind one of the first that could be sent", wait)
		}
	}
}

func TestAskTimes(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want time.Duration
	}{
		{"ten seconds before the end", AskAgain(600 * time.Second), 590 * time.Second},
		{"at an end that is near", AskAgain(9 * time.Second), 9 * time.Second},
		{"not at once", AskAgain(0), time.Second},
		{"in use until others can be learnt", Keep(600 * time.Second), 600*time.Second + behindEnd},
		{"in use while it is asked for again", Keep(0), time.Second + behindEnd},
		{"not never", AskAgain(1000 * time.Hour), longest},
		{"a negative answer that says how long", AskAfterNegative(900 * time.Second), 900 * time.Second},
		{"one that does not", AskAfterNegative(0), negativeTime},
		{"the first failure", AskAfterFailures(1), 2 * time.Second},
		{"the third", AskAfterFailures(3), 8 * time.Second},
		{"the hundredth", AskAfterFailures(100), failureMost},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

// FuzzSearch finds in any address a prefix that makes this address, but for a suffix.
func FuzzSearch(f *testing.F) {
	for _, text := range []string{"2001:db8:64::192.0.0.170", "2001:db8:c000:aa::c000:aa", "2001:db8:64c0::aa:0:0:0"} {
		a := netip.MustParseAddr(text).As16()
		f.Add(a[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		for _, p := range Search([]netip.Addr{a, a}) {
			if !p.Contains(a) || p != p.Masked() {
				t.Errorf("%s is not in %s", a, p)
			}
		}
	})
}
