// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/control"
)

// fastState is what the state of an instance says of its fast path.
type fastState struct {
	Mode    string
	Path    string
	Why     string
	Devices []struct {
		Device, Hook, Why string
		Target            bool
		Warnings          []string
	}
	Bypassed []struct{ What, Detail, Remedy string }
	Keeps    string
	Adopted  int     `json:"adopted_peers"`
	Survives bool    `json:"survives"`
	Linger   float64 `json:"linger_seconds"`
	NotKept  string  `json:"not_kept"`
	Peers    *int
	Rates    map[string]float64
	Packets  map[string]map[string]uint64
}

// fastRows replaces what is said of a fast path by rows for people.
func fastRows(instance control.Instance, rows []row) []row {
	var state struct {
		FastPath *fastState `json:"fast_path"`
	}
	if json.Unmarshal(instance.State, &state) != nil || state.FastPath == nil {
		return rows
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return strings.HasPrefix(r.key, "fast_path") })
	return append(rows, state.FastPath.rows()...)
}

func (f *fastState) rows() []row {
	path := f.Path
	var names []string
	for _, d := range f.Devices {
		if d.Hook != "none" {
			names = append(names, d.Device)
		}
	}
	if len(names) > 0 && f.Path != "engine" {
		path += " by " + strings.Join(names, ", ")
	}
	rows := []row{{"path", path}}
	if f.Why != "" {
		rows = append(rows, row{"path, why", f.Why})
	}
	for _, b := range f.Bypassed {
		rows = append(rows, row{"not met by the fast path", b.What + ": " + b.Detail})
	}
	if f.Mode == "off" || f.Path == "engine" && len(f.Packets) == 0 && len(f.Devices) == 0 {
		return rows
	}
	for _, d := range f.Devices {
		if d.Hook == "none" || !d.Target {
			rows = append(rows, row{d.Device, d.Why})
		}
		for _, w := range d.Warnings {
			rows = append(rows, row{d.Device + ", warning", w})
		}
	}
	if f.Peers != nil {
		rows = append(rows, row{"peers on the fast path", fmt.Sprint(*f.Peers)})
	} else {
		rows = append(rows, f.rates()...)
	}
	if f.Keeps != "" {
		rows = append(rows, f.survival()...)
	}
	for _, verdict := range []struct{ word, words string }{{"forward", "fast path"}, {"punt", "left to the engine"}, {"drop", "fast path dropped"}} {
		if text := counts(f.Packets[verdict.word]); text != "" {
			rows = append(rows, row{verdict.words, text})
		}
	}
	return rows
}

// directions are those in which roles measure packets, by the ends of the names of their rates.
var directions = []struct{ name, words string }{
	{"to_clients", "to clients"}, {"to_ipv4", "to IPv4"}, {"to_ipv6", "to IPv6"}, {"up", "up"}, {"down", "down"},
}

// rates says how many packets go by which path.
func (f *fastState) rates() []row {
	if len(f.Rates) == 0 {
		return nil
	}
	by := func(path string) string {
		var list []string
		for _, d := range directions {
			if n, ok := f.Rates[path+"_"+d.name]; ok {
				list = append(list, fmt.Sprintf("%.0f %s", n, d.words))
			}
		}
		return strings.Join(list, ", ")
	}
	return []row{
		{"packets a second, fast path", fmt.Sprintf("%s; left %.0f to the engine, dropped %.0f", by("fast"), f.Rates["punted"], f.Rates["dropped"])},
		{"packets a second, engine", by("engine")},
	}
}

// survival says what becomes of peers, or sessions, while the process restarts.
func (f *fastState) survival() []row {
	var rows []row
	what := "established " + f.Keeps
	if f.Survives {
		rows = append(rows, row{what, fmt.Sprintf("the fast path survives a restart, for %.0f s", f.Linger)})
	} else if f.NotKept != "" {
		rows = append(rows, row{what, "wait while the process restarts: " + f.NotKept})
	}
	if f.Adopted > 0 {
		rows = append(rows, row{"peers taken over", fmt.Sprint(f.Adopted)})
	}
	return rows
}

// counts lists counters, the largest first.
func counts(by map[string]uint64) string {
	reasons := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", words(reason), by[reason])
	}
	return strings.Join(reasons, ", ")
}
