// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"math"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// FastPath is the part of the status that says which way packets take.
type FastPath struct {
	// Mode is what the configuration asks for.
	Mode config.FastPath `json:"mode"`
	// Path is what packets of established peers take: xdp, tc or engine.
	Path string `json:"path"`
	// Why says in words why it is that.
	Why string `json:"why,omitempty"`
	// Devices are those that programs are attached to, and those left out.
	Devices []FastDevice `json:"devices,omitempty"`
	// Bypassed is what redirected packets do not meet, or would not.
	Bypassed []Bypassed `json:"bypassed,omitempty"`
	// Adopted is how many peers a process before this one had left.
	Adopted int `json:"adopted_peers,omitempty"`
	// Survives tells whether established peers are served while the process
	// restarts, for Linger seconds at most; NotKept says why not.
	Survives bool    `json:"survives"`
	Linger   float64 `json:"linger_seconds,omitempty"`
	NotKept  string  `json:"not_kept,omitempty"`
	// Rates are packets a second, over the last second.
	Rates FastRates `json:"rates"`
	// Packets counts by verdict and reason.
	Packets map[string]map[string]uint64 `json:"packets,omitempty"`
}

// FastDevice is one device of a fast path.
type FastDevice struct {
	Device string `json:"device"`
	// Hook is xdp, tcx, clsact, or none.
	Hook string `json:"hook"`
	// Target tells that packets are sent by it without the engine.
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

// FastRates are packets a second by the way they took.
type FastRates struct {
	FastToClients   float64 `json:"fast_to_clients"`
	FastToIPv6      float64 `json:"fast_to_ipv6"`
	EngineToClients float64 `json:"engine_to_clients"`
	EngineToIPv6    float64 `json:"engine_to_ipv6"`
	// Punted were left to the engine by the fast path.
	Punted  float64 `json:"punted"`
	Dropped float64 `json:"dropped"`
}

// enginePath is the word for packets that no program carries.
const enginePath = "engine"

// status returns a snapshot. It locks, as counters and collect do.
func (f *fast) status() FastPath {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.view
	v.Mode = f.cfg.FastPath
	if v.Survives = f.keeps(); v.Survives {
		v.Linger = f.cfg.FastPathLinger.Seconds()
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
		all[verdict][c.Reason.String()] = c.Packets
	}
	return all
}

// counters returns what the programs have counted.
func (f *fast) counters() []fastpath.Counter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.countersLocked()
}

func (f *fast) countersLocked() []fastpath.Counter {
	if f.table == nil {
		return f.last
	}
	// Without an answer nothing is shown, rather than something wrong.
	counters, _ := f.table.Counters()
	return counters
}

// emitCounters gives the metrics of what programs have counted.
func emitCounters(list []fastpath.Counter, emit func(role.Metric)) {
	for _, c := range list {
		m := role.Metric{Kind: role.Counter, Verdict: c.Verdict.String(), Reason: c.Reason.String()}
		m.Name, m.Help, m.Value = "fastpath_packets_total", "Packets that the fast path saw, by verdict and reason.", float64(c.Packets)
		emit(m)
		m.Name, m.Help, m.Value = "fastpath_bytes_total", "Bytes of these, from the outer IP header on.", float64(c.Bytes)
		emit(m)
		if c.Verdict == fastpath.Drop {
			m = role.Dropped(c.Reason.String(), c.Packets)
			m.Path = "fast"
			emit(m)
		}
	}
}

// collect reports what the programs have counted.
func (f *fast) collect(emit func(role.Metric)) {
	emitCounters(f.counters(), emit)
	xdp, tc := 0.0, 0.0
	switch f.status().Path {
	case "xdp":
		xdp = 1
	case "tc":
		tc = 1
	}
	emit(role.Level("fastpath_xdp", "1 while XDP carries the packets of established peers.", xdp))
	emit(role.Level("fastpath_tc", "1 while tc does.", tc))
}

// meter turns counts into rates.
type meter struct {
	at     time.Time
	fast   [4]uint64 // to clients, to IPv6, punted, dropped
	engine [2]uint64 // to clients, to IPv6
}

// measure makes the rates of the time since the last call; engine is what the engine
// has sent to clients and to IPv6.
func (f *fast) measure(now time.Time, engine [2]uint64) {
	next := meter{at: now, engine: engine}
	for _, c := range f.counters() {
		switch {
		case c.Reason == fastpath.EncapForwarded || c.Reason == fastpath.HostEncapForwarded:
			next.fast[0] += c.Packets
		case c.Reason == fastpath.DecapForwarded || c.Reason == fastpath.HostDecapForwarded:
			next.fast[1] += c.Packets
		case c.Verdict == fastpath.Punt:
			next.fast[2] += c.Packets
		case c.Verdict == fastpath.Drop:
			next.fast[3] += c.Packets
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.meter
	f.meter = next
	seconds := now.Sub(last.at).Seconds()
	if last.at.IsZero() || seconds <= 0 {
		return
	}
	rate := func(from, to uint64) float64 { return math.Round(float64(to-from) / seconds) }
	f.view.Rates = FastRates{
		FastToClients: rate(last.fast[0], next.fast[0]), FastToIPv6: rate(last.fast[1], next.fast[1]),
		EngineToClients: rate(last.engine[0], next.engine[0]), EngineToIPv6: rate(last.engine[1], next.engine[1]),
		Punted: rate(last.fast[2], next.fast[2]), Dropped: rate(last.fast[3], next.fast[3]),
	}
}

func skippedWords(found []bypass.Finding) []Bypassed {
	var words []Bypassed
	for _, s := range found {
		words = append(words, Bypassed(s))
	}
	return words
}
