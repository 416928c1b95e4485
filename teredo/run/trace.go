// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/server"
)

var (
	_ role.Tracer = (*Server)(nil)
	_ role.Tracer = (*Relay)(nil)
	_ role.Tracer = (*Client)(nil)
)

// Trace implements [role.Tracer].
func (s *Server) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return s.loop.Trace(ctx, s.name, sampling, emit)
}

func (s *Server) eachDropped(f func(reason string, n uint64)) {
	c := s.engine.Counters()
	for r := server.Reason(1); r < server.NumReasons; r++ {
		f(r.String(), c.Dropped[r])
	}
}

// Trace implements [role.Tracer]: it shows the packets of both paths.
func (r *Relay) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return r.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return r.loop.Trace(ctx, r.name, sampling, emit)
	})
}

func (r *Relay) eachDropped(f func(reason string, n uint64)) {
	s := r.engine.Stats()
	s.EachDropped(func(why relay.Reason, n uint64) { f(why.String(), n) })
}

func (c *Client) eachDropped(f func(reason string, n uint64)) {
	s := c.engine.Stats()
	for r, n := range s.Dropped {
		f(client.Reason(r).String(), n)
	}
}
