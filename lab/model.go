// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// WireModel is a wire without nodes and without a clock, for what runs in virtual time: the same
// rate, queue, delay, jitter and loss as a Wire of that configuration and seed.
type WireModel struct{ lanes [2]*lane }

// NewWireModel makes one.
func NewWireModel(c WireConfig) (*WireModel, error) {
	var err error
	if c.AtoB, err = c.AtoB.complete(); err != nil {
		return nil, err
	}
	if c.BtoA, err = c.BtoA.complete(); err != nil {
		return nil, err
	}
	return &WireModel{[2]*lane{newLane(c.AtoB, c.Seed, uint64(AtoB)), newLane(c.BtoA, c.Seed, uint64(BtoA))}}, nil
}

// Admit takes in a frame at a time since the begin, which does not go back, and says when it
// leaves, or that it does not. What a cut finds under way is the caller's to drop.
func (m *WireModel) Admit(d Direction, at time.Duration, frame []byte) (leave time.Duration, ok bool) {
	t, ok := m.lanes[d].admit(int64(at), frame)
	return time.Duration(t), ok
}

// Cut makes directions drop everything that is taken in; both if none is named.
func (m *WireModel) Cut(directions ...Direction) { m.set(true, directions) }

// Restore undoes Cut.
func (m *WireModel) Restore(directions ...Direction) { m.set(false, directions) }

func (m *WireModel) set(cut bool, directions []Direction) {
	if len(directions) == 0 {
		directions = []Direction{AtoB, BtoA}
	}
	for _, d := range directions {
		m.lanes[d].setCut(cut)
	}
}
