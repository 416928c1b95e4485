// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// TestNAT64PuntBudget: a subscriber has one share of what goes to the engine, however many
// /64 its prefix has; one that is smaller than a /64 is a host of that.
func TestNAT64PuntBudget(t *testing.T) {
	to := netip.MustParseAddr("2001:db8:64::198.51.100.2")
	sentBy := func(src string) []byte {
		return ethernet(etherIPv6, whole(udp, 64, 100, netip.MustParseAddr(src), to))
	}
	const here = "2001:db8:1:100::1"
	for _, tt := range []struct {
		name   string
		length int
		other  string
		want   int // in a window, of 10 for a network; one host leaves a quarter to others
	}{
		{"two networks of a /56", 56, "2001:db8:1:1ff::2", 8 + 1},
		{"two /56", 56, "2001:db8:1:200::2", 8 + 8},
		{"two networks that are subscribers", 64, "2001:db8:1:101::2", 8 + 8},
		{"two /56 of a /48", 48, "2001:db8:1:200::2", 8 + 1},
		{"two /96 of a network", 96, "2001:db8:1:100:0:1::1", 8 + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sizes := natSizes
			sizes.SubscriberLength = tt.length
			w := newNATWorld(t, sizes)
			if err := w.fast.Set(nat64bpf.Settings{
				Pool6:    []translatebpf.Prefix{{Prefix: netip.MustParsePrefix("2001:db8:64::/96")}},
				Pool4:    []nat64bpf.Range{{Prefix: netip.PrefixFrom(natPool, 32)}},
				PuntRate: 3000, PuntShare: 150, Tunnel: w.ports[4].index,
			}); err != nil {
				t.Fatal(err)
			}
			if err := w.fast.SetDevice(fastpath.Device{Index: 1, MAC: w.ports[0].mac}); err != nil {
				t.Fatal(err)
			}
			w.fast.Beat(time.Hour)
			for _, p := range []runtest.Hook{runtest.InXDP, runtest.InTC} {
				const times = 30
				frames := [][]byte{sentBy(here), sentBy(tt.other)}
				count := func() map[string]uint64 {
					news, err := w.counted()
					if err != nil {
						t.Fatal(err)
					}
					return news
				}
				r := w.runner(p)
				w.ns.Do(t, func() error {
					inWindow(t, func() { count() }, func() { repeatEach(t, r, times, frames) })
					return nil
				})
				news := count()
				punted := 0
				for reason, n := range news {
					if reason != "punt_limit" {
						punted += int(n)
					}
				}
				if punted != tt.want || punted+int(news["punt_limit"]) != times*len(frames) {
					t.Errorf("%v: %v counted, want %d punts", p, news, tt.want)
				}
			}
		})
	}
}
