// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of checked flows.
const (
	checkedRound = 65521 // octets until they repeat: a prime, so that no lost packet is unseen
	checkedBlock = 1024  // octets of one write
	checkedGap   = 100 * time.Millisecond
	// checkedSilence is how long a flow may be silent.
	checkedSilence = 30 * time.Second
	neverGivenUp   = 24 * time.Hour
)

// checkedTable is what checked flows carry, with a block more, so that one is whole
// wherever it begins.
var checkedTable = sync.OnceValue(func() []byte {
	b := make([]byte, checkedRound, checkedRound+checkedBlock)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return append(b, b[:checkedBlock]...)
})

// checkedOctets are so many octets of those that checked flows carry, from a place on.
func checkedOctets(place uint64, n int) []byte { return checkedTable()[place%checkedRound:][:n] }

// path leads from a node to another one.
type path struct {
	from, to *lab.Node
	source   netip.Addr // of from
	listen   netip.Addr // of to
	target   netip.Addr // where from sends to, which leads there
}

// stream is a long TCP connection. Both ends send, and know what the other one does.
type stream struct {
	path path
	ends [2]*streamEnd // of who has called, and of who was called
	done sync.WaitGroup
}

// streamEnd is one end of a stream.
type streamEnd struct {
	conn          *net.TCPConn
	place         uint64 // of what it sends, in the table
	sent, arrived uint64
	wrong         uint64
	silence       moment // the longest
	err           error
}

// streams are called at their far ends, which know them by their first octets.
type streams struct {
	list      []*stream
	listeners map[netip.Addr]net.Listener
	accepted  chan accepted
}

type accepted struct {
	number uint32
	conn   *net.TCPConn
}

// startStreams connects so many streams, over the paths in turn.
func startStreams(ctx context.Context, paths []path, n int) (_ *streams, err error) {
	s := &streams{listeners: map[netip.Addr]net.Listener{}, accepted: make(chan accepted, n)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for i := range n {
		x := &stream{path: paths[i%len(paths)]}
		s.list = append(s.list, x)
		if err := s.listen(x.path); err != nil {
			return nil, err
		}
		if err := s.connect(ctx, i); err != nil {
			return nil, fmt.Errorf("a stream from %v to %v: %w", x.path.source, x.path.target, err)
		}
	}
	for _, x := range s.list {
		x.start(ctx)
	}
	return s, nil
}

// listen waits for callers of a path's far end.
func (s *streams) listen(p path) error {
	if s.listeners[p.listen] != nil {
		return nil
	}
	listener, err := listenIn(p.to, netip.AddrPortFrom(p.listen, streamPort))
	if err != nil {
		return err
	}
	s.listeners[p.listen] = listener
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var number [4]byte
			if _, err := io.ReadFull(conn, number[:]); err != nil {
				conn.Close()
				continue
			}
			s.accepted <- accepted{binary.BigEndian.Uint32(number[:]), conn.(*net.TCPConn)}
		}
	}()
	return nil
}

// listenIn listens for TCP connections in a node. Multipath TCP, Go's default, is not
// what is tried.
func listenIn(node *lab.Node, at netip.AddrPort) (l net.Listener, err error) {
	err = node.Do(func() (err error) {
		config := net.ListenConfig{Control: repeatSoon}
		config.SetMultipathTCP(false)
		l, err = config.Listen(context.Background(), "tcp", at.String())
		return err
	})
	return l, err
}

// repeatSoon has TCP repeat what is lost once a second at least, where the kernel can be told so
// (Linux 6.15), and not give up, since the campaign does: after some faults it would wait for
// long, and the way might be back. The time of TCP_USER_TIMEOUT must be beyond any campaign's:
// Linux counts it from the first repetition since nothing was missing, and while fault follows
// fault something always is, though octets arrive. Who accepts has it from who listens.
func repeatSoon(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(time.Second.Milliseconds()))
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(neverGivenUp.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// connect calls the far end of the i-th stream.
func (s *streams) connect(ctx context.Context, i int) error {
	x := s.list[i]
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	dialer := net.Dialer{Control: repeatSoon, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(x.path.source, 0))}
	var conn net.Conn
	if err := x.path.from.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(x.path.target, streamPort).String())
		return err
	}); err != nil {
		return err
	}
	x.ends[0] = &streamEnd{conn: conn.(*net.TCPConn), place: uint64(2*i) * checkedBlock}
	if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
		return err
	}
	select {
	case a := <-s.accepted:
		if a.number != uint32(i) {
			return fmt.Errorf("stream %d arrived as %d", i, a.number)
		}
		x.ends[1] = &streamEnd{conn: a.conn, place: uint64(2*i+1) * checkedBlock}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start has both ends send until ctx is done, and read until the end.
func (x *stream) start(ctx context.Context) {
	for i, end := range x.ends {
		other := x.ends[1-i]
		x.done.Go(func() { end.send(ctx) })
		x.done.Go(func() { end.receive(other.place) })
	}
}

// send sends blocks, then the end.
func (e *streamEnd) send(ctx context.Context) {
	tick := time.NewTicker(checkedGap)
	defer tick.Stop()
	for ctx.Err() == nil {
		n, err := e.conn.Write(checkedOctets(e.place+e.sent, checkedBlock))
		e.sent += uint64(n)
		if err != nil {
			return // the other half of this end tells
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	_ = e.conn.CloseWrite()
}

// receive checks what arrives until its end. The connection stays open then: one that no one
// holds any more is given up silently, by Linux, at the first ICMP error while it waits for
// long, though the other end has not heard of its end yet.
func (e *streamEnd) receive(place uint64) {
	b := make([]byte, checkedBlock)
	for last := time.Now(); ; {
		_ = e.conn.SetReadDeadline(last.Add(checkedSilence))
		n, err := e.conn.Read(b)
		e.check(place, b[:n])
		now := time.Now()
		e.silence, last = longer(e.silence, moment{last, now}), now
		if err != nil {
			if !errors.Is(err, io.EOF) {
				e.err = err
				e.conn.Close()
			}
			return
		}
	}
}

// check compares what has arrived with what is sent from that place on.
func (e *streamEnd) check(place uint64, b []byte) {
	want := checkedOctets(place+e.arrived, len(b))
	if !bytes.Equal(b, want) {
		for i := range want {
			if b[i] != want[i] {
				e.wrong++
			}
		}
	}
	e.arrived += uint64(len(b))
}

// end waits until all streams have ended, when the context of their start is done.
func (s *streams) end() {
	for _, x := range s.list {
		x.done.Wait()
	}
	s.close()
}

func (s *streams) close() {
	for _, l := range s.listeners {
		l.Close()
	}
	for _, x := range s.list {
		for _, e := range x.ends {
			if e != nil {
				e.conn.Close()
			}
		}
	}
}

// fault says why a stream that has ended counts as lost; nil if it does not.
func (x *stream) fault() error {
	for i, e := range x.ends {
		sent := x.ends[1-i].sent
		switch {
		case e.err != nil:
			return fmt.Errorf("stream from %v to %v: %w", x.path.source, x.path.target, e.err)
		case e.arrived != sent:
			return fmt.Errorf("stream from %v to %v: of %d octets %d arrived", x.path.source, x.path.target, sent, e.arrived)
		}
	}
	return nil
}

// wrong is how many octets arrived otherwise than they were sent.
func (x *stream) wrong() (n uint64) { return x.ends[0].wrong + x.ends[1].wrong }

// silence is the longest time in which nothing came at one of the ends.
func (x *stream) silence() moment { return longer(x.ends[0].silence, x.ends[1].silence) }
