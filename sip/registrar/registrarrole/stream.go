// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/places"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// stream is one connection.
type stream struct {
	of       *streams
	at       transaction.Target
	place    *places.Place
	requests []transaction.Target // of the proxy that were sent by it, each once; with the mutex of streams
	waiting  chan []byte          // to be sent
	octets   atomic.Int64
	done     chan struct{}
	once     sync.Once

	mu   sync.Mutex
	conn net.Conn // nil: it is being opened
}

const (
	// maxQueue and maxOctets bound what waits to be sent.
	maxQueue  = 256
	maxOctets = 512 << 10
	// sendTimeout is how long the other end may take to read.
	sendTimeout = 10 * time.Second
	// patienceWithRate is when a connection whose source is too fast is read again.
	patienceWithRate = 20 * time.Millisecond
)

func newStream(of *streams) *stream {
	return &stream{of: of, waiting: make(chan []byte, maxQueue), done: make(chan struct{})}
}

// end closes the connection, whatever it is at.
func (c *stream) end() {
	c.once.Do(func() {
		close(c.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn != nil {
			_ = c.conn.Close()
		}
	})
}

// take notes the connection; false: it has ended meanwhile.
func (c *stream) take(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		_ = conn.Close()
		return false
	default:
		c.conn = conn
		return true
	}
}

// queue has a message sent. Who does not read loses the connection.
func (c *stream) queue(text []byte) bool {
	if c.octets.Add(int64(len(text))) <= maxOctets {
		select {
		case c.waiting <- text:
			return true
		default:
		}
	}
	c.octets.Add(-int64(len(text)))
	c.of.counters.slowReaders.Add(1)
	c.end()
	return false
}

// serve is the life of a connection that has come.
func (c *stream) serve(conn net.Conn) {
	defer c.finish()
	if !c.take(conn) {
		return
	}
	if c.at.Transport == "TLS" {
		secured := tls.Server(conn, c.of.r.secure.Load().forTerminals())
		if !c.handshake(secured) {
			return
		}
		conn = secured
	}
	c.carry(conn)
}

// handshake begins TLS in time.
func (c *stream) handshake(conn *tls.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(time.Duration(c.of.message.Load())))
	if err := conn.Handshake(); err != nil {
		c.of.counters.handshakes.Add(1)
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	return true
}

// carry reads and writes until one of them ends.
func (c *stream) carry(conn net.Conn) {
	var writing sync.WaitGroup
	writing.Go(func() { c.write(conn) })
	c.read(conn)
	c.end()
	writing.Wait()
}

// finish forgets the connection, and tells the proxy of requests that went by it.
func (c *stream) finish() {
	c.end()
	for _, to := range c.of.leave(c) {
		c.of.r.do(func(p *registrar.Proxy, now time.Time, out *registrar.Output) { p.Unreachable(to, now, out) })
	}
}

// write sends what waits.
func (c *stream) write(conn net.Conn) {
	defer c.end()
	for {
		select {
		case <-c.done:
			return
		case text := <-c.waiting:
			_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
			_, err := conn.Write(text)
			c.octets.Add(-int64(len(text)))
			if err != nil {
				c.of.counters.unsent.Add(1)
				return
			}
		}
	}
}

// read takes messages.
func (c *stream) read(conn net.Conn) {
	var f message.Framer
	var begun time.Time // of a message that has not come whole
	for {
		for {
			one, ping, _, fault := f.Next()
			if fault != nil {
				c.broken(f.Rest(), fault)
				return
			}
			if ping {
				c.of.r.counters.keepAlives.Add(1)
				c.queue([]byte("\r\n")) // RFC 5626 section 4.4.1
			}
			if one == nil {
				break
			}
			if begun = (time.Time{}); !c.message(one) {
				return
			}
		}
		deadline := time.Now().Add(time.Duration(c.of.idle.Load()))
		if len(f.Rest()) > 0 {
			if begun.IsZero() {
				begun = time.Now()
			}
			deadline = begun.Add(time.Duration(c.of.message.Load()))
		} else {
			begun = time.Time{}
		}
		_ = conn.SetReadDeadline(deadline)
		if err := f.Read(conn); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.late(len(f.Rest()) > 0)
			}
			return
		}
	}
}

// late counts a connection that is closed by its time.
func (c *stream) late(within bool) {
	if within {
		c.of.counters.slow.Add(1)
	} else {
		c.of.counters.idled.Add(1)
	}
}

// message gives one message to the proxy, later if its source is too fast. False: the connection has
// ended.
func (c *stream) message(text []byte) bool {
	r := c.of.r
	r.counters.received[transports[c.at.Transport]].Add(1)
	for !r.rates.admit(c.at.Remote.Addr(), time.Now()) {
		r.counters.delayed.Add(1)
		select {
		case <-c.done:
			return false
		case <-time.After(patienceWithRate):
		}
	}
	c.of.use(c)
	m, fault := message.Parse(text)
	r.loop.Do(func(now time.Time, out *output) { r.take(m, fault, c.at, now, out) })
	return true
}

// broken answers the last request of a stream in which no further message can be found.
func (c *stream) broken(text []byte, fault *message.Fault) {
	m, other := message.Parse(text)
	if m == nil || other == nil { // nothing to answer
		c.of.r.counters.fault(fault)
		return
	}
	r := c.of.r
	r.loop.Do(func(now time.Time, out *output) { r.take(m, fault, c.at, now, out) })
	c.drain()
}

// drain gives the last answer time to leave.
func (c *stream) drain() {
	for end := time.Now().Add(sendTimeout); c.octets.Load() > 0 && time.Now().Before(end); {
		select {
		case <-c.done:
			return
		case <-time.After(patienceWithRate):
		}
	}
}
