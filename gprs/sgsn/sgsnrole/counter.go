// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/kept"
)

// counter is a restart counter of 8 bits, or one of these words.
type counter string

const (
	counterAuto  counter = "auto"  // one more than at the last start, which a file knows
	counterClock counter = "clock" // of the time
	counterNone  counter = "none"  // requests have none
)

// count takes the restart counter of this start, and has it on the disk before the first message
// can leave: contexts do not outlive the process, so that each start is a restart to GGSNs. Where
// the usual file cannot be had, for another emulator has it or this user may not write there, the
// counter stays one of the time.
func (s *SGSN) count() error {
	if s.cfg.RestartCounter != counterAuto {
		return nil
	}
	err := s.countBy(kept.SavedPath(s.cfg.StateFile, s.cfg.Name, name))
	if err != nil && s.cfg.StateFile == "" {
		s.log.Warn("the restart counter is of the clock, not one more than at the last start: name a file (state_file), or write \"clock\" as restart_counter", "error", err)
		return nil
	}
	return err
}

// countBy takes the counter of a file.
func (s *SGSN) countBy(file string) error {
	saved, err := kept.OpenSaved(file)
	if err != nil {
		return err
	}
	next := saved.Next()
	if err := saved.Begin(next); err != nil {
		return errors.Join(err, saved.Close())
	}
	s.saved = saved
	s.loop.Do(func(time.Time, *sgsn.Output) { s.engine.SetRestartCounter(next) })
	return nil
}

// counted writes the counter down when it has changed.
func (s *SGSN) counted() (err error) {
	if s.saved != nil {
		s.loop.Do(func(time.Time, *sgsn.Output) { err = s.saved.Begin(s.engine.RestartCounter()) })
	}
	return err
}

// uncount gives the file back.
func (s *SGSN) uncount() error {
	if s.saved == nil {
		return nil
	}
	return s.saved.Close()
}
