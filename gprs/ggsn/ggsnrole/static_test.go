// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// BenchmarkReloadStatic reads a file of 100,000 subscribers, each with an address and a prefix of its own, and
// checks it against an access point; held are the octets that each of them takes from then on, cpu is
// the time of processors of a reload, also where the machine does other things, and engine how long the engine takes
// of it, while no packet passes.
func BenchmarkReloadStatic(b *testing.B) {
	const n = 100_000
	var text strings.Builder
	for i := range n {
		a4 := netip.AddrFrom4([4]byte{10, 64 + byte(i>>16), byte(i >> 8), byte(i)})
		fmt.Fprintf(&text, "[[subscriber]]\nimsi = \"24001%010d\"\n[[subscriber.apn]]\nname = \"internet\"\naddress4 = \"%s\"\nprefix6 = \"2001:db8:%x:%x::/64\"\n", i, a4, 0x7200+i>>16, i&0xffff)
	}
	path := filepath.Join(b.TempDir(), "subscribers.toml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	size := text.Len()
	text.Reset()
	cfg := written(b, "", "static4 = [\"10.64.0.0/13\"]\nstatic6 = [\"2001:db8:7200::/39\"]")
	now := time.Unix(1_800_000_000, 0)
	var e *ggsn.Engine
	var who *ggsn.Subscribers
	var engine time.Duration
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	processors := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, busy := heap(), processors()
	for b.Loop() {
		next, err := readSubscribers(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := fits(&cfg, next); err != nil {
			b.Fatal(err)
		}
		settings, err := engineSettings(&cfg, next, map[string]own{"": source}, 7)
		if err != nil {
			b.Fatal(err)
		}
		if e == nil {
			if e, err = ggsn.New(settings, now, rand.Reader); err != nil {
				b.Fatal(err)
			}
		}
		began := time.Now()
		if err := e.Reconfigure(settings, now, new(ggsn.Output)); err != nil {
			b.Fatal(err)
		}
		engine += time.Since(began)
		who = next
	}
	busy = processors() - busy
	b.ReportMetric(float64(busy.Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(float64(heap()-before)/n, "B-held/subscriber")
	b.ReportMetric(float64(size)/n, "B-file/subscriber")
	b.ReportMetric(float64(engine.Microseconds())/1000/float64(b.N), "engine-ms")
	runtime.KeepAlive(who)
}
