// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"time"
)

// The steady clock stands still while the host sleeps, and what was heard a second before
// looks a second old.
func TestResumed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slept time.Duration
		want  []string
	}{
		{"an hour", time.Hour, []string{toServer}},
		{"30 s", 30 * time.Second, []string{toServer}},
		{"a moment", 10 * time.Second, []string{"udp 198.51.100.7:40000 x hop 63"}},
		{"stopped, not slept", 0, []string{"udp 198.51.100.7:40000 x hop 63"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			l := b.r.NewLane()
			b.trust()
			b.r.Publish()
			b.wait(time.Second)
			b.r.Resumed(tt.slept, b.now)
			if tt.want[0] == toServer {
				b.want("lane", b.laneIP(l, data(host, client, "x")), "slow")
			}
			b.want("to the client", b.ip(data(host, client, "x")), tt.want...)
		})
	}
}

// Nor is anything carried for clients whose bindings have ended meanwhile.
func TestResumedEndsBindings(t *testing.T) {
	b := newBench(t, carrying)
	b.bind(client, mapped)
	b.r.Resumed(bindingLife-time.Second, b.now)
	if n := b.r.Sizes().Bound; n != 1 {
		t.Errorf("%d bound after less than a binding lasts", n)
	}
	b.r.Resumed(bindingLife, b.now)
	if n := b.r.Sizes().Bound; n != 0 {
		t.Errorf("%d still bound", n)
	}
}
