// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// steady are one datagram for each way through the engine.
var steady = []struct {
	name string
	in   string
}{
	{"solicitation", "00010000" + nonce + "00" + rsMiredo},
	{"authenticated solicitation", auth(north, valueRS1, "00") + rsMiredo},
	{"solicitation with SHA-256", auth(south, valueRS2, "00") + rsMiredo},
	{"wrong authentication", auth(south, valueRS1, "00") + rsMiredo},
	{"bubble", bubble(255, client, peer)},
	{"native", echo(64)},
	{"echo", "6000000000103a40" + client + linkServer + "8000e4de" + echoData},
	{"drop", bubble(255, client, native)[:60]},
}

// limited sets rates that the tests do not reach, so that buckets are at work.
func limited(c *Config) {
	c.PerSource = ratelimit.PerSecond(1_000_000_000, 1_000_000_000)
	c.Total = c.PerSource
	c.Keys = keys
}

// restorer hands out the same datagram again and again, since the engine may
// rewrite what it gets.
func restorer(datagram []byte) func() []byte {
	buf := bytes.Clone(datagram)
	return func() []byte {
		copy(buf, datagram)
		return buf
	}
}

func TestNoAllocation(t *testing.T) {
	from := netip.MustParseAddrPort(clientAddr)
	for _, tt := range steady {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, limited)
			next := restorer(testutil.Unhex(t, tt.in))
			var out packet.Batch
			n := testing.AllocsPerRun(1000, func() {
				out.Reset()
				e.HandleUDP(from, Primary, next(), now, &out)
			})
			if n != 0 {
				t.Errorf("%v allocations per packet", n)
			}
		})
	}
}

func BenchmarkHandleUDP(b *testing.B) {
	from := netip.MustParseAddrPort(clientAddr)
	for _, tt := range steady {
		b.Run(tt.name, func(b *testing.B) {
			e := newEngine(b, limited)
			next := restorer(testutil.Unhex(b, tt.in))
			var out packet.Batch
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				e.HandleUDP(from, Primary, next(), now, &out)
			}
		})
	}
}
