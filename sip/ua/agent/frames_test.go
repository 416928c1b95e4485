// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// connected is an agent without a loop that reads one connection, and the other end of that.
func connected() (a *Agent, p *path, s *stream, far net.Conn) {
	near, far := net.Pipe()
	s = &stream{conn: near, cancel: func() {}}
	a = &Agent{work: make(chan func(), 16), ended: make(chan struct{})}
	return a, &path{streams: map[netip.AddrPort]*stream{{}: s}}, s, far
}

// The effort to read a message does not grow with the number of its pieces.
func TestMessageInPieces(t *testing.T) {
	a, p, s, far := connected()
	text := "OPTIONS sip:bob@example.com SIP/2.0\r\nX: " + strings.Repeat("x", 20_000) + "\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("y", 5000)
	go func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{far}, struct{ io.Reader }{strings.NewReader(text)}, make([]byte, 1))
		_ = far.Close()
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a.read(p, s)
	runtime.ReadMemStats(&after)
	if n := len(a.work); n != 2 {
		t.Errorf("%d things to do, want a message and the end", n)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 {
		t.Errorf("%d octets are copied for a message of %d", n, len(text))
	}
}

// A keep-alive is answered, and one that comes long after another message was written.
func TestKeepAliveIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, p, s, far := connected()
		go a.read(p, s)
		go a.write(p, s, []byte("message"))
		got := make([]byte, len("message\r\n"))
		if _, err := io.ReadFull(far, got[:len("message")]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * writeWithin)
		_, _ = io.WriteString(far, "\r\n\r\n")
		go (<-a.work)()
		_ = far.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(far, got[len("message"):]); err != nil || string(got) != "message\r\n" {
			t.Errorf("%q, %v", got, err)
		}
		_ = far.Close()
	})
}
