// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
)

// Close detaches and removes everything. The engine must have given the memory of
// the tables back.
func (f *Driver) Close() error {
	f.stopFollowing()
	f.Detach("")
	f.unsteer()
	table := f.forget()
	if table == nil {
		return nil
	}
	var err error
	if forward, ok := table.(Forwarder); ok {
		err = forward.Unpin()
	}
	err = errors.Join(err, table.Close())
	if f.pins != nil {
		err = errors.Join(err, f.pins.Remove())
		f.pins = nil
	}
	return err
}

// Leave lets go of everything and keeps it for a successor.
func (f *Driver) Leave() error {
	f.stopFollowing()
	f.beat()
	f.mu.Lock()
	a := f.attachment
	f.attachment = nil
	f.mu.Unlock()
	var err error
	if a != nil {
		err = a.Leave()
	}
	f.unsteer()
	err = errors.Join(err, f.forget().Close(), f.pins.Close())
	f.pins = nil
	return err
}

// forget takes the tables out of the sight of those who show them.
func (f *Driver) forget() Table {
	f.setApplies(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	table := f.table
	if table != nil {
		// Whoever asks later is shown what was counted in the end.
		f.last = f.countersLocked()
	}
	f.table, f.forward = nil, nil
	return table
}
