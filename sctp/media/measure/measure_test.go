// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/media/transfer"
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
	marks = append(marks, Mark{Kind: transfer.Down, Path: wlan, At: ms(3100), RTO: 4 * time.Second})
	if got, want := newIndex(marks).clocks(wlan, ms(50), ms(8000)), (Clocks{1050 * time.Millisecond, 3100 * time.Millisecond, 3050 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := newIndex(marks).clocks(wlan, ms(3200), ms(8000)); got != (Clocks{Never, Never, Never}) {
		t.Errorf("behind it %+v", got)
	}

	var r Receiver
	for _, c := range []Chunk{
		{At: ms(10), Path: wlan.Swapped(), TSN: 1}, {At: ms(1190), Path: umts.Swapped(), TSN: 2}, {At: ms(1195), Path: umts.Swapped(), TSN: 2, Again: true},
		{At: ms(3190), Path: umts.Swapped(), TSN: 3}, {At: ms(3240), Path: umts.Swapped(), TSN: 4}, {At: ms(9001), Path: wlan.Swapped(), TSN: 5},
	} {
		r.Add(&c)
	}
	list := Failovers(r.Changes, append([]Mark{{Kind: transfer.Up, Path: wlan, At: ms(-5), RTO: time.Second}}, marks...))
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

// TestFailoversOfMany finds the same as who looks through all marks for each change; and in the time that there is, of as
// many as a client keeps, all of the path that has failed.
func TestFailoversOfMany(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	paths := []Path{wlan, umts, {wlan.Local, umts.Remote}}
	var marks []Mark
	for at := 0; at < 2000; at += random.IntN(4) {
		marks = append(marks, Mark{Kind: transfer.MarkKind(random.IntN(6)), Path: paths[random.IntN(3)], At: ms(at), RTO: time.Duration(random.IntN(3)) * time.Duration(at)})
	}
	var changes []Change
	for at := 0; at < 2000; at += random.IntN(30) {
		from := random.IntN(3)
		changes = append(changes, Change{From: paths[from].Swapped(), To: paths[(from+1)%3].Swapped(), LastOld: ms(at), FirstNew: ms(at + random.IntN(30))})
	}
	want := make([]Failover, len(changes))
	for i, c := range changes {
		want[i] = Failover{Change: c, Clocks: Clocks{Never, Never, Never}}
		f, failed := &want[i], c.From.Swapped()
		for _, m := range marks {
			if m.Path == failed && m.RTO > 0 && !m.At.After(c.LastOld) {
				f.RTO = m.RTO
			}
			clock := map[transfer.MarkKind]*time.Duration{transfer.FirstData: &f.First, transfer.FirstNew: &f.New, transfer.Down: &f.Down}[m.Kind]
			if clock == nil || *clock != Never || m.At.Before(c.LastOld) || i+1 < len(changes) && m.At.After(changes[i+1].FirstNew) || (m.Path == failed) != (m.Kind == transfer.Down) {
				continue
			}
			*clock = m.At.Sub(c.LastOld)
		}
	}
	if got := Failovers(changes, marks); !slices.Equal(got, want) {
		t.Errorf("%d of %d failovers are others", len(got), len(want))
	}

	marks, changes = nil, nil
	for n := range 100_000 {
		marks = append(marks, Mark{Kind: transfer.FirstData, Path: wlan, At: ms(n), RTO: time.Second})
	}
	for n := range MaxChanges {
		changes = append(changes, Change{From: wlan.Swapped(), To: umts.Swapped(), LastOld: ms(n), FirstNew: ms(n)})
	}
	if list := Failovers(changes, marks); len(list) != MaxChanges || list[0].First != Never || list[0].RTO != time.Second {
		t.Errorf("%d failovers, the first %+v", len(list), list[0])
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
