// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChoose(t *testing.T) {
	good := candidate{addressed: true, up: true}
	routed := candidate{addressed: true, up: true, routed: true}
	doubted := candidate{addressed: true, up: true, doubted: true}
	routedDoubted := candidate{addressed: true, up: true, doubted: true, routed: true}
	dark := candidate{addressed: true, routed: true}
	none := candidate{up: true, routed: true}
	tests := []struct {
		name   string
		list   []candidate
		active int
		want   int
	}{
		{"nothing yet", []candidate{{}, {}}, -1, -1},
		{"the first that is there", []candidate{{}, good}, -1, 1},
		{"the best one comes", []candidate{good, good}, 1, 1},
		{"routes lead to another", []candidate{good, routed}, 0, 1},
		{"routes lead to one without address", []candidate{none, good}, -1, 1},
		{"the carrier is gone", []candidate{dark, good}, 0, 1},
		{"the server is silent there", []candidate{routedDoubted, good}, 0, 1},
		{"confirmed again", []candidate{routed, good}, 1, 0},
		{"all are doubted", []candidate{doubted, doubted}, 1, 1},
		{"all are doubted, that in use is lost", []candidate{doubted, none}, 1, 0},
		{"the one in use is lost and there is no other", []candidate{{}, none}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := choose(tt.list, tt.active); got != tt.want {
				t.Errorf("chose %d, want %d", got, tt.want)
			}
		})
	}
}

func TestRecent(t *testing.T) {
	var r recent
	start := time.Unix(1_700_000_000, 0)
	addr := func(i int) [16]byte { return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)).As16() }
	for i := range 10 {
		a := addr(i)
		if !r.note(&a, start.Add(time.Duration(i)*time.Second)) {
			t.Errorf("destination %d is not new", i)
		}
	}
	again := addr(5)
	if r.note(&again, start.Add(10*time.Second)) {
		t.Error("a known destination is new")
	}
	var got []string
	for _, a := range r.peers(start.Add(36 * time.Second)) {
		got = append(got, a.String())
	}
	want := []string{"2001:db8::6", "2001:db8::a", "2001:db8::9", "2001:db8::8", "2001:db8::7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("destinations of the last 30 s (-want +got):\n%s", diff)
	}
	if got := r.peers(start.Add(time.Minute)); len(got) != 0 {
		t.Errorf("%v are not forgotten", got)
	}
}
