// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// openState makes the engine, with the contexts that an earlier process has left. The restart
// counter stays if all of them are there, and goes up if not (TS 29.060 section 7.7.11). g.mu
// is held.
func (g *GGSN) openState() error {
	var err error
	if g.saved, err = kept.OpenSaved(kept.SavedPath(g.cfg.StateFile, g.cfg.Name, name)); err != nil {
		return fmt.Errorf("SGSNs could not be told of a restart: %w", err)
	}
	settings, err := engineSettings(&g.cfg, g.who, g.own, g.saved.Counter)
	if err != nil {
		return err
	}
	settings.NoNodes = g.noNodes
	e, err := g.newEngine(settings)
	if err != nil {
		return err
	}
	g.adopted = e.Sizes().Contexts
	g.loop.Engine = e
	g.engine.Store(e)
	return nil
}

// newEngine resumes what was left, or makes an engine without contexts; g.mu is held.
func (g *GGSN) newEngine(settings ggsn.Settings) (*ggsn.Engine, error) {
	if g.cfg.KeepState && g.saved.Whole {
		e, lost, err := ggsn.Resume(settings, g.saved.State, time.Now(), rand.Reader)
		switch {
		case err != nil:
			g.log.Warn("the contexts of an earlier process are lost", "error", err)
		case lost > 0:
			g.log.Warn("not all contexts of an earlier process go on: SGSNs release them", "lost", lost, "contexts", e.Sizes().Contexts)
			return e, nil
		default:
			return e, nil
		}
	}
	if g.cfg.KeepState {
		g.tellLost()
	}
	settings.RestartCounter = g.saved.Next()
	return ggsn.New(settings, time.Now(), rand.Reader)
}

// tellLost logs that there is nothing to go on with, where an earlier process has been.
func (g *GGSN) tellLost() {
	file := kept.SavedPath(g.cfg.StateFile, g.cfg.Name, name)
	switch {
	case g.saved.Damaged:
		g.log.Warn("the contexts of an earlier process are lost, for what it left cannot be read: SGSNs release them", "state_file", file)
	case !g.saved.Fresh && !g.saved.Whole:
		g.log.Warn("an earlier process has left no contexts, as it did not end in good order: SGSNs release those that it had", "state_file", file)
	}
}

// begin writes the restart counter down, before the first message can leave.
func (g *GGSN) begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.saved.Begin(g.engine.Load().RestartCounter())
}

// closeState leaves the contexts to a successor, or ends them, if the node has served; g.mu is held.
func (g *GGSN) closeState(served bool) (err error) {
	if g.saved == nil {
		return nil
	}
	if served && g.cfg.KeepState {
		e := g.engine.Load()
		var state []byte
		g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) {
			e.Settle(now, out)
			state = e.AppendState(nil)
		})
		err = g.saved.End(e.RestartCounter(), state)
	} else if served {
		g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) { e.Close(now, out) })
		if a := g.accounts.Load(); a != nil {
			a.whole(radius.AcctOff)
		}
	}
	err = errors.Join(err, g.saved.Close())
	g.saved = nil
	return err
}
