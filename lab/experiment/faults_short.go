// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of short flows.
const (
	shortTick  = 5 * time.Millisecond // between those that begin together
	shortAgain = time.Second          // until a question is repeated, or a refused connection
	shortTime  = 20 * time.Second     // that a flow may take
	shortsOpen = 6000                 // at once; while there are so many, none begins

	answerPatience = 100 * time.Millisecond // until who answers datagrams looks whether it is to end
	answerBuffer   = 16 << 20               // octets, of datagrams that wait for an answer
)

// shorts are short flows that begin at a steady rate, half of each kind: a TCP connection
// that says something, hears it again and closes, or a UDP datagram with its answer. A
// flow that no one answers goes on as programs do: TCP repeats by itself, a datagram is
// sent again, and a connection is begun again where a router has said that there is no way.
// It has failed if there is no right answer within shortTime, or another error.
type shorts struct {
	paths []path
	rate  float64     // a second
	room  int32       // for so many at once
	again chan *short // that want another socket
	open  sync.WaitGroup
	now   atomic.Int32 // that are open
	over  chan struct{}

	begun, held int // held back, since too many are open

	mu     sync.Mutex
	failed map[string]int // by reason
}

// short is one of them.
type short struct {
	path   path
	tcp    bool
	place  uint64 // of what it says, in the table
	until  time.Time
	socket chan socketOrNot
}

type socketOrNot struct {
	file *os.File
	err  error
}

// startShorts begins flows over the paths in turn, all of them from one node, until ctx is
// done. The share of that node is what there is in all, by nodes.
func startShorts(ctx context.Context, paths []path, rate float64, nodes int) *shorts {
	s := &shorts{paths: paths, rate: rate / float64(nodes), room: shortsOpen / int32(nodes), again: make(chan *short), over: make(chan struct{}), failed: map[string]int{}}
	s.open.Add(1)
	go func() {
		if err := paths[0].from.Do(func() error { s.pace(ctx); return nil }); err != nil {
			s.note("", err)
			s.open.Done()
		}
	}()
	return s
}

// pace runs in the node, where it opens all sockets.
func (s *shorts) pace(ctx context.Context) {
	tick := time.NewTicker(shortTick)
	defer tick.Stop()
	began, ticks, done := time.Now(), tick.C, ctx.Done()
	for {
		select {
		case <-done:
			done, ticks = nil, nil
			s.open.Done()
		case <-s.over:
			return
		case x := <-s.again:
			x.open()
		case now := <-ticks:
			for due := int(now.Sub(began).Seconds() * s.rate); s.begun+s.held < due; {
				s.begin(now)
			}
		}
	}
}

// begin begins the next flow, if there is room.
func (s *shorts) begin(now time.Time) {
	if s.now.Load() >= s.room {
		s.held++
		return
	}
	n := s.begun
	x := &short{path: s.paths[n/2%len(s.paths)], tcp: n%2 == 0, place: uint64(n), until: now.Add(shortTime), socket: make(chan socketOrNot, 1)}
	s.begun++
	s.now.Add(1)
	x.open()
	s.open.Go(func() { s.finish(x); s.now.Add(-1) })
}

// finish goes through the flow.
func (s *shorts) finish(x *short) {
	for {
		err := x.talk()
		if err == nil {
			return
		}
		if !noWay(err) || time.Now().After(x.until) {
			s.note(x.kind()+", ", err)
			return
		}
		time.Sleep(shortAgain)
		s.again <- x
	}
}

// note counts a failure of a kind of flow.
func (s *shorts) note(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var number syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.failed[kind+"no answer"]++
	case errors.As(err, &number):
		s.failed[kind+number.Error()]++
	default:
		s.failed[kind+err.Error()]++
	}
}

// noWay tells errors by which a router, or this host, says that there is no way.
func noWay(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
}

// kind is the flow's protocol.
func (x *short) kind() string {
	if x.tcp {
		return "TCP"
	}
	return "UDP"
}

// open opens the flow's socket in the namespace of the thread.
func (x *short) open() {
	file, err := x.connect()
	x.socket <- socketOrNot{file, err}
}

// connect begins to connect a socket.
func (x *short) connect() (*os.File, error) {
	kind := unix.SOCK_DGRAM
	if x.tcp {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(unix.AF_INET6, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet6{Addr: x.path.source.As16()})
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet6{Addr: x.path.target.As16(), Port: echoPort})
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "short"), nil
}

