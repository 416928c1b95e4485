// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

func TestHeaderGolden(t *testing.T) {
	want := []byte{
		'I', 'T', 'G', 0, // a message
		0, 0, 0, 7, // flow
		0, 0, 1, 2, // number
		0, 0, 3, 232, // size
		0, 0, 0, 1, 0, 0, 0, 2, // ns
	}
	h := header{kindData, 7, 258, 1000, 1<<32 + 2}
	got := make([]byte, HeaderSize)
	h.put(got)
	if !bytes.Equal(got, want) {
		t.Errorf("put % x, want % x", got, want)
	}
	back, err := parseHeader(want)
	if err != nil || back != h {
		t.Errorf("parsed %+v, %v", back, err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("ITG\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x18\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		back := make([]byte, HeaderSize)
		h.put(back)
		if !bytes.Equal(back, b[:HeaderSize]) {
			t.Errorf("% x was read as %+v", b, h)
		}
	})
}

// Departures have the rate and the sizes that were asked for, and are the same for the same seed.
func TestScheduleHasWhatWasAsked(t *testing.T) {
	const count = 100_000
	for _, c := range []struct {
		situation string
		flow      Flow
		size      float64
	}{
		{"constant", Flow{Size: Size{Kind: Constant, Mean: 500}}, 500},
		{"Poisson, uniform", Flow{Poisson: true, Size: Size{Kind: Uniform, Min: 100, Max: 300}}, 200},
		{"Poisson, exponential", Flow{Poisson: true, Size: Size{Kind: Exponential, Mean: 1000}}, 1000},
	} {
		t.Run(c.situation, func(t *testing.T) {
			f := c.flow
			f.ID, f.Rate, f.Seed, f.Count = 1, 333, 5, count
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			one, other := f.Schedule(), f.Schedule()
			sum, last, n := 0.0, time.Duration(-1), 0
			for d, ok := one.Next(); ok; d, ok = one.Next() {
				if again, _ := other.Next(); again != d {
					t.Fatalf("departure %d is %+v and %+v", n, d, again)
				}
				if d.At < last || d.Size < HeaderSize || d.Size > MaxSize {
					t.Fatalf("departure %d is %+v behind %v", n, d, last)
				}
				sum, last, n = sum+float64(d.Size), d.At, n+1
			}
			if n != count {
				t.Fatalf("%d departures", n)
			}
			if want := float64(n-1) / f.Rate; !f.Poisson && last != time.Duration(want*float64(time.Second)) {
				t.Errorf("the last of a constant flow is at %v: it has drifted", last)
			}
			if rate := float64(n-1) / last.Seconds(); math.Abs(rate/333-1) > 0.02 {
				t.Errorf("the rate is %v", rate)
			}
			if mean := sum / count; math.Abs(mean/c.size-1) > 0.02 {
				t.Errorf("the mean size is %v, want %v", mean, c.size)
			}
		})
	}
}

func TestScheduleEnds(t *testing.T) {
	f := Flow{ID: 1, Rate: 10, Size: Size{Kind: Constant, Mean: 100}, Duration: time.Second}
	n := 0
	for s := f.Schedule(); ; n++ {
		if _, ok := s.Next(); !ok {
			break
		}
	}
	if n != 10 {
		t.Errorf("%d departures in a second, want 10", n)
	}
}

func TestFlowsThatCannotBe(t *testing.T) {
	good := Flow{ID: 1, Rate: 1, Count: 1, Size: Size{Kind: Constant, Mean: 100}}
	for _, change := range []func(*Flow){
		func(f *Flow) { f.ID = 0 }, func(f *Flow) { f.Rate = 0 }, func(f *Flow) { f.Rate = math.NaN() }, func(f *Flow) { f.Count = 0 },
		func(f *Flow) { f.Rate = math.Inf(1) }, func(f *Flow) { f.Rate = 1e300 }, // would never end
		func(f *Flow) { f.Rate = 1e-12 }, // the second would leave before the first
		func(f *Flow) { f.Size.Mean = HeaderSize - 1 }, func(f *Flow) { f.Size.Kind = "odd" },
		func(f *Flow) { f.Size = Size{Kind: Uniform, Min: 200, Max: 100} },
	} {
		f := good
		change(&f)
		if f.Check() == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

var day = time.Date(1970, 1, 1, 9, 39, 11, 0, time.UTC)

// The row is one that ITGDec 2.8.1 has written.
func TestRowGolden(t *testing.T) {
	const row = "Flow>0001 Seq>      2 Src>                                           ::1/50397 Dest>                                           ::1/8999 txTime>9:39:11.205295 rxTime>9:39:11.205351 Size>  500\n"
	want := Record{Flow: 1, Number: 2, From: netip.MustParseAddrPort("[::1]:50397"), To: netip.MustParseAddrPort("[::1]:8999"),
		Sent: day.Add(205295 * time.Microsecond), Received: day.Add(205351 * time.Microsecond), Size: 500}
	if got := string(AppendRow(nil, &want)); got != row {
		t.Errorf("wrote %q\n want %q", got, row)
	}
	got, err := ParseRow(row)
	if err != nil {
		t.Fatal(err)
	}
	if string(AppendRow(nil, &got)) != row || got.Delay() != 56*time.Microsecond {
		t.Errorf("read %+v", got)
	}
}

func FuzzRow(f *testing.F) {
	f.Add(string(AppendRow(nil, &drawRecords(1)[0])))
	f.Add("Flow>")
	f.Add("Flow>1 Seq")
	f.Fuzz(func(t *testing.T, row string) { _, _ = ParseRow(row) })
}

// drawRecords are messages of a line with jitter that loses some.
func drawRecords(n int) (records []Record) {
	rng := rand.New(rand.NewPCG(1, 2))
	received := day
	for i := range n {
		if rng.IntN(20) == 0 && i > 0 && i < n-1 {
			continue
		}
		sent := day.Add(time.Duration(i) * 10 * time.Millisecond)
		if at := sent.Add(time.Duration(50_000+rng.IntN(30_000)) * time.Microsecond); at.After(received) {
			received = at
		}
		records = append(records, Record{Flow: 1, Number: uint32(i + 1), From: netip.MustParseAddrPort("[2001:db8::a]:40000"),
			To: netip.MustParseAddrPort("[2001:db8::b]:8999"), Sent: sent, Received: received, Size: 100 + rng.IntN(1000)})
	}
	return records
}

func TestMeterCountsWhatIsMissing(t *testing.T) {
	m := NewMeter(0, nil)
	for i, number := range []uint32{1, 2, 5, 6, 4} {
		at := day.Add(time.Duration(i) * time.Second)
		m.Add(&Record{Number: number, Sent: at.Add(-time.Duration(10*i) * time.Millisecond), Received: at, Size: 100})
	}
	m.End(8)
	if m.Received != 5 || m.Lost != 3 || m.Bursts != 2 || m.Octets != 500 || m.Rate() != 1000 {
		t.Errorf("%+v", m.Stats)
	}
	if m.Mean() != 20*time.Millisecond || m.Jitter() != 10*time.Millisecond || m.Least != 0 || m.Most != 40*time.Millisecond {
		t.Errorf("mean %v, jitter %v, from %v to %v", m.Mean(), m.Jitter(), m.Least, m.Most)
	}
}

// D-ITG's decoder reads our rows, and comes to the same statistics and windows.
func TestITGDecAgrees(t *testing.T) {
	found, err := peers.Find()
	if err != nil {
		testutil.Missing(t, err)
	}
	decoder, err := found.Program("ITGDec")
	if err != nil {
		testutil.Missing(t, err)
	}
	var rows, windows []byte
	m := NewMeter(200*time.Millisecond, func(w Window) { windows = AppendWindow(windows, w) })
	records := drawRecords(500)
	for i := range records {
		rows = AppendRow(rows, &records[i])
		m.Add(&records[i])
	}
	m.End(0)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log"), rows, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		c := exec.CommandContext(t.Context(), decoder, append([]string{"log", "-t"}, args...)...)
		c.Dir = dir
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var ours strings.Builder
	if err := WriteSummary(&ours, 1, records[0].From, records[0].To, &m.Stats); err != nil {
		t.Fatal(err)
	}
	theirs := run("-v")
	for line := range strings.Lines(ours.String()) {
		// It keeps the spaces before an address, of its log.
		if !strings.HasPrefix(line, "From") && !strings.HasPrefix(line, "To  ") && !strings.Contains(theirs, line) {
			t.Errorf("ITGDec does not say %q but\n%s", line, theirs)
		}
	}
	run("-c", "200", "windows")
	read, err := os.ReadFile(filepath.Join(dir, "windows"))
	if err != nil {
		t.Fatal(err)
	}
	// It rounds what ends in half a microsecond as its sums of floats fall out.
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1.1e-6 })
	if diff := cmp.Diff(numbers(t, string(read)), numbers(t, string(windows)), near); diff != "" {
		t.Errorf("windows differ (-ITGDec +ours):\n%s", diff)
	}
}

// numbers reads all numbers of a text.
func numbers(t *testing.T, text string) (numbers []float64) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, x)
	}
	return numbers
}
