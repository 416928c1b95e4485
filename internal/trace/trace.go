// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package trace is what `isthmus trace` shows: samples of packets with what
// became of them, a filter language to choose among them, and their form in text
// and in pcapng files. A capture on the host sees nothing of frames that the fast
// path redirects, and tcpdump knows no drop reasons; a sample has both.
//
// The package does no I/O and takes time from its caller.
package trace

import (
	"errors"
	"fmt"
	"time"
)

// Path is who handled a packet.
type Path string

// Paths.
const (
	Fast   Path = "fast"   // a program in the kernel
	Engine Path = "engine" // the Go engine
)

// Verdict is what became of a packet on its path.
type Verdict string

// Verdicts.
const (
	Forward Verdict = "forward" // sent on
	Punt    Verdict = "punt"    // left to the engine by the fast path
	Keep    Verdict = "keep"    // taken by the engine itself: a bubble, or a packet that waits
	Drop    Verdict = "drop"    // dropped, for a reason
)

// Link is what the bytes of a sample begin with.
type Link string

// Links.
const (
	Ethernet Link = "ethernet"
	IP       Link = "ip" // IPv4 or IPv6, as the first four bits say
)

// Snap is how much of a packet a sample holds, in bytes.
const Snap = 256

// Sample is one packet as it came in, and what became of it.
type Sample struct {
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	Path     Path      `json:"path"`
	// Hook is where the packet was met: "xdp", "tc", "udp" for a socket, "tun".
	Hook string `json:"hook"`
	// Device is the interface; empty for a socket.
	Device  string  `json:"device,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Reason is why: the word that counters carry, too. Empty: none is needed.
	Reason string `json:"reason,omitempty"`
	Link   Link   `json:"link"`
	// Length is that of the whole packet, Data at most its first [Snap] bytes.
	Length int    `json:"length"`
	Data   []byte `json:"data"`
}

// Sampling says how many packets a trace may show, so that watching a busy path
// does not slow it down.
type Sampling struct {
	// Every takes each n-th packet; at least 1.
	Every int
	// PerSecond bounds the samples a second.
	PerSecond int
}

// Limits and defaults of a [Sampling].
const (
	DefaultPerSecond = 1000
	MaxPerSecond     = 100_000
	MaxEvery         = 1 << 24
)

// Check returns an error that says what to write instead.
func (s Sampling) Check() error {
	switch {
	case s.Every < 1 || s.Every > MaxEvery:
		return fmt.Errorf("every %d-th packet cannot be taken: write a number from 1 to %d", s.Every, MaxEvery)
	case s.PerSecond < 1 || s.PerSecond > MaxPerSecond:
		return fmt.Errorf("%d samples a second cannot be had: write a number from 1 to %d", s.PerSecond, MaxPerSecond)
	}
	return nil
}

// ErrBusy reports that someone traces already.
var ErrBusy = errors.New("another trace is running: one at a time, so that each sees all it asked for")

// Meter lets as many samples through as a [Sampling] says. The zero value lets
// none through; make one with [NewMeter]. It is for one thread at a time.
type Meter struct {
	sampling Sampling
	passed   uint64
	second   time.Time // when the current second began
	used     int       // samples of it
}

// NewMeter makes a meter.
func NewMeter(s Sampling) *Meter { return &Meter{sampling: s} }

// Take reports whether the next packet is to be shown.
func (m *Meter) Take(now time.Time) bool {
	m.passed++
	if m.sampling.Every == 0 || m.passed%uint64(m.sampling.Every) != 0 {
		return false
	}
	if age := now.Sub(m.second); age >= time.Second || age < 0 {
		m.second, m.used = now, 0
	}
	if m.used >= m.sampling.PerSecond {
		return false
	}
	m.used++
	return true
}
