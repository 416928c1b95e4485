// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// TestDialFromAListener has two listeners as peers, each at its own port.
func TestDialFromAListener(t *testing.T) {
	a := listen(t, onLoopback(), "sctp+udp", "127.0.0.1:0")
	b := listen(t, onLoopback(), "sctp+udp", "127.0.0.1:0")
	c, err := a.Endpoint().Dial(context.Background(), b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.AcceptSCTP(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.RemoteAddr().String(), a.Addr().String(); got != want {
		t.Errorf("the peer is %s, not %s", got, want)
	}
	if _, err := a.Endpoint().Dial(context.Background(), b.Addr().String()); err == nil {
		t.Error("two associations of the same ends")
	}
	if n := a.Endpoint().Stats().Associations; n != 1 {
		t.Errorf("%d associations", n)
	}
	c.Close()
	if _, err := s.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	s.Close()
	if err := shutdown(a.Endpoint()); err != nil {
		t.Error(err)
	}
	if _, err := a.Endpoint().Dial(context.Background(), b.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed endpoint dials: %v", err)
	}
}

// TestUnansweredDial: the sockets of a dial that no one has answered are closed with it.
func TestUnansweredDial(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no one reads there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	e, err := onLoopback().Open(t.Context(), "sctp4+udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Dial(ctx, fmt.Sprintf("127.0.0.1:5000/%d", silent.LocalAddr().(*net.UDPAddr).Port)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	e.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		t.Error("it lingers")
	}
}

// TestBacklog refuses who comes when as many wait for Accept as may.
func TestBacklog(t *testing.T) {
	l := listen(t, &Config{UDPPort: AnyPort, Backlog: 1}, "sctp+udp", "127.0.0.1:0")
	first, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err == nil {
		_, err = second.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

// TestAcceptWhileClosing has Accept take an association while the endpoint refuses those that wait: that does not wait for one
// that is gone.
func TestAcceptWhileClosing(t *testing.T) {
	client, server := connect(t, onLoopback())
	e := server.endpoint
	client.Abort("the test needs none that lives")
	<-server.done
	over := make(chan struct{})
	var sink atomic.Int64
	var accept sync.WaitGroup
	accept.Go(func() {
		for {
			select {
			case <-e.accepts:
				for i := range 100 + rand.IntN(200) {
					sink.Store(int64(i))
				}
			case <-over:
				return
			}
		}
	})
	for range 20_000 {
		for range 10 {
			e.accepts <- server
		}
		turn := e.begin()
		e.refuse(turn)
		e.finish(turn)
	}
	close(over)
	accept.Wait()
}

// TestEventsAreBounded fills the queue of events, of which someone takes some, or none, or for which nobody has asked, and
// counts what is lost.
func TestEventsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ asked, taken bool }{"taken": {true, true}, "not taken": {true, false}, "not asked for": {}} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, onLoopback())
			confirmed(t, client, 2)
			if c.asked {
				client.Events()
			}
			e := client.endpoint
			turn := e.begin()
			for range maxEvents + 10 {
				client.tell(&assoc.Event{Kind: PathActive, Association: client.a})
			}
			e.finish(turn)
			for c.taken && len(client.Events()) > maxEvents/2 {
				<-client.Events()
			}
			server.Abort("test")
			<-client.done
			var last Event
			n := 0
			for ev := range client.Events() {
				last = ev
				n++
			}
			if lost := int(e.Stats().EventsLost); last.Kind != Failed || last.Lost < 10 || last.Lost != lost || !c.taken && n != maxEvents {
				t.Errorf("%d events, the last %+v, %d lost", n, last, lost)
			}
		})
	}
}

// TestKernelSpeaks opens raw sockets where the kernel has SCTP, or seems to.
func TestKernelSpeaks(t *testing.T) {
	n := testutil.NewNetns(t)
	usual := kernelSCTP
	t.Cleanup(func() { kernelSCTP = usual })
	kernelSCTP = t.TempDir()
	n.Do(t, func() error {
		if _, err := Listen("sctp", ":5000"); !errors.Is(err, ErrKernel) {
			t.Errorf("beside the kernel's: %v", err)
		}
		l, err := (&Config{BesideKernel: true}).Listen(context.Background(), "sctp", ":5000")
		if err != nil {
			return err
		}
		kernelSCTP = filepath.Join(t.TempDir(), "none")
		if _, err := Listen("sctp", ":5000"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("beside another endpoint: %v", err)
		}
		other, err := Listen("sctp", ":5001")
		if err != nil {
			return err
		}
		l.Close()
		other.Close()
		again, err := Listen("sctp", ":5000")
		if err != nil {
			return err
		}
		return again.Close()
	})
}

