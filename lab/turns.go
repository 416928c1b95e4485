// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import "sync"

// Turns are what experiments side by side take: all of them work at once, but for what each does in [Env.Alone].
type Turns struct {
	// Names are those of the experiments.
	Names []string

	working sync.RWMutex
}

// Join runs the whole of one of the experiments.
func (t *Turns) Join(run func() error) error {
	t.working.RLock()
	defer t.working.RUnlock()
	return run()
}

// Alone does what takes all processors, or measures what others would disturb: of experiments side by side, the others
// wait until it is done. Nothing else of the experiment itself may go on meanwhile.
func (e *Env) Alone(do func() error) error {
	if e.Turns == nil {
		return do()
	}
	e.Turns.working.RUnlock()
	defer e.Turns.working.RLock()
	e.Turns.working.Lock()
	defer e.Turns.working.Unlock()
	return do()
}
