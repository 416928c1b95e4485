// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// serve answers on the listener until ctx is done, and closes it. Answers under
// way may end within stopTimeout; who has not asked in full by then never will.
func serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	asked := watchRequests(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("cannot go on listening on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	asked.closeIdle()
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close()
	}
	<-done
	return nil
}

// requests knows which connections of a server have a request under way. The
// server's own Shutdown waits for those too that have sent half of one, or
// nothing yet.
type requests struct {
	mu      sync.Mutex
	busy    map[net.Conn]bool
	closing bool
}

// connKey marks the connection in the context of a request.
type connKey struct{}

// watchRequests hooks into a server that does not serve yet.
func watchRequests(server *http.Server) *requests {
	r := &requests{busy: map[net.Conn]bool{}}
	inner, state, handler := server.ConnContext, server.ConnState, server.Handler
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, conn)
		}
		return context.WithValue(ctx, connKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, s http.ConnState) {
		if state != nil {
			state(conn, s)
		}
		r.note(conn, s)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if conn, ok := q.Context().Value(connKey{}).(net.Conn); ok {
			r.set(conn)
		}
		handler.ServeHTTP(w, q)
	})
	return r
}

// note follows the life of a connection: an answer is under way from the call of
// the handler until the connection is idle again.
func (r *requests) note(conn net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		r.busy[conn] = false
		if r.closing {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		delete(r.busy, conn)
	}
}

func (r *requests) set(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[conn] = true
}

// closeIdle closes all connections without a request under way, now and from
// now on.
func (r *requests) closeIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	for conn, busy := range r.busy {
		if !busy {
			_ = conn.Close()
		}
	}
}
