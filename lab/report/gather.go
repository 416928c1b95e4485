// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// errNoReport says that a file is JSON of something else.
var errNoReport = errors.New("not a report")

// Run is a report that was read back from the file of a run.
type Run struct {
	*Report
	// Path is the JSON file, below the folder that was searched.
	Path string
	// Others are the endings of the run's other files that are there: a JSON file is
	// enough for a report.
	Others []string
}

// others are the files that a run may have beside its JSON, by ending.
var others = []struct{ ending, name string }{{".html", "page"}, {".csv", "CSV"}}

// Gather reads every report below a folder, the newest first. Files that hold
// something else are passed over; unread names those that look like a report
// and cannot be read, with the reason.
func Gather(dir string) (runs []Run, unread []string, err error) {
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || filepath.Ext(file) != ".json" {
			return nil
		}
		r, err := read(file)
		switch {
		case errors.Is(err, errNoReport):
		case err != nil:
			unread = append(unread, fmt.Sprintf("%s: %v", file, err))
		default:
			relative, _ := filepath.Rel(dir, file) // both begin with dir
			run := Run{Report: r, Path: filepath.ToSlash(relative)}
			for _, o := range others {
				if _, err := os.Stat(strings.TrimSuffix(file, ".json") + o.ending); err == nil {
					run.Others = append(run.Others, o.ending)
				}
			}
			runs = append(runs, run)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the results cannot be read: %w", err)
	}
	slices.SortStableFunc(runs, func(a, b Run) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Path, b.Path))
	})
	return runs, unread, nil
}

// read reads one file; the time of one that does not say it is that of the
// file.
func read(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// Other files may hold any JSON, so that their types are no fault here.
	var kind struct {
		Experiment any `json:"experiment"`
		Title      any `json:"title"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, err
		}
		return nil, errNoReport
	}
	if kind.Experiment == nil || kind.Title == nil {
		return nil, errNoReport
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	if r.Time.IsZero() {
		if info, err := os.Stat(file); err == nil {
			r.Time = info.ModTime()
		}
	}
	return r, nil
}

// entry is a run in the page of all runs.
type entry struct {
	*view
	ID    string
	Files []link
}

// link leads from the page to a file of a run.
type link struct{ Name, Address string }

// links are those to the files of a run below base.
func (r Run) links(base string) []link {
	file := path.Join(filepath.ToSlash(base), r.Path)
	address := func(ending string) string {
		return (&url.URL{Path: strings.TrimSuffix(file, ".json") + ending}).String()
	}
	var all []link
	for _, o := range others {
		if slices.Contains(r.Others, o.ending) {
			all = append(all, link{o.name, address(o.ending)})
		}
	}
	return append(all, link{"JSON", address(".json")})
}

// WriteIndex writes one page with all runs, in their order: a table of them,
// then each with what its own page holds. The folder that was searched is base,
// as seen from the page, for links to other files of the runs.
func WriteIndex(w io.Writer, title, base string, runs []Run) error {
	var entries []entry
	for i, r := range runs {
		entries = append(entries, entry{newView(r.Report, 3), fmt.Sprintf("run-%d", i+1), r.links(base)})
	}
	return templates().ExecuteTemplate(w, "index", struct {
		Title string
		Runs  []entry
	}{title, entries})
}

// WriteIndexFile writes the page of all runs into a file.
func WriteIndexFile(file, title, base string, runs []Run) error {
	if err := writeFile(file, func(w io.Writer) error { return WriteIndex(w, title, base, runs) }); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}
