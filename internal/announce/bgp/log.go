// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"log/slog"
)

// quiet is a log handler that makes everything a matter of debugging: what an
// operator wants to know of sessions, this package says in its own words.
type quiet struct{ to slog.Handler }

// Enabled implements [slog.Handler].
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.to.Enabled(ctx, slog.LevelDebug)
}

// Handle implements [slog.Handler].
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.to.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.to.WithAttrs(attrs)} }

// WithGroup implements [slog.Handler].
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.to.WithGroup(name)} }
