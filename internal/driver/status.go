// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"math"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Status is the part of an instance's status that says which way packets take.
type Status struct {
	// Mode is what the configuration asks for.
	Mode fastpath.Mode `json:"mode"`
	// Path is what established packets take: xdp, tc or engine.
	Path string `json:"path"`
	// Why says in words why it is that.
	Why string `json:"why,omitempty"`
	// Devices are those that programs are attached to, and those left out.
	Devices []Device `json:"devices,omitempty"`
	// Bypassed is what redirected packets do not meet, or would not.
	Bypassed []Bypassed `json:"bypassed,omitempty"`
	// Keeps is what may live on while the process restarts, such as "sessions".
	Keeps string `json:"keeps,omitempty"`
	// Adopted is how many peers a process before this one had left.
	Adopted int `json:"adopted_peers,omitempty"`
	// Survives reports whether established peers are served while the process
	// restarts, for Linger seconds at most; NotKept says why not.
	Survives bool    `json:"survives"`
	Linger   float64 `json:"linger_seconds,omitempty"`
	NotKept  string  `json:"not_kept,omitempty"`
	// Rates are packets a second, over the last second, by what they are.
	Rates map[string]float64 `json:"rates,omitempty"`
	// Packets counts by verdict and reason.
	Packets map[string]map[string]uint64 `json:"packets,omitempty"`

	// Slow are the devices whose packets take the engine, which Devices say, too.
	Slow []string `json:"-"`
}

// Device is one device of a fast path.
type Device struct {
	Device string `json:"device"`
	// Hook is xdp, tcx, clsact, or none.
	Hook string `json:"hook"`
	// Target reports that packets are sent by it without the engine.
	Target   bool     `json:"target"`
	Why      string   `json:"why,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Bypassed is one thing that redirected packets do not meet.
type Bypassed struct {
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// EnginePath is the word for packets that no program carries.
const EnginePath = "engine"

// Status returns a snapshot. It locks, as Collect does.
func (f *Driver) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.view
	v.Mode = f.cfg.Mode
	switch {
	case !f.Keeps():
	case v.Path == EnginePath:
		v.NotKept = "the engine carries all packets"
	case len(v.Slow) > 0:
		v.NotKept = "the engine carries what leaves by " + strings.Join(v.Slow, ", ")
	default:
		v.Survives, v.Linger = true, f.cfg.Linger.Seconds()
	}
	v.Packets = byVerdict(f.countersLocked())
	return v
}

// byVerdict sorts what was counted, without what is zero.
func byVerdict(counters []fastpath.Counter) map[string]map[string]uint64 {
	var all map[string]map[string]uint64
	for _, c := range counters {
		if c.Packets == 0 {
			continue
		}
		if all == nil {
			all = make(map[string]map[string]uint64)
		}
		verdict := c.Verdict.String()
		if all[verdict] == nil {
			all[verdict] = map[string]uint64{}
		}
		all[verdict][c.Reason] = c.Packets
	}
	return all
}

// Counters returns what the programs have counted. It locks.
func (f *Driver) Counters() []fastpath.Counter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countersLocked()
}

func (f *Driver) countersLocked() []fastpath.Counter {
	if f.table == nil {
		return f.last
	}
	counters, _ := f.table.Counters() // without an answer nothing is shown, rather than something wrong
	return counters
}

// EmitCounters gives the metrics of what programs have counted.
func EmitCounters(list []fastpath.Counter, emit func(role.Metric)) {
	for _, c := range list {
		m := role.Metric{Kind: role.Counter, Verdict: c.Verdict.String(), Reason: c.Reason}
		m.Name, m.Help, m.Value = "fastpath_packets_total", "Packets that the fast path saw, by verdict and reason.", float64(c.Packets)
		emit(m)
		m.Name, m.Help, m.Value = "fastpath_bytes_total", "Bytes of these, from the outer IP header on.", float64(c.Bytes)
		emit(m)
		if c.Verdict == fastpath.Drop {
			m = role.Dropped(c.Reason, c.Packets)
			m.Path = "fast"
			emit(m)
		}
	}
}

// Collect reports what the programs have counted.
func (f *Driver) Collect(emit func(role.Metric)) {
	EmitCounters(f.Counters(), emit)
	xdp, tc := 0.0, 0.0
	switch f.Status().Path {
	case "xdp":
		xdp = 1
	case "tc":
		tc = 1
	}
	emit(role.Level("fastpath_xdp", "1 while XDP carries established packets.", xdp))
	emit(role.Level("fastpath_tc", "1 while tc does.", tc))
}

// meter turns counts into rates.
type meter struct {
	at      time.Time
	total   map[string]uint64
	doubted bool // a later look had less
}

// exceeds reports whether there was more of something than there is now.
func (m *meter) exceeds(total map[string]uint64) bool {
	for name, n := range total {
		if n < m.total[name] {
			return true
		}
	}
	return false
}

// measure makes the rates of the time since the last call, which are zero with the first. One that finds less than before
// could not read all, so it does not count; the second in a row begins again.
func (f *Driver) measure(now time.Time, total map[string]uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.meter
	fallen := last.exceeds(total)
	if fallen && !last.doubted {
		f.meter.doubted = true
		return
	}
	f.meter = meter{at: now, total: total}
	seconds := now.Sub(last.at).Seconds()
	if fallen || seconds <= 0 {
		return
	}
	rates := make(map[string]float64, len(total))
	for name, n := range total {
		if rates[name] = 0; !last.at.IsZero() {
			rates[name] = math.Round(float64(n-last.total[name]) / seconds)
		}
	}
	f.view.Rates = rates
}

// words are findings for a status.
func words(found []bypass.Finding) []Bypassed {
	var words []Bypassed
	for _, s := range found {
		words = append(words, Bypassed(s))
	}
	return words
}
