// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control is one control connection on its two sides.
type control struct {
	client, server *net.TCPConn
	idle, write    time.Duration
	used           func() // called when either side has spoken
	// heard is when either side spoke last, in Unix nanoseconds.
	heard atomic.Int64

	mu       sync.Mutex // for what follows
	dialogue *dialogue
	// moved reports that the dialogue may take more of the client, or never will.
	moved *sync.Cond
	// closed sides have sent all they had to say.
	closed int
	over   bool
	reason Counter
	// gone is closed when both sockets are.
	gone chan struct{}
}

// relay carries a connection until it is over and returns why it is. It calls used whenever
// something was said.
func (p *Proxy) relay(ctx context.Context, peer Peer, client, server *net.TCPConn, used func()) Counter {
	for _, conn := range []*net.TCPConn{client, server} {
		if err := tune(conn); err != nil {
			return broken
		}
	}
	var expect func(uint16) (netip.AddrPort, error)
	if !p.settings.Passive {
		expect = func(port uint16) (netip.AddrPort, error) { return p.peers.Expect(peer, port, p.settings.Hold) }
	}
	dialogue := newDialogue(peer.Client.Addr(), expect, p.tally.add)
	if peer.Client.Addr().Is4() {
		parties := call{
			client: peer.Client.Addr(), seen: peer.Seen, called: peer.Called,
			announce: func(port uint16) error { return p.peers.Announce(peer, port) },
		}
		dialogue = newCall(parties, func(port uint16) (netip.AddrPort, error) {
			return p.peers.Expect(peer, port, p.settings.Hold)
		}, p.tally.add)
	}
	c := &control{
		client: client, server: server,
		idle: p.settings.Idle, write: p.settings.Write, used: used,
		dialogue: dialogue,
		gone:     make(chan struct{}),
	}
	c.moved = sync.NewCond(&c.mu)
	c.heard.Store(time.Now().UnixNano())
	stop := context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == errGaveWay {
			c.finish(gaveWay)
		} else {
			c.finish(stopped)
		}
	})
	defer stop()
	var sides sync.WaitGroup
	sides.Go(c.carryCommands)
	sides.Go(c.carryReplies)
	sides.Wait()
	<-c.gone
	if c.reason == noopRefused {
		p.log.warn(time.Now(), "an FTP server refused NOOP, so its control connection was closed", "server", peer.Server)
	}
	return c.reason
}

// Keep-alives find hosts that are gone and keep the sessions of translators and
// firewalls alive while a long transfer leaves the control connection silent (RFC
// 6384 section 12).
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 30 * time.Second, Count: 6}

// tune prepares a socket. Urgent data stays in the stream, without its mark (RFC
// 6384 section 5): a synch and its ABOR arrive, in order.
func tune(conn *net.TCPConn) error {
	if err := conn.SetKeepAliveConfig(keepAlive); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
	}); err != nil {
		return err
	}
	return failed
}

// readSize is how much is read at once. What comes of it is bounded, too: at most
// an answer for each two bytes.
const readSize = 4096

// carryCommands works on what the client says.
func (c *control) carryCommands() {
	buffer := make([]byte, readSize)
	var out output
	for {
		n, err := c.read(c.client, buffer)
		for data := buffer[:n]; len(data) > 0; {
			c.mu.Lock()
			for c.dialogue.full() && !c.over {
				c.moved.Wait()
			}
			if c.over {
				c.mu.Unlock()
				return
			}
			out.reset()
			data = data[c.dialogue.fromClient(data, &out):]
			c.mu.Unlock()
			if !c.send(&out) {
				return
			}
		}
		if err != nil {
			c.ended(err, resetByClient, c.server, c.dialogue.endOfClient)
			return
		}
	}
}

// carryReplies works on what the server says.
func (c *control) carryReplies() {
	buffer := make([]byte, readSize)
	var out output
	for {
		n, err := c.read(c.server, buffer)
		out.reset()
		c.mu.Lock()
		c.dialogue.fromServer(buffer[:n], &out)
		c.moved.Signal()
		c.mu.Unlock()
		if !c.send(&out) {
			return
		}
		if err != nil {
			c.ended(err, resetByServer, c.client, c.dialogue.endOfServer)
			return
		}
	}
}

