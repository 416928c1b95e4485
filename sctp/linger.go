// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
)

// maxLinger bounds how long an endpoint is kept for its peers' sake, whatever the parameters are.
const maxLinger = 2 * time.Second

// lingering are the endpoints of this program that no one uses any more. A new one that wants the port of one of them
// ends that.
var lingering struct {
	sync.Mutex
	list map[*Endpoint]struct{}
}

// linger closes the endpoint once it has no associations. Of the end of one the last packet may be lost, and the peer
// asks again after its RTO (RFC 9260 section 8.4, 5); of what crosses it in the network the peer should not hear that no
// one is here. So long the sockets stay, unless no peer has answered at all. The endpoint's mutex is held.
func (e *Endpoint) linger(now time.Time) {
	left := min(2*e.par.RTOMin, maxLinger) - now.Sub(e.lastEnd)
	if e.closed = left <= 0; e.closed {
		return
	}
	lingering.Lock()
	defer lingering.Unlock()
	if lingering.list == nil {
		lingering.list = map[*Endpoint]struct{}{}
	}
	lingering.list[e] = struct{}{}
	time.AfterFunc(left, e.expire)
}

// expire ends an endpoint that lingers.
func (e *Endpoint) expire() {
	t := e.begin()
	e.closed = true
	e.finish(t)
}

// release closes the sockets.
func (e *Endpoint) release() {
	e.timer.Stop()
	e.sockets.close()
	if e.claim != nil {
		_ = e.claim.Close()
	}
	e.closeHost()
	lingering.Lock()
	delete(lingering.list, e)
	lingering.Unlock()
	close(e.finished)
}

// takeOver ends the endpoints that linger at the port which a new one is to have: of UDP, or of SCTP where udp is 0.
func (e *Endpoint) takeOver(udp uint16) {
	var old []*Endpoint
	lingering.Lock()
	for one := range lingering.list {
		if one.addr.UDP == udp && (udp != 0 || one.addr.Port == e.addr.Port) {
			old = append(old, one)
		}
	}
	lingering.Unlock()
	for _, one := range old {
		one.expire()
		<-one.finished
		one.readers.Wait() // so long the sockets are open
	}
}

// readAll starts to read from the sockets.
func (e *Endpoint) readAll() {
	e.sockets.each(func(s *port.Pairs) {
		_ = s.OnError(e.handleError) // without, losses tell the same, later
		e.readers.Go(func() { e.read(s) })
	})
}
