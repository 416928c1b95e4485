// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// lookOver is a script that returns what is wrong with the page it runs in.
//
//go:embed testdata/look_over.js
var lookOver string

// fullReport has everything that a page can hold, with long names.
func fullReport() *Report {
	r := sample()
	r.Experiment, r.Title = "relay-latency", "Latency of single packets through one relay, bare veth"
	r.Time = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for _, size := range []int{64, 512, 1280} {
		r.AddChart(Chart{
			Name: fmt.Sprintf("spread-%d", size), Title: fmt.Sprintf("IPv6 to IPv4, %d bytes: percentage of packets in bins of 1 µs", size),
			Histogram: sampleHistogram(),
		})
	}
	rates := sampleBars()
	rates.Groups = append(rates.Groups, sampleBars().Groups...)
	r.AddChart(Chart{Name: "rates", Title: "Packets per second through one relay", Bars: rates})
	for _, size := range []int{64, 512, 1280} {
		r.Figures = append(r.Figures, Figure{
			Name: fmt.Sprintf("IPv6 to IPv4, %d bytes, median latency / kernel forwarding, Isthmus XDP", size), Decimals: 2,
			Peer: Measured(5.1, 4.9, 5.6), Isthmus: Measured(0.98, 0.91, 1.02), Must: &Must{Bound: 1.3},
		})
	}
	r.Figures = append(r.Figures, Figure{
		Name: "packets lost by established peers across a restart", Isthmus: Measured(0), Must: &Must{Bound: 0},
	})
	wide := Table{Title: "microseconds from the sender's call to the receiver's device: median / 99th percentile", Columns: []string{"IPv6 packet"}}
	row := []string{"IPv6 to IPv4, 1280 bytes"}
	for _, s := range sampleHistogram().Series {
		wide.Columns, row = append(wide.Columns, s.Name), append(row, "123.4 / 567.8")
	}
	wide.Rows = [][]string{row, row}
	r.Tables = append(r.Tables, wide)
	r.Command = "isthmus lab run relay-latency --runs 50 --out results/2026-01-02/a-long-name-of-a-folder-that-does-not-break"
	r.Fact("kernel", "Linux 6.18.5")
	r.Fact("CPU", "AMD EPYC 9B45 128-Core Processor")
	r.Fact("offloads", "tso off, gso off, gro off, tx-checksum off, rx-checksum off, scatter-gather off")
	return r
}

// wrongReport went wrong.
func wrongReport() *Report {
	r := sample()
	r.Time = time.Date(2026, 1, 1, 3, 4, 0, 0, time.UTC)
	r.Fault("symmetric-random to address-restricted does not connect (0 of 9 pings), as RFC 6081 section 3.1 has it")
	return r
}

// TestPagesInBrowser lays both kinds of page out on a telephone and on a desk,
// by day and by night, and looks them over.
func TestPagesInBrowser(t *testing.T) {
	b := openBrowser(t)
	dir := t.TempDir()
	if err := fullReport().WriteFiles(filepath.Join(dir, "2026", "full")); err != nil {
		t.Fatal(err)
	}
	if err := wrongReport().WriteFiles(filepath.Join(dir, "wrong")); err != nil {
		t.Fatal(err)
	}
	runs, unread, err := Gather(dir)
	if err != nil || len(unread) > 0 || len(runs) != 2 {
		t.Fatalf("gathered %d runs, %v unread, error %v", len(runs), unread, err)
	}
	if err := WriteIndexFile(filepath.Join(dir, "index.html"), "Results", ".", runs); err != nil {
		t.Fatal(err)
	}
	for _, page := range []struct{ name, file string }{
		{"report", filepath.Join(dir, "2026", "full", "relay-latency.html")},
		{"wrong", filepath.Join(dir, "wrong", "demo.html")},
		{"index", filepath.Join(dir, "index.html")},
	} {
		for _, width := range []int{360, 1280} {
			for _, scheme := range []string{"light", "dark"} {
				name := fmt.Sprintf("%s-%d-%s", page.name, width, scheme)
				t.Run(name, func(t *testing.T) {
					on := *b
					on.t = t
					on.show(page.file, width, scheme)
					on.picture(name)
					var wrong []string
					on.evaluate(lookOver, &wrong)
					for _, w := range wrong {
						t.Error(w)
					}
					b.last = on.last
				})
			}
		}
	}
	t.Run("a link of the index opens the run", func(t *testing.T) {
		on := *b
		on.t = t
		on.show(filepath.Join(dir, "index.html"), 1280, "light")
		var opened []string
		on.evaluate(`document.querySelectorAll("tbody a")[0].click();
			new Promise(r => setTimeout(() => r([...document.querySelectorAll("details[open]")].map(d => d.id)), 50))`, &opened)
		if len(opened) != 1 || opened[0] != "run-1" {
			t.Errorf("open are %v, want run-1 alone", opened)
		}
		b.last = on.last
	})
}