// read waits for one side as long as it may be silent.
func (c *control) read(conn *net.TCPConn, buffer []byte) (int, error) {
	for {
		now := time.Now()
		due := now.Add(c.patience())
		if err := conn.SetReadDeadline(due); err != nil {
			return 0, err
		}
		n, err := conn.Read(buffer)
		if n > 0 {
			c.heard.Store(time.Now().UnixNano())
			c.used()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 0 || c.silent() {
			return n, err
		}
	}
}

// patience is how long both sides may be silent. When one has said its last
// word, the other should soon, unless a transfer goes on.
func (c *control) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed > 0 && !c.dialogue.transferring() {
		return min(c.idle, c.write)
	}
	return c.idle
}

// silent reports whether silence has lasted too long.
func (c *control) silent() bool {
	patience := c.patience()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == 0 && (c.dialogue.transferring() || c.dialogue.mode == transparent) {
		return false
	}
	return time.Since(time.Unix(0, c.heard.Load())) >= patience
}

// send writes what the dialogue has made, and reports whether to go on.
func (c *control) send(out *output) bool {
	if !c.put(c.server, out.server, resetByServer) || !c.put(c.client, out.client, resetByClient) {
		return false
	}
	if out.end != 0 {
		c.finish(out.end)
		return false
	}
	return true
}

// put writes to one side; reset is what it means if it does not take it.
func (c *control) put(conn *net.TCPConn, data []byte, reset Counter) bool {
	if len(data) == 0 {
		return true
	}
	err := conn.SetWriteDeadline(time.Now().Add(c.write))
	if err == nil {
		_, err = conn.Write(data)
	}
	if err == nil {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		reset = writeTimeout
	}
	c.finish(reset)
	return false
}

// ended handles the end of what one side says: by closing, which is passed on, or
// otherwise, which ends all. last appends what is still to be said.
func (c *control) ended(err error, reset Counter, other *net.TCPConn, last func(*output)) {
	if !errors.Is(err, io.EOF) {
		c.finish(reasonOf(err, reset))
		return
	}
	var out output
	c.mu.Lock()
	last(&out)
	c.closed++
	all := c.closed == 2
	c.moved.Broadcast()
	c.mu.Unlock()
	if !c.send(&out) {
		return
	}
	if all {
		c.finish(ended)
		return
	}
	if err := other.CloseWrite(); err != nil {
		c.finish(broken)
		return
	}
	// The other side is read with less patience from now on.
	if err := other.SetReadDeadline(time.Now().Add(c.patience())); err != nil {
		c.finish(broken)
	}
}

// reasonOf returns why a side could not be read.
func reasonOf(err error, reset Counter) Counter {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return idleTimeout
	case errors.Is(err, syscall.ECONNRESET):
		return reset
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return hostGone
	}
	return broken
}

// finish ends the connection, unless it is over.
func (c *control) finish(reason Counter) {
	c.mu.Lock()
	over, speak := c.over, c.dialogue.interruptible()
	if !over {
		c.over, c.reason = true, reason
	}
	c.moved.Broadcast()
	c.mu.Unlock()
	if over {
		return
	}
	switch reason {
	case resetByClient:
		abandon(c.server)
	case resetByServer, hostGone, writeTimeout, broken:
		abandon(c.server)
		abandon(c.client)
	case stopped, idleTimeout, gaveWay:
		if speak {
			dismiss(c.client, replyStop)
		}
		// What leads to either side may go next: closing waits for that.
		_ = c.client.SetLinger(lastWords)
		_ = c.server.SetLinger(lastWords)
	}
	c.client.Close()
	c.server.Close()
	close(c.gone)
}

// lastWords is how many seconds the end of a stopped connection may take on its way to
// one side.
const lastWords = 1
