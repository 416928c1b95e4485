// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// theory is how long a packet, or several behind each other, need across a radio: their time on the
// line, and the delay behind it. All other links are cables without a delay.
func (d handoffDemand) theory(radio lab.WireConfig) time.Duration {
	lane := radio.BtoA
	if d.up {
		lane = radio.AtoB
	}
	return lane.Delay + time.Duration(d.octets*8)*time.Second/time.Duration(lane.Rate)
}

// theory is what a stage takes by what must cross the radio.
func (s handoffStage) theory(radio lab.WireConfig) (sum time.Duration) {
	for _, d := range s.demands {
		sum += d.theory(radio)
	}
	return sum
}

// line is the part of theory that is time on the line.
func (s handoffStage) line(radio lab.WireConfig) time.Duration {
	sum := s.theory(radio)
	for _, d := range s.demands {
		sum -= handoffDemand{up: d.up}.theory(radio)
	}
	return sum
}

// theoryDown is the time from the change to media at the terminal: the answer to the re-INVITE goes
// before them on the same line. What came until the change is on its way no longer than they are, so
// that it is the gap, too, but for the time between two packets.
func (m handoffMove) theoryDown() (sum time.Duration) {
	for _, s := range m.stages {
		sum += s.theory(m.radio)
	}
	return sum
}

// theoryUp is the time to media at the host, which follow the re-INVITE on the line.
func (m handoffMove) theoryUp() (sum time.Duration) {
	for _, s := range m.stages {
		if s.name == stageInvite {
			return sum + m.voice.theory(m.radio)
		}
		sum += s.theory(m.radio)
	}
	return sum
}

// What D1, D2 and D3 are made of (Nakajima and others, ICC 2003).
var (
	stagesD1 = []string{stageAttach}
	stagesD2 = []string{stageAddress, stageQualify}
	stagesD3 = []string{stageRelay, stageInvite, stageMedia}
)

// part is what stages have taken, and what they take by theory; ok is false if the handoff has none of them.
func (m handoffMove) part(names []string) (took, needs time.Duration, ok bool) {
	for _, s := range m.stages {
		if slices.Contains(names, s.name) {
			took, needs, ok = took+s.took, needs+s.theory(m.radio), true
		}
	}
	return took, needs, ok
}

// Numbers of a handoff, times in milliseconds.

func (m handoffMove) took(names []string) float64 {
	took, _, _ := m.part(names)
	return milliseconds(took)
}

func (m handoffMove) d1() float64 { return m.took(stagesD1) }
func (m handoffMove) d2() float64 { return m.took(stagesD2) }
func (m handoffMove) d3() float64 { return m.took(stagesD3) }

func (m handoffMove) beyondDown() float64 { return m.gapDown() - milliseconds(m.theoryDown()) }
func (m handoffMove) beyondUp() float64   { return m.gapUp() - milliseconds(m.theoryUp()) }