// Single pictures stand in other pages and in viewers, so they carry all they
// need.
func TestPicturesInBrowser(t *testing.T) {
	b := openBrowser(t)
	dir := t.TempDir()
	if err := fullReport().WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"relay-latency.svg", "relay-latency-spread-64.svg", "relay-latency-rates.svg"} {
		t.Run(name, func(t *testing.T) {
			on := *b
			on.t = t
			on.show(filepath.Join(dir, name), 600, "light")
			on.picture(strings.TrimSuffix(name, ".svg"))
			var wrong []string
			on.evaluate(strings.Replace(lookOver, "const alone = false", "const alone = true", 1), &wrong)
			for _, w := range wrong {
				t.Error(w)
			}
			b.last = on.last
		})
	}
}

func TestGatherPassesOtherFilesOver(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"other.json":       `{"anchor": 1}`,
		"list.json":        `[1, 2]`,
		"broken.json":      `{"experiment": "x", "title": "y"`,
		"wrong-types.json": `{"experiment": "x", "title": "y", "figures": 7}`,
		"notes.txt":        "no report",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, recent := sample(), sample()
	old.Time, recent.Time = time.Unix(1e9, 0), time.Unix(2e9, 0)
	for folder, r := range map[string]*Report{"a": old, "b": recent} {
		if err := r.WriteFiles(filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	runs, unread, err := Gather(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 || runs[0].Path != "b/demo.json" || runs[1].Path != "a/demo.json" {
		t.Errorf("gathered %+v, want the newest of two first", runs)
	}
	if len(unread) != 2 {
		t.Errorf("unread are %q, want the two that look like reports", unread)
	}
	if _, _, err := Gather(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that is missing is gathered without complaint")
	}
}

// The JSON of an experiment is enough: the page of all runs links to what is there.
func TestIndexOfJSONAlone(t *testing.T) {
	dir := t.TempDir()
	if err := sample().WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{".html", ".csv"} {
		runs, _, err := Gather(dir)
		if err != nil {
			t.Fatal(err)
		}
		checkLinks(t, dir, runs)
		if err := os.Remove(filepath.Join(dir, "demo"+ending)); err != nil {
			t.Fatal(err)
		}
	}
	runs, _, err := Gather(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := checkLinks(t, dir, runs); n != 1 {
		t.Errorf("%d links to files, want that to the JSON alone", n)
	}
}

// checkLinks looks up all files that the page links to, and counts them.
func checkLinks(t *testing.T, dir string, runs []Run) (n int) {
	t.Helper()
	var page strings.Builder
	if err := WriteIndex(&page, "Runs", "", runs); err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`href="([^"#:]+)"`).FindAllStringSubmatch(page.String(), -1) {
		n++
		if _, err := os.Stat(filepath.Join(dir, match[1])); err != nil {
			t.Errorf("a dead link: %v", err)
		}
	}
	return n
}
