// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// Open loads the fast path that the configuration asks for, or finds out why there is
// none. With always it is loaded although it is switched off, since something else needs
// the programs.
func (f *Driver) Open(always bool) {
	cfg := f.cfg
	switch {
	case cfg.Mode == fastpath.ModeOff && !always:
		f.Note(func(v *Status) { v.Why = switchedOff })
	default:
		f.load()
	}
	if f.table == nil {
		if err := discardPins(f.role.Name); err != nil {
			f.log.Warn("what an earlier process has left of its fast path cannot be removed", "error", err)
		}
	}
}

const switchedOff = "it is switched off in the configuration"

// load loads programs and tables, or takes over those that are pinned.
func (f *Driver) load() {
	f.features = probe.Try()
	if !f.features.Programs || !f.features.MappedArrays {
		f.Refuse(errors.New(strings.Join(f.features.Missing, " ")))
		return
	}
	if err := f.mayLoad(); err != nil {
		f.Refuse(err)
		return
	}
	if f.role.Ephemeral != "" {
		f.Note(func(v *Status) { v.NotKept = f.role.Ephemeral })
	} else if pins, err := pinned.Open(PinName(f.role.Name)); err == nil {
		f.pins = pins
	} else {
		f.cannotKeep(err)
	}
	table, err := f.role.Load(f.pins, f.features)
	if err != nil && f.pins != nil {
		// What cannot be kept may still be had.
		f.cannotKeep(err)
		f.dropPins()
		table, err = f.role.Load(nil, f.features)
	}
	if err != nil {
		f.Refuse(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table = table
	f.forward, _ = table.(Forwarder)
	f.kept = f.pins != nil
}

// cannotKeep notes why nothing outlives the process, nor has come from the one before.
func (f *Driver) cannotKeep(err error) {
	f.Note(func(v *Status) { v.NotKept = err.Error() })
	f.log.Warn("the fast path does not survive a restart", "why", err)
}

// mayLoad reports what right the process lacks to load programs that handle packets as
// ours do. The verifier's own words would be of pointers.
func (f *Driver) mayLoad() error {
	for _, c := range f.features.Capabilities {
		if c == "CAP_PERFMON" || c == "CAP_SYS_ADMIN" {
			return nil
		}
	}
	return errors.New("the process may not load programs of this kind: give it CAP_PERFMON beside CAP_BPF")
}

// Refuse notes why the engine is alone, and says so where someone asked for more.
func (f *Driver) Refuse(err error) {
	f.Note(func(v *Status) { v.Why = err.Error() })
	if f.cfg.Mode == fastpath.ModeAuto {
		f.log.Info("the engine carries all packets", "why", err)
	} else {
		f.log.Warn("the fast path cannot be had, so the engine carries all packets", "why", err)
	}
}

// Abandon gives back what was loaded and cannot be used.
func (f *Driver) Abandon(err error) {
	f.Refuse(err)
	f.kept = false
	_ = f.Close()
}

// dropPins removes what is pinned.
func (f *Driver) dropPins() {
	if f.pins != nil {
		_ = f.pins.Remove()
		f.pins = nil
	}
}
