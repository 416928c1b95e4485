// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
)

// TestManyCalls has many calls at once in a process; ISTHMUS_MEDIA_CALLS says how many. What is
// missing at the end is what the sender had to leave out, and nothing else.
func TestManyCalls(t *testing.T) {
	n := 50
	if text := os.Getenv("ISTHMUS_MEDIA_CALLS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	h := newHost(t, Config{})
	var parties []*party
	for range n {
		alice, bob := newParty(t, h, "127.0.0.2", nil), newParty(t, h, "127.0.0.9", nil)
		alice.open(t, 0, "127.0.0.2")
		bob.open(t, 0, "127.0.0.9")
		exchange(t, alice, 0, bob)
		parties = append(parties, alice, bob)
	}
	began := time.Now()
	for _, p := range parties {
		await(t, "media", func() bool { s, _ := p.stats(); return s.Received >= 100 })
	}
	var jitter, gap time.Duration
	var sent, skipped, missing uint64
	for _, p := range parties {
		p.Do(func(s *media.Stream, _ time.Time, _ *media.Output) {
			stats := s.Stats()
			jitter, gap = max(jitter, stats.Jitter), max(gap, stats.LongestGap)
			sent, skipped, missing = sent+stats.Sent, skipped+stats.Skipped, missing+p.tally.Missing()
			if stats.Lost != 0 || p.tally.Damaged+p.tally.Displaced+p.tally.Repeated != 0 {
				t.Errorf("%+v, %+v", stats, p.tally)
			}
		})
	}
	if missing > skipped {
		t.Errorf("%d frames are missing, and %d were left out", missing, skipped)
	}
	t.Logf("%d calls for %s: %d packets sent, %d left out, jitter at most %s, gap at most %s", n, time.Since(began).Round(time.Millisecond), sent, skipped, jitter, gap)
}
