// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// stream is a TCP connection of a path, or one that is to be.
type stream struct {
	to      transaction.Target
	conn    net.Conn // nil: it is being made
	waiting [][]byte
	cancel  context.CancelFunc
}

// Bounds of streams.
const (
	maxStreams  = 256 // of a path
	maxWaiting  = 64  // messages that wait for a connection
	dialWithin  = 5 * time.Second
	writeWithin = time.Second
	idleAfter   = 5 * time.Minute
	shortage    = 50 * time.Millisecond // no one is let in while the host has no room for connections
)

func (s *stream) close() {
	s.cancel()
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// sendStream sends a message by TCP, and makes the connection if there is none.
func (a *Agent) sendStream(p *path, packet ua.Packet) {
	s := p.streams[packet.To.Remote]
	if s == nil && packet.Fallback.IsValid() {
		packet.To.Remote = packet.Fallback
		s = p.streams[packet.Fallback]
	}
	switch {
	case packet.To.Transport != "TCP" || s == nil && len(p.streams) >= maxStreams:
		a.later(func() { a.engine.Unreachable(packet.To, time.Now(), &a.out) })
	case s == nil:
		a.dial(p, packet)
	case s.conn == nil:
		if len(s.waiting) < maxWaiting {
			s.waiting = append(s.waiting, packet.Data)
		}
	default:
		a.write(p, s, packet.Data)
	}
}

// later has the loop do something later, from within the loop.
func (a *Agent) later(f func()) { go a.post(f) }

// dial connects, and then sends what has waited for that.
func (a *Agent) dial(p *path, packet ua.Packet) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	s := &stream{to: packet.To, waiting: [][]byte{packet.Data}, cancel: cancel}
	p.streams[packet.To.Remote] = s
	go func() {
		var conn net.Conn
		err := a.ns.Do(func() (err error) {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Local.Addr(), 0)), Control: bind(boundTo(p.link, p.Local.Addr()))}
			conn, err = d.DialContext(ctx, "tcp", packet.To.Remote.String())
			return err
		})
		a.post(func() {
			if err != nil || p.streams[packet.To.Remote] != s {
				a.broken(p, s)
				if conn != nil {
					_ = conn.Close()
				}
				return
			}
			s.conn = conn
			for _, data := range s.waiting {
				a.write(p, s, data)
			}
			s.waiting = nil
			go a.read(p, s)
		})
	}()
}

// write writes a message. A peer that does not read breaks its connection, not the loop.
func (a *Agent) write(p *path, s *stream, data []byte) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := s.conn.Write(data); err != nil {
		a.broken(p, s)
	}
}

// broken forgets a connection and says what it means for what went by it.
func (a *Agent) broken(p *path, s *stream) {
	s.close()
	if p.streams[s.to.Remote] == s {
		delete(p.streams, s.to.Remote)
		a.engine.Unreachable(s.to, time.Now(), &a.out)
	}
}

// accept takes connections of peers until the path is closed.
func (a *Agent) accept(p *path) {
	for {
		conn, err := p.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files, which passes
			time.Sleep(shortage)
			continue
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		a.post(func() {
			if a.paths[p.ID] != p || len(p.streams) >= maxStreams || p.streams[from] != nil {
				_ = conn.Close()
				return
			}
			s := &stream{to: transaction.Target{Transport: "TCP", Local: p.Local, Remote: from}, conn: conn, cancel: func() {}}
			p.streams[from] = s
			go a.read(p, s)
		})
	}
}

// read reads messages until the connection ends, or nothing has come for long: a peer that
// drips is cut off like one that is silent, for a message has to be whole in that time.
func (a *Agent) read(p *path, s *stream) {
	f := message.Framer{Pongs: true}
	_ = s.conn.SetReadDeadline(time.Now().Add(idleAfter))
	for f.Read(s.conn) == nil {
		whole, ok := a.frames(p, s, &f)
		if !ok {
			break
		}
		if whole {
			_ = s.conn.SetReadDeadline(time.Now().Add(idleAfter))
		}
	}
	a.post(func() { a.broken(p, s) })
}

// frames hands on what has come whole; not ok: there can be no more.
func (a *Agent) frames(p *path, s *stream, f *message.Framer) (whole, ok bool) {
	for {
		one, ping, pong, fault := f.Next()
		if ping {
			a.post(func() { a.write(p, s, lineEnd) })
		}
		if pong {
			a.handle(s, lineEnd)
		}
		whole = whole || ping || pong || one != nil
		switch {
		case fault != nil:
			a.post(func() { a.engine.Broken(f.Rest(), fault, s.to, time.Now(), &a.out) })
			return whole, false
		case one == nil:
			return whole, true
		}
		a.handle(s, slices.Clone(one))
	}
}

// lineEnd answers a keep-alive (RFC 5626 section 4.4.1).
var lineEnd = []byte("\r\n")

func (a *Agent) handle(s *stream, data []byte) {
	a.post(func() { a.engine.Handle(data, s.to, time.Now(), &a.out) })
}
