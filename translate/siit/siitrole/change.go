// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"errors"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit"
)

// reconfigure gives the engine settings, and the programs what these were made of; s.mu is
// held.
func (s *SIIT) reconfigure(settings siit.Settings, cfg *Settings, mappings []translate.Mapping) error {
	return s.fast.set(cfg, mappings, func() (err error) {
		s.loop.Do(func(time.Time, *packet.Batch) { err = s.engine.Reconfigure(settings) })
		return err
	})
}

// change applies a configuration with its mappings: routes first, then the engine, and
// nothing if either refuses; s.mu is held.
func (s *SIIT) change(cfg *Settings, mappings []translate.Mapping) error {
	settings, err := s.settings(cfg, mappings)
	if err != nil {
		return err
	}
	before := destinations(&s.cfg, s.mappings(&s.cfg, s.file))
	commit, err := s.device.Lead(destinations(cfg, mappings))
	if err != nil {
		return err
	}
	if err := s.reconfigure(settings, cfg, mappings); err != nil {
		back, e := s.device.Lead(before)
		if e == nil {
			e = back()
		}
		return errors.Join(err, e)
	}
	return commit()
}

// Prepare implements [role.Changer].
func (s *SIIT) Prepare(next Settings) (role.Change, error) {
	file, err := mappingsOf(&next)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var needsRestart []string
	if next.FastPath != s.cfg.FastPath && !s.fast.Loaded() {
		next.FastPath = s.cfg.FastPath // there are no programs to attach
		needsRestart = []string{"fast_path"}
	}
	settings, err := s.settings(&next, s.mappings(&next, file))
	if err == nil {
		err = siit.Check(settings)
	}
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.change(&next, s.mappings(&next, file)); err != nil {
			return nil, err
		}
		s.cfg, s.file, s.announced = next, file, nil
		return needsRestart, nil
	}, nil
}

// Mappings lists the mappings in effect.
func (s *SIIT) Mappings() []translate.Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mappings(&s.cfg, s.file)
}

// AddMapping adds a mapping until the process ends.
func (s *SIIT) AddMapping(m translate.Mapping) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.mappings(&s.cfg, s.file), m) {
		return nil
	}
	added, gone := s.added, s.gone
	s.gone = slices.DeleteFunc(slices.Clone(gone), func(o translate.Mapping) bool { return o == m })
	s.added = append(slices.Clone(added), m)
	return s.changeMappings(added, gone)
}

// RemoveMapping removes a mapping until the process ends.
func (s *SIIT) RemoveMapping(m translate.Mapping) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.mappings(&s.cfg, s.file), m) {
		return errors.New("there is no such mapping; isthmus siit map list shows all")
	}
	added, gone := s.added, s.gone
	s.added = slices.DeleteFunc(slices.Clone(added), func(o translate.Mapping) bool { return o == m })
	s.gone = append(slices.Clone(gone), m)
	return s.changeMappings(added, gone)
}

// changeMappings applies what has been written into s, or puts back what was there;
// s.mu is held.
func (s *SIIT) changeMappings(added, gone []translate.Mapping) error {
	err := s.change(&s.cfg, s.mappings(&s.cfg, s.file))
	if err != nil {
		s.added, s.gone = added, gone
	}
	s.announced = nil
	return err
}