// TestAddressOfAnotherEndpoint adds an address that the endpoint is not bound to: nothing could come there.
func TestAddressOfAnotherEndpoint(t *testing.T) {
	l := listen(t, onLoopback(), "sctp+udp", "[::1]:0")
	e, err := onLoopback().Open(context.Background(), "sctp+udp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c, err := e.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort("the test is over")
	if err := c.AddAddress(netip.MustParseAddr("127.0.0.1")); !errors.Is(err, ErrBound) {
		t.Errorf("the address is added: %v", err)
	}
}

// TestPeersVanish has peers vanish in the midst of data, without a word, whose hosts say so of each packet: the endpoint
// goes on, also where it hears that while it sends.
func TestPeersVanish(t *testing.T) {
	l := listen(t, onLoopback(), "sctp4+udp", "127.0.0.1:0")
	for range 4 {
		for range 4 {
			client, err := onLoopback().Dial(context.Background(), "sctp4+udp", l.Addr().String())
			if err != nil {
				t.Fatalf("the listener is dead: %v", err)
			}
			// Now and then one draws the SCTP port of one that has vanished: it restarts that association, and nobody is to
			// be accepted (RFC 9260 section 5.2.4.1).
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			server, err := l.AcceptSCTP(ctx)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				client.Abort("it is another's")
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*Conn{client, server} {
				t.Cleanup(func() { c.Abort("the test is over") })
				go func() {
					for b := make([]byte, 1000); ; {
						if _, err := c.Write(b); err != nil {
							return
						}
					}
				}()
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
			time.AfterFunc(100*time.Millisecond, client.endpoint.sockets.close)
		}
		time.Sleep(500 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	c, err := onLoopback().Dial(ctx, "sctp4+udp", l.Addr().String())
	if err != nil {
		t.Fatalf("the listener is dead: %v", err)
	}
	c.Abort("the test is over")
}

// TestAllAddresses listens at the unspecified address, as with package net.
func TestAllAddresses(t *testing.T) {
	for address, dial := range map[string]string{"0.0.0.0:0": "127.0.0.1", "[::]:0": "[::1]"} {
		c := &Config{UDPPort: AnyPort, Backlog: -1}
		l := listen(t, c, "sctp+udp", address)
		a := l.Addr().(*Addr)
		client, err := onLoopback().Dial(context.Background(), "sctp+udp", fmt.Sprintf("%s:%d/%d", dial, a.Port, a.UDP))
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		client.Abort("the test is over")
	}
	for _, wrong := range []string{"224.0.0.1:0", "0.0.0.0/127.0.0.1:0"} {
		if l, err := onLoopback().Listen(context.Background(), "sctp+udp", wrong); err == nil {
			l.Close()
			t.Errorf("%s is listened at", wrong)
		}
	}
	if l, err := (&Config{UDPPort: 70000}).Listen(context.Background(), "sctp+udp", ":0"); err == nil {
		l.Close()
		t.Error("a port of UDP above 65535 is taken")
	}
	var wrong *net.AddrError
	if _, err := onLoopback().Dial(context.Background(), "sctp+udp", "127.0.0.1:5000/0"); !errors.As(err, &wrong) {
		t.Errorf("port 0 of UDP: %v", err)
	}
}

// TestCloseOutlivesRestart has a peer vanish without a word, and begin again, when our user has closed the association: it
// ends all the same, since no one else would end it.
func TestCloseOutlivesRestart(t *testing.T) {
	slow := Defaults()
	slow.RTOInitial, slow.RTOMin = 30*time.Second, 30*time.Second
	slow.MaxMTU = 1200 // without probes, whose answers would come to the one that begins again, which aborts what it does not know
	c := &Config{UDPPort: AnyPort, Parameters: &slow}
	l := listen(t, c, "sctp4+udp", "127.0.0.1:0")
	e, err := c.Open(context.Background(), "sctp4+udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first, err := e.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.AcceptSCTP(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.sockets.close()
	e.readers.Wait()
	defer first.Abort("it is gone")
	at := fmt.Sprintf("127.0.0.1:%d", e.addr.UDP)
	silent, err := net.ListenPacket("udp4", at) // else its host would say that it is gone
	for try := 0; errors.Is(err, syscall.EADDRINUSE) && try < 1000; try++ {
		time.Sleep(time.Millisecond) // who is sending has the socket until then
		silent, err = net.ListenPacket("udp4", at)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("to nobody")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := silent.ReadFrom(make([]byte, 1500)); err != nil { // the next one is sent after RTO.Min
		t.Fatal(err)
	}
	server.Close()
	silent.Close()
	again, err := (&Config{UDPPort: int(e.addr.UDP)}).Open(context.Background(), "sctp4+udp", e.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	client, err := again.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(time.Minute)) // the end tells
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the association lives on: %v", err)
	}
	<-server.done
}

// TestRestartBehindShutdown: what a peer has said before it began again, that it sends nothing more, holds no more.
func TestRestartBehindShutdown(t *testing.T) {
	_, server := connect(t, onLoopback())
	turn := server.endpoint.begin()
	for _, kind := range []EventKind{PeerShutdown, Restarted} {
		server.note(&assoc.Event{Kind: kind, Association: server.a})
	}
	server.endpoint.finish(turn)
	b := []byte("x")
	for _, want := range []error{ErrRestarted, nil} {
		if _, err := server.Write(b); !errors.Is(err, want) {
			t.Errorf("to write: %v, want %v", err, want)
		}
	}
	for _, want := range []error{ErrRestarted, os.ErrDeadlineExceeded} {
		if _, err := server.Read(b); !errors.Is(err, want) {
			t.Errorf("to read: %v, want %v", err, want)
		}
		_ = server.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	}
}
