// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	start = time.Unix(1_000_000, 0)
	wlan  = Path{netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("2001:db8:1::a")}
	umts  = Path{netip.MustParseAddr("2001:db8:2::b"), netip.MustParseAddr("2001:db8:2::a")}
)

func ms(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }

// TestClocks reads a failover of the RFCs without potentially failed paths: what has timed out goes by the other path
// after one RTO, new data after all, and back when the path works.
func TestClocks(t *testing.T) {
	var m Marker
	var marks []Mark
	for _, c := range []Chunk{
		{At: ms(0), Path: wlan, TSN: 1}, {At: ms(100), Path: wlan, TSN: 2}, // lost
		{At: ms(1100), Path: umts, TSN: 2, Again: true}, {At: ms(1101), Path: wlan, TSN: 3}, // lost
		{At: ms(3100), Path: umts, TSN: 3, Again: true}, {At: ms(3150), Path: umts, TSN: 4},
		{At: ms(9000), Path: wlan, TSN: 5},
	} {
		marks = m.Add(marks, &c)
	}
	marks = append(marks, Mark{Kind: Down, Path: wlan, At: ms(3100), RTO: 4 * time.Second})
	if got, want := ClocksOf(marks, wlan, ms(50), ms(8000)), (Clocks{1050 * time.Millisecond, 3100 * time.Millisecond, 3050 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := ClocksOf(marks, wlan, ms(3200), ms(8000)); got != (Clocks{Never, Never, Never}) {
		t.Errorf("behind it %+v", got)
	}

	var r Receiver
	for _, c := range []Chunk{
		{At: ms(10), Path: wlan.Swapped(), TSN: 1}, {At: ms(1190), Path: umts.Swapped(), TSN: 2}, {At: ms(1195), Path: umts.Swapped(), TSN: 2, Again: true},
		{At: ms(3190), Path: umts.Swapped(), TSN: 3}, {At: ms(3240), Path: umts.Swapped(), TSN: 4}, {At: ms(9001), Path: wlan.Swapped(), TSN: 5},
	} {
		r.Add(&c)
	}
	list := Failovers(r.Changes, append([]Mark{{Kind: Up, Path: wlan, At: ms(-5), RTO: time.Second}}, marks...))
	if len(list) != 2 || r.Chunks != 5 || r.Again != 1 || r.Gap != 5761*time.Millisecond {
		t.Fatalf("%+v, %+v", r, list)
	}
	want := Failover{
		Change{wlan.Swapped(), umts.Swapped(), ms(10), ms(1190), 1180 * time.Millisecond},
		Clocks{1090 * time.Millisecond, 3140 * time.Millisecond, 3090 * time.Millisecond}, time.Second,
	}
	if list[0] != want {
		t.Errorf("%+v, want %+v", list[0], want)
	}
	if back := list[1]; back.From != umts.Swapped() || back.First != 5760*time.Millisecond || back.Down != Never {
		t.Errorf("back: %+v", back)
	}
}

// TestDelay computes by hand: transits of 10, 30, 20 ms.
func TestDelay(t *testing.T) {
	var d Delay
	for i, transit := range []int{10, 30, 20} {
		d.Add(ms(i*100), ms(i*100+transit))
	}
	const milli = float64(time.Millisecond)
	jitter := time.Duration(20*milli/16 + (10*milli-20*milli/16)/16)
	if d.N != 3 || d.Least != 10*time.Millisecond || d.Most != 30*time.Millisecond || d.Mean().Round(time.Microsecond) != 20*time.Millisecond || d.Jitter() != jitter {
		t.Errorf("%+v: mean %v, jitter %v, want %v", d, d.Mean(), d.Jitter(), jitter)
	}
	if want := time.Duration(math.Sqrt(200.0/3) * milli); (d.Deviation() - want).Abs() > time.Microsecond {
		t.Errorf("deviation %v, want %v", d.Deviation(), want)
	}
}

// TestRatio counts copies in, which take of the line as well.
func TestRatio(t *testing.T) {
	if got := (&Sender{Sent: 80, Late: 5, Fast: 5, Moved: 5, Copies: 5}).Ratio(); got != 0.2 {
		t.Errorf("%v", got)
	}
	if got := (&Sender{}).Ratio(); got != 0 {
		t.Errorf("of nothing %v", got)
	}
}

// TestTable writes what has not happened as nothing.
func TestTable(t *testing.T) {
	var b strings.Builder
	table := NewTable(&b, start, "time_s", "a", "b", "c", "d")
	table.Row(ms(1500), wlan.Local, Never, 2500*time.Microsecond, true)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "time_s,a,b,c,d\n1.500000,2001:db8:1::b,,2.500,1\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
