// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"log/slog"
	"time"
)

const (
	// refreshEvery is how often a reservation without an end is made again: a
	// gateway that was restarted has forgotten it.
	refreshEvery = 20 * time.Minute
	// Waits between tries where no port could be reserved; they double.
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// Keeper keeps one port reserved while it runs.
type Keeper struct {
	// Methods are tried; with both, UPnP is preferred.
	Methods []Method
	// File remembers the reserved port across restarts; empty is none.
	File string
	Log  *slog.Logger
	// Report is told each outcome: what was reserved, or why nothing is.
	Report func(m Mapping, err error)
	// Doubts, if not nil, says that the gateway may have been restarted and have forgotten
	// the port, or have come back: it is asked again before its time.
	Doubts <-chan struct{}
}

// keeping is the state of a run.
type keeping struct {
	*Keeper
	target  Target
	gateway gateway // of mapping; nil: none
	mapping Mapping
	retry   time.Duration
	tried   time.Time // the last time
}

// Run reserves the port of the last target received and keeps it reserved. It
// gives the port back when another target comes and when ctx is done; then it
// returns.
func (k *Keeper) Run(ctx context.Context, targets <-chan Target) {
	s := keeping{Keeper: k}
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.release()
			return
		case next := <-targets:
			if next == s.target {
				continue
			}
			s.release()
			s.target, s.retry = next, 0
		case <-k.Doubts:
			if wait := s.doubtWait(time.Now()); wait != 0 {
				if wait > 0 {
					timer.Reset(wait)
				}
				continue
			}
		case <-timer.C:
		}
		if wait := s.attempt(ctx); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// doubtWait is how long a doubt has to wait; negative is for ever, for want of a target.
func (s *keeping) doubtWait(now time.Time) time.Duration {
	if !s.target.valid() {
		return -1
	}
	return max(s.tried.Add(s.target.limits().doubt).Sub(now), 0)
}

// attempt reserves the port, or reserves it again, and returns after what time to
// do so the next time; 0 is never.
func (s *keeping) attempt(ctx context.Context) (wait time.Duration) {
	if !s.target.valid() {
		s.Report(Mapping{}, ErrNoGateway)
		return 0
	}
	s.tried = time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.target.limits().reserve)
	defer cancel()
	var err error
	before := s.mapping
	if s.gateway != nil {
		if s.mapping, err = s.gateway.add(ctx); err != nil {
			s.gateway = nil // ask again who is there
		}
	}
	if s.gateway == nil {
		s.gateway, s.mapping, err = reserve(ctx, s.Methods, s.target, s.remembered())
	}
	if err != nil {
		s.gateway, s.mapping = nil, Mapping{}
		s.retry = min(max(2*s.retry, firstRetry), lastRetry)
		s.Report(Mapping{}, err)
		return s.retry
	}
	s.retry = 0
	s.remember()
	if s.mapping.External != before.External || s.mapping.Method != before.Method {
		s.Report(s.mapping, nil)
	}
	if s.mapping.Lifetime == 0 {
		return refreshEvery
	}
	return s.mapping.Lifetime / 2 // RFC 6886 section 3.3
}

// remembered is what an earlier run reserved at this gateway. A port at another
// one cannot be given back from here.
func (s *keeping) remembered() record {
	old, err := load(s.File)
	if err != nil {
		s.Log.Warn(err.Error())
	}
	if old.Gateway != s.target.Gateway {
		return record{}
	}
	return old
}

// remember writes down what is reserved. Both methods name a mapping by the
// internal port when they give it back, which for UPnP is the external one too.
func (s *keeping) remember() {
	r := record{Method: s.mapping.Method, Gateway: s.target.Gateway, Port: s.target.Local.Port()}
	if err := r.store(s.File); err != nil {
		s.Log.Warn(err.Error() + ": after a crash it stays reserved")
	}
}

// release gives the port back (RFC 6081 section 5.3.5), in bounded time.
func (s *keeping) release() {
	if s.gateway == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.target.limits().release)
	defer cancel()
	err := s.gateway.remove(ctx, s.target.Local.Port())
	s.gateway, s.mapping = nil, Mapping{}
	if err != nil {
		// It stays remembered, so that the next start gives it back.
		s.Log.Warn("cannot give the reserved port back: "+err.Error(), "gateway", s.target.Gateway)
		return
	}
	if err := (record{}).store(s.File); err != nil {
		s.Log.Warn(err.Error())
	}
}
