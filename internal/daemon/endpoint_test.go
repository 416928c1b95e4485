// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestServeEndsAtOnce stops a server that has a connection of each kind: the one
// whose answer is under way gets it, and no one waits for the others.
func TestServeEndsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-answer
		}
		_, _ = io.WriteString(w, "done")
	})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, server) }()
	connect := func(text string) *bufio.Reader {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(conn)
	}
	read := func(from *bufio.Reader) string {
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err.Error()
		}
		return string(body)
	}
	idle := connect("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := read(idle); got != "done" {
		t.Fatalf("first answer: %s", got)
	}
	silent, half := connect(""), connect("GET / HTTP/1.1\r\n")
	slow := connect("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-asked
	stop()
	for name, from := range map[string]*bufio.Reader{"idle": idle, "silent": silent, "half-open": half} {
		// The slow one holds the server up until then. A connection that is closed
		// before all of its question was read ends with a reset.
		if _, err := from.ReadByte(); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the %s connection ended with %v, want its end", name, err)
		}
	}
	close(answer)
	if got := read(slow); got != "done" {
		t.Errorf("the answer under way: %s", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// 0.0.0.0 is all addresses of IPv4, and no one who writes it wants the metrics seen by IPv6.
func TestMetricsByIPv4Alone(t *testing.T) {
	listener, err := listenMetrics(netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if at := listener.Addr().(*net.TCPAddr).AddrPort(); !at.Addr().Is4() {
		t.Errorf("the metrics listen at %v", at)
	}
}

// TestEndpointsAreBounded opens connections without end: those of the control socket have the
// limits that its server sets, and those of the metrics wait.
func TestEndpointsAreBounded(t *testing.T) {
	listener, err := listenMetrics(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	var states atomic.Int64
	server := &http.Server{
		Handler:   http.NotFoundHandler(),
		ConnState: func(net.Conn, http.ConnState) { states.Add(1) },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, server) }()
	greets := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answered := func(conn net.Conn) bool {
		n, err := conn.Read(make([]byte, 1))
		return n == 1 && err == nil
	}
	first := greets()
	for i, conn := 1, first; ; i, conn = i+1, greets() {
		if !answered(conn) {
			t.Fatalf("connection %d has no answer", i)
		}
		if i == maxScrapes {
			break
		}
	}
	if states.Load() == 0 {
		t.Error("the server's own hook is not called")
	}
	waiting := greets()
	if err := waiting.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if answered(waiting) {
		t.Error("one more was answered")
	}
	if err := waiting.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if !answered(waiting) {
		t.Error("a place that was given back is not free")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
