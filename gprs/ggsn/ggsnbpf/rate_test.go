// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf_test

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// A context, and all of its terminal together, pass no more than their rates allow: the time that has gone by, and what
// they may be ahead.
func TestRates(t *testing.T) {
	const (
		octet = time.Millisecond    // what one costs at 8 kbit/s
		ahead = 3000 * octet        // see policer.go: two packets of 1500 octets
		cost  = uint64(octet) << 16 // as records have it
		tries = 60
	)
	w := newWorld(t)
	ip := inside(host6, terminal6, packet.ProtoUDP, 100)
	each := time.Duration(len(ip)) * octet
	for _, at := range runtest.Hooks {
		for name, limit := range map[string]func() *ggsn.SharedRate{
			"own":      func() *ggsn.SharedRate { return &w.context.Down.Rate },
			"together": func() *ggsn.SharedRate { w.context.Aggregate = 7; return &w.shared.Aggregates[7].Down },
		} {
			t.Run(string(at)+"/"+name, func(t *testing.T) {
				plain := *w.context
				rate := limit()
				defer func() { *rate = ggsn.SharedRate{}; *w.context = plain }()
				begin := time.Now()
				*rate = ggsn.SharedRate{Cost: cost, Arrival: uint64(begin.Sub(w.epoch))}
				passed := 0
				for range tries {
					if verdict, _ := w.run(t, at, ip); verdict == fastpath.Forward {
						passed++
					}
				}
				gone := time.Since(begin)
				if most := int((gone+ahead)/each) + 1; passed > most {
					t.Errorf("%d packets passed in %s, and no more than %d may", passed, gone, most)
				}
				if least := min(int((ahead-1500*octet)/each), tries); passed < least {
					t.Errorf("%d packets passed, and %d may at once", passed, least)
				}
				if w.context.Down.Packets != uint64(passed) || w.context.Down.Over != uint64(tries-passed) {
					t.Errorf("%d passed of %d, and the context counts %d and %d", passed, tries, w.context.Down.Packets, w.context.Down.Over)
				}
				if left := time.Duration(rate.Arrival) - begin.Sub(w.epoch); left < time.Duration(passed)*each-time.Microsecond*tries {
					t.Errorf("%d packets spent %s", passed, left)
				}
			})
		}
	}
}