// talk says something by the flow's socket until it is answered.
func (x *short) talk() error {
	s := <-x.socket
	if s.err != nil {
		return s.err
	}
	defer s.file.Close()
	_ = s.file.SetDeadline(x.until)
	if err := awaitConnected(s.file); err != nil {
		return err
	}
	said := checkedOctets(x.place, flowSize)
	for {
		err := x.exchange(s.file, said)
		if err == nil || x.tcp || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(x.until) {
			return err
		}
	}
}

// exchange says something once, and hears the answer. A datagram may come late, for who had
// the port before.
func (x *short) exchange(file *os.File, said []byte) error {
	if _, err := file.Write(said); err != nil {
		return err
	}
	heard := make([]byte, flowSize)
	if x.tcp {
		_, err := io.ReadFull(file, heard)
		if err == nil && !bytes.Equal(said, heard) {
			err = errors.New("another answer")
		}
		return err
	}
	_ = file.SetReadDeadline(time.Now().Add(shortAgain))
	for {
		_, err := file.Read(heard)
		if err != nil || bytes.Equal(said, heard) {
			return err
		}
	}
}

// awaitConnected waits until a socket is connected.
func awaitConnected(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Write(func(fd uintptr) bool {
		if _, err := unix.Getpeername(int(fd)); err == nil {
			return true
		}
		number, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if refused = err; err == nil && number != 0 {
			refused = syscall.Errno(number)
		}
		return refused != nil
	})
	return errors.Join(err, refused)
}

// end waits for the flows that are still open, when the context of the start is done.
func (s *shorts) end() {
	s.open.Wait()
	close(s.over)
}

// failures are how many flows failed, and why.
func (s *shorts) failures() (n int, why []string) {
	for _, reason := range slices.Sorted(maps.Keys(s.failed)) {
		n += s.failed[reason]
		why = append(why, fmt.Sprintf("%s: %d", reason, s.failed[reason]))
	}
	return n, why
}

// answerShorts answers short flows at an address of a node until close is called.
func answerShorts(node *lab.Node, at netip.Addr) (close func(), err error) {
	listener, err := listenIn(node, netip.AddrPortFrom(at, echoPort))
	if err != nil {
		return nil, err
	}
	datagrams, err := answerDatagrams(node, netip.AddrPortFrom(at, echoPort))
	if err != nil {
		listener.Close()
		return nil, err
	}
	go answerConnections(listener)
	return func() { listener.Close(); datagrams() }, nil
}

// answerDatagrams says again what it hears at an address of a node until close is called. It
// has a thread of its own, since thousands of flows that wait would have their turns first,
// and room for what all of them say at once: whoever is not answered in time asks again, and
// so there were ever more.
func answerDatagrams(node *lab.Node, at netip.AddrPort) (close func(), err error) {
	fd := -1
	if err := node.Do(func() (err error) { fd, err = datagramSocket(at); return err }); err != nil {
		return nil, err
	}
	var closed atomic.Bool
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		b := make([]byte, 2*flowSize)
		for !closed.Load() {
			if n, from, err := unix.Recvfrom(fd, b, 0); err == nil {
				_ = unix.Sendto(fd, b[:n], 0, from)
			}
		}
		_ = unix.Close(fd)
		done <- struct{}{}
	}()
	return func() { closed.Store(true); <-done }, nil
}

// datagramSocket binds a socket that waits for answerPatience at most.
func datagramSocket(at netip.AddrPort) (int, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())})
	if at.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	patience := unix.NsecToTimeval(answerPatience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, answerBuffer),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.Bind(fd, address))
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// answerConnections says again what it hears, on as many connections at once as there are
// short flows. One whose caller is gone, unheard of, ends when that would have given it up.
func answerConnections(listener net.Listener) {
	room := make(chan struct{}, shortsOpen)
	for {
		room <- struct{}{}
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file is left for now; the caller waits
			<-room
			time.Sleep(shortTick)
			continue
		}
		go func() {
			_ = conn.SetDeadline(time.Now().Add(shortTime))
			// Only read and written: a copy within the kernel takes a pipe, two files more.
			_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, make([]byte, flowSize))
			conn.Close()
			<-room
		}()
	}
}
