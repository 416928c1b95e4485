// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"net"
	"time"
)

// Listener is a net.Listener of associations.
type Listener struct {
	endpoint *Endpoint
	deadline deadline
}

var _ net.Listener = (*Listener)(nil)

// Accept implements net.Listener. The connection is a [*Conn].
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptSCTP(context.Background())
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptSCTP waits for the next association that a peer has set up, until ctx is done.
func (l *Listener) AcceptSCTP(ctx context.Context) (*Conn, error) {
	c, err := l.accept(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: l.endpoint.network.name, Addr: l.Addr(), Err: err}
	}
	return c, nil
}

func (l *Listener) accept(ctx context.Context) (*Conn, error) {
	for {
		if isClosed(l.endpoint.stopped) {
			return nil, net.ErrClosed
		}
		if err := l.deadline.err(); err != nil {
			return nil, err
		}
		select {
		case c := <-l.endpoint.accepts:
			return c, nil
		case <-l.endpoint.stopped:
		case <-l.deadline.wait():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// SetDeadline sets until when Accept waits; the zero time is no deadline.
func (l *Listener) SetDeadline(t time.Time) error {
	if isClosed(l.endpoint.stopped) {
		return &net.OpError{Op: "set deadline", Net: l.endpoint.network.name, Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.deadline.at(t)
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.endpoint.Addr() }

// Close takes no more associations. Those that there are go on.
func (l *Listener) Close() error { return l.endpoint.Close() }

// Endpoint is what the listener stands on: it dials from the same port, too.
func (l *Listener) Endpoint() *Endpoint { return l.endpoint }
