// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// manyStatic is how many subscribers have addresses of their own, staticPools what these are of.
const (
	manyStatic  = 100_000
	staticPools = "static4 = [\"10.64.0.0/13\"]\nstatic6 = [\"2001:db8:7200::/39\"]"
)

// writeStatic writes a file of as many subscribers, each with an address and a prefix of its own.
func writeStatic(t testing.TB) (path string, size int) {
	t.Helper()
	var text []byte
	for i := range manyStatic {
		a4 := netip.AddrFrom4([4]byte{10, 64 + byte(i>>16), byte(i >> 8), byte(i)})
		text = fmt.Appendf(text, "[[subscriber]]\nimsi = \"24001%010d\"\n[[subscriber.apn]]\nname = \"internet\"\naddress4 = \"%s\"\nprefix6 = \"2001:db8:%x:%x::/64\"\n", i, a4, 0x7200+i>>16, i&0xffff)
	}
	path = filepath.Join(t.TempDir(), "subscribers.toml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, len(text)
}

// echoes has a terminal and the SGSN's host send each other packets through a context, some at a time, until it is
// told to end, and returns how many came back to the terminal and how many were lost.
func (c *core) echoes(r *gtp.CreateResponse, end <-chan struct{}) (back, lost int) {
	const atATime = 32
	host, terminal := c.control[false], r.EndUserAddress.Value.IPv4
	_ = host.SetReadDeadline(time.Time{}) // in place of that of the last answer
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := host.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if from.Addr() == terminal {
				_, _ = host.WriteToUDPAddrPort(buf[:n], from)
			}
		}
	}()
	inner := udp(terminal, sgsnAddr[false], 64, 8)
	binary.BigEndian.PutUint16(inner[20:], 5000)
	binary.BigEndian.PutUint16(inner[22:], gtp.PortControl)
	packet, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, inner)
	if err != nil {
		panic(err)
	}
	buf := make([]byte, 2048)
	patient := func() { _ = c.user.SetReadDeadline(time.Now().Add(testutil.Patience)) }
	patient()
	for away := 0; ; {
		for !ended(end) && away < atATime {
			_, _ = c.user.WriteToUDPAddrPort(packet, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser))
			away++
		}
		if away == 0 {
			return back, 0
		}
		n, err := c.user.Read(buf)
		if err != nil {
			return back, away
		}
		if h, err := gtp.ParseHeader(buf[:n]); err == nil && h.Type == gtp.TypeGPDU && h.Payload[0]>>4 == 4 {
			back, away = back+1, away-1
			patient()
		}
	}
}

// ended reports whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestReloadCarries loses no packet of either direction while the node reads a hundred thousand subscribers again.
func TestReloadCarries(t *testing.T) {
	testutil.NeedRoot(t)
	path, _ := writeStatic(t)
	c := newCore(t, fmt.Sprintf("subscribers_file = %q", path), "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\n"+staticPools)
	p := c.serve(t)
	r := c.open(t, 1, false)
	if a := r.EndUserAddress.Value.IPv4; a != netip.MustParseAddr("10.64.0.1") {
		t.Fatalf("the terminal has %v", a)
	}
	end, done := make(chan struct{}), make(chan struct{})
	var back, lost int
	go func() {
		defer close(done)
		back, lost = c.echoes(&r, end)
	}()
	for range 2 {
		if status, out := program.Call(t, "reload", "--socket", c.socket); status != 0 {
			t.Errorf("%d %s\n%s", status, out, p.Log())
		}
	}
	close(end)
	<-done
	if t.Logf("%d packets came back", back); back == 0 || lost > 0 {
		t.Errorf("%d packets came back, %d were lost", back, lost)
	}
}

// BenchmarkReloadStatic reads a file of 100,000 subscribers, each with an address and a prefix of its own, and
// checks it against an access point; held are the octets that each of them takes from then on, cpu is
// the time of processors of a reload, also where the machine does other things, and engine how long the engine takes
// of it, while no packet passes.
func BenchmarkReloadStatic(b *testing.B) {
	path, size := writeStatic(b)
	cfg := written(b, "", staticPools)
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
	b.ReportMetric(float64(heap()-before)/manyStatic, "B-held/subscriber")
	b.ReportMetric(float64(size)/manyStatic, "B-file/subscriber")
	b.ReportMetric(float64(engine.Microseconds())/1000/float64(b.N), "engine-ms")
	runtime.KeepAlive(who)
}
