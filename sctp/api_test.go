// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestMain looks for goroutines that endpoints have left behind: all of the tests' are closed by then, if no test has
// ended early.
func TestMain(m *testing.M) {
	code := m.Run()
	stacks := make([]byte, 1<<20)
	for range 1200 {
		n := runtime.Stack(stacks, true)
		if code != 0 || !strings.Contains(string(stacks[:n]), "sctp.(*Endpoint)") {
			os.Exit(code)
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Printf("goroutines of endpoints are left:\n%s\n", stacks[:runtime.Stack(stacks, true)])
	os.Exit(1)
}

func TestMessagesHaveTheirMetadata(t *testing.T) {
	client, server := connect(t, onLoopback())
	sent := []struct {
		text string
		Message
	}{
		{"ordered", Message{Stream: 3, PPID: 46}},
		{"unordered", Message{Stream: 9, PPID: 1 << 31, Unordered: true}},
		{"at once", Message{Immediate: true}},
		{"with a life", Message{Stream: 1, Lifetime: time.Minute, Tries: 3}},
	}
	for _, m := range sent {
		if err := client.WriteMessage([]byte(m.text), m.Message); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, info, err := server.ReadMessage(buffer)
		want := MessageInfo{Stream: m.Stream, PPID: m.PPID, Unordered: m.Unordered, First: true, Last: true}
		if err != nil || string(buffer[:n]) != m.text || info != want {
			t.Errorf("%q has come as %q with %+v, %v", m.text, buffer[:n], info, err)
		}
	}
	if err := client.WriteMessage(nil, Message{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("a message without octets: %v", err)
	}
	if err := client.WriteMessage([]byte("x"), Message{Stream: 10}); !errors.Is(err, ErrStream) {
		t.Errorf("a stream that there is not: %v", err)
	}
	if err := client.WriteMessage(make([]byte, 300<<10), Message{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a message that is larger than the send buffer: %v", err)
	}
}

func TestLargeMessagesComeInParts(t *testing.T) {
	client, server := connect(t, onLoopback())
	message := make([]byte, 200<<10)
	for i := range message {
		message[i] = byte(i % 251)
	}
	if err := client.WriteMessage(message, Message{Stream: 2, PPID: 7}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		buffer := make([]byte, 10000)
		n, info, err := server.ReadMessage(buffer)
		if err != nil || info.Stream != 2 || info.PPID != 7 || info.First != (len(got) == 0) {
			t.Fatalf("behind %d octets: %+v, %v", len(got), info, err)
		}
		if got = append(got, buffer[:n]...); info.Last {
			break
		}
	}
	if !bytes.Equal(got, message) {
		t.Error("the message is not the one that was sent")
	}
}

func TestHalfClose(t *testing.T) {
	client, server := connect(t, onLoopback())
	if err := server.WriteMessage([]byte("before"), Message{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); string(got) != "before" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the other end reads %d octets, %v", n, err)
	}
	if _, err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write behind CloseWrite: %v", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to who has shut down: %v", err)
	}
}

func TestShutdownWaitsForThePeer(t *testing.T) {
	client, server := connect(t, onLoopback())
	sent := make([]byte, 500<<10) // more than the peer has room for
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(sent)
		written <- errors.Join(err, client.Shutdown(context.Background()))
	}()
	if got, err := io.ReadAll(server); len(got) != len(sent) || err != nil {
		t.Errorf("%d octets have come, %v", len(got), err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	// A peer that does not read stops it: the context does.
	client, _ = connect(t, onLoopback())
	for n := 1; n > 0; { // until the peer has room for no more
		if err := client.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		var err error
		if n, err = client.Write(make([]byte, 2<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := client.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestAbort has one path: on another one, the answer to a packet out of the blue may overtake the word of the end.
func TestAbort(t *testing.T) {
	client, server := connectAt(t, onLoopback(), "[::1]:0")
	client.Abort("going\ndown")
	_, err := server.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) || !strings.HasSuffix(err.Error(), `the peer has aborted: user-initiated abort: "going\ndown"`) {
		t.Errorf("the peer reads %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("the end that has aborted reads %v", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer writes %v", err)
	}
	last := Event{}
	for e := range server.Events() {
		last = e
	}
	if last.Kind != Failed || last.Reason != ReasonAborted || last.Text != "going\ndown" {
		t.Errorf("the last event is %+v", last)
	}
}

func TestCloseEndsWhoWaits(t *testing.T) {
	client, _ := connect(t, onLoopback())
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a read ends with %v", err)
			}
		})
		wait.Go(func() {
			for {
				if _, err := client.Write(make([]byte, 10000)); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("a write ends with %v", err)
					}
					return
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // most of them wait by then; all are to end in any case
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	wait.Wait()
	if err := client.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
}

// TestDeadlinesOfTheClosed has what is closed say so, whatever its deadline was.
func TestDeadlinesOfTheClosed(t *testing.T) {
	client, server := connect(t, onLoopback())
	past := time.Now().Add(-time.Second)
	if err := client.SetDeadline(past); err != nil {
		t.Fatal(err)
	}
	octet := make([]byte, 1)
	if _, err := client.Read(octet); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline: %v", err)
	}
	if err := server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Errorf("closed for writing: %v", err)
	}
	client.Close()
	for name, call := range map[string]func() error{
		"Read":             func() error { _, err := client.Read(octet); return err },
		"Read of nothing":  func() error { _, err := client.Read(nil); return err },
		"Write":            func() error { _, err := client.Write(octet); return err },
		"Write of nothing": func() error { _, err := client.Write(nil); return err },
		"SetDeadline":      func() error { return client.SetDeadline(time.Time{}) },
		"SetReadDeadline":  func() error { return client.SetReadDeadline(time.Time{}) },
		"SetWriteDeadline": func() error { return client.SetWriteDeadline(time.Time{}) },
	} {
		if err := call(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := server.endpoint
	listener := &Listener{endpoint: l}
	if err := listener.SetDeadline(past); err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if err := listener.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetDeadline of the listener: %v", err)
	}
}

// TestReadOfNothing neither waits nor takes anything.
func TestReadOfNothing(t *testing.T) {
	client, server := connect(t, onLoopback())
	if n, err := client.Read(nil); n != 0 || err != nil {
		t.Errorf("read %d octets, %v", n, err)
	}
	if err := server.WriteMessage([]byte("x"), Message{Stream: 4}); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 10)
	for n := 0; n == 0; { // until it has come
		if m, err := client.Read(nil); m != 0 || err != nil {
			t.Fatalf("read %d octets, %v", m, err)
		}
		client.endpoint.mu.Lock()
		n = client.inbox.pieces.length
		client.endpoint.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	_, _ = client.Read(nil)
	if n, info, err := client.ReadMessage(buffer); n != 1 || !info.First || !info.Last || info.Stream != 4 || err != nil {
		t.Errorf("read %d octets, %+v, %v", n, info, err)
	}
}

func TestDialIsGivenUp(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no one reads there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	port := silent.LocalAddr().(*net.UDPAddr).Port
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = onLoopback().Dial(ctx, "sctp+udp", fmt.Sprintf("127.0.0.1:5000/%d", port))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestDialWhereNoOneIs(t *testing.T) {
	one, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := one.LocalAddr().(*net.UDPAddr).Port
	one.Close()
	for host, address := range map[string]string{"no UDP": fmt.Sprintf("127.0.0.1:5000/%d", port), "no listener": noListener(t)} {
		if _, err := onLoopback().Dial(context.Background(), "sctp+udp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// noListener returns the address of an endpoint that does not listen.
func noListener(t *testing.T) string {
	e, err := onLoopback().Open(context.Background(), "sctp+udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e.Addr().String()
}

func TestListenerClose(t *testing.T) {
	l := listen(t, onLoopback(), "sctp+udp", "127.0.0.1:0")
	client, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // until the listener has it
		if len(l.endpoint.accepts) > 0 {
			break
		} else if i == 2999 {
			t.Fatal("the second association does not wait for Accept")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("who was not accepted reads %v", err)
	}
	if _, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("who comes later: %v", err)
	}
	if _, err := client.Write([]byte("still there")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if n, err := server.Read(buffer); string(buffer[:n]) != "still there" || err != nil {
		t.Errorf("read %q, %v", buffer[:n], err)
	}
	client.Close()
	server.Close()
}

// TestListenerLingers has a peer ask for the end of an association again when the listener and the association are gone:
// it is answered (RFC 9260 section 8.4, 5). Who wants the port has it at once.
func TestListenerLingers(t *testing.T) {
	l := listen(t, onLoopback(), "sctp+udp", "127.0.0.1:0")
	client, err := onLoopback().Dial(context.Background(), "sctp+udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.AcceptSCTP(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	client.Close()
	at := l.endpoint.addr
	peer, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", at.UDP))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	ask := chunk.Append(chunk.Begin(nil, chunk.Header{Source: 5, Destination: at.Port, Tag: 7}), chunk.TypeShutdownAck, 0, nil)
	chunk.Seal(ask)
	_ = peer.SetDeadline(time.Now().Add(time.Minute))
	_, _ = peer.Write(ask) // the answer tells
	buffer := make([]byte, 100)
	n, err := peer.Read(buffer)
	if err != nil {
		t.Fatal("the last packet of the end is lost, and no one is there to be asked for it: ", err)
	}
	h, chunks, err := chunk.Open(buffer[:n])
	if c, _, _ := chunk.Next(chunks); err != nil || h.Tag != 7 || c.Type != chunk.TypeShutdownComplete {
		t.Errorf("the answer is %x, %v", buffer[:n], err)
	}
	next := listen(t, &Config{UDPPort: int(at.UDP)}, "sctp+udp", at.String())
	if client, err = onLoopback().Dial(ctx, "sctp+udp", next.Addr().String()); err != nil {
		t.Fatal(err)
	}
	client.Close()
}

func TestAcceptEnds(t *testing.T) {
	l := listen(t, onLoopback(), "sctp+udp", "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := l.AcceptSCTP(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := l.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { l.Close() })
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestManyAssociations has one endpoint dial many associations to another, of which one does not read: the others go
// on.
func TestManyAssociations(t *testing.T) {
	const associations = 200
	c := &Config{UDPPort: AnyPort, Backlog: associations}
	l := listen(t, c, "sctp+udp", "[::1]:0")
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range associations {
			s, err := l.AcceptSCTP(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			if i > 0 { // the first one is not read
				wait.Go(func() {
					if _, err := io.Copy(s, s); err != nil {
						t.Error(err)
					}
					s.Close()
				})
			}
		}
	})
	dial := func() *Conn {
		conn, err := c.Dial(context.Background(), "sctp+udp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stuck := dial()
	wait.Go(func() {
		if _, err := stuck.Write(make([]byte, 10<<20)); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("who writes to no reader: %v", err)
		}
	})
	for range associations - 1 {
		conn := dial()
		wait.Go(func() {
			want := bytes.Repeat([]byte("0123456789"), 1000)
			go conn.Write(want)
			if got := make([]byte, len(want)); true {
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the echo is not what was sent: %v", err)
				}
			}
			conn.Close()
		})
	}
	time.AfterFunc(3*time.Second, func() { stuck.Abort("the test is over") })
	wait.Wait()
	if err := shutdown(l.Endpoint()); err != nil {
		t.Error(err)
	}
}

func shutdown(e *Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	return e.Shutdown(ctx)
}

func TestPortInUse(t *testing.T) {
	l := listen(t, &Config{UDPPort: AnyPort}, "sctp+udp", "127.0.0.1:0")
	port := int(l.Addr().(*Addr).UDP)
	_, err := (&Config{UDPPort: port}).Listen(context.Background(), "sctp+udp", "127.0.0.1:0")
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "needs a port of UDP of its own") {
		t.Error(err)
	}
}

// TestGivenUpMessages sends messages with a short life to a peer that has no room for them.
func TestGivenUpMessages(t *testing.T) {
	par := Defaults()
	par.ReceiveBuffer = 4096
	client, server := connect(t, &Config{UDPPort: AnyPort, Parameters: &par})
	message := Message{Stream: 4, PPID: 99, Lifetime: 50 * time.Millisecond}
	for i := range 20 {
		if err := client.WriteMessage(bytes.Repeat([]byte{byte(i)}, 1000), message); err != nil {
			t.Fatal(err)
		}
	}
	failed := map[byte]bool{}
	late := time.After(testutil.Patience)
	for len(failed) == 0 {
		select {
		case e := <-client.Events():
			if e.Kind != SendFailed {
				continue
			}
			if e.Message.Stream != 4 || e.Message.PPID != 99 || len(e.Data) != 1000 || e.Reason != ReasonExpired {
				t.Fatalf("%+v", e)
			}
			failed[e.Data[0]] = true
		case <-late:
			t.Fatal("no message was given up")
		}
	}
	if failed[0] {
		t.Error("the first message was given up, for which there was room")
	}
	buffer := make([]byte, 2048)
	if n, _, err := server.ReadMessage(buffer); n != 1000 || buffer[0] != 0 || err != nil {
		t.Errorf("the first message is of %d octets, %v", n, err)
	}
}
