// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a connection may be silent in tests where it is: longer than a busy
// machine stands still while the two sides speak.
const silence = 5 * time.Second

// TestSilence ends a connection, but not during a transfer.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := newSite(t, Settings{Idle: silence}, nil)
	client, server := s.meet()
	client.says("RETR big")
	server.hears("RETR big")
	server.says("150 Opening")
	client.hears("150 Opening")
	// Longer than silence may last.
	time.Sleep(3 * silence / 2)
	server.says("226 Done")
	client.hears("226 Done")
	client.hears("421 Service not available, closing control connection")
	client.hearsEnd(io.EOF)
	server.hearsEnd(io.EOF)
	s.counted("idle_timeout")
}

// TestSilenceOfOne: who has heard the last word is not waited for.
func TestSilenceOfOne(t *testing.T) {
	t.Parallel()
	s := newSite(t, Settings{Write: silence}, nil)
	client, server := s.meet()
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	server.hearsEnd(io.EOF)
	client.hears("421 Service not available, closing control connection")
	client.hearsEnd(io.EOF)
	s.counted("idle_timeout")
}

// TestSilenceOfATransfer that a client has left ends as silence without one does.
func TestSilenceOfATransfer(t *testing.T) {
	t.Parallel()
	s := newSite(t, Settings{Idle: silence}, nil)
	client, server := s.meet()
	client.says("RETR big")
	server.hears("RETR big")
	server.says("150 Opening")
	client.hears("150 Opening")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	server.hearsEnd(io.EOF)
	client.hears("421 Service not available, closing control connection")
	client.hearsEnd(io.EOF)
	s.counted("idle_timeout")
}

// TestServerThatDoesNotRead is waited for in bounded time.
func TestServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, Settings{Write: silence}, nil)
	client, _ := s.meet()
	block := []byte(strings.Repeat("x", 1<<16))
	for {
		if _, err := client.Write(block); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
			break
		}
	}
	s.counted("line_too_long", "write_timeout")
}

func TestServerThatRefusesNOOP(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	client, server := s.meet()
	client.says("ALGS STATUS64")
	server.hears("NOOP")
	server.says("502 No")
	client.hears("421 Service not available, closing control connection")
	client.hearsEnd(io.EOF)
	server.hearsEnd(io.EOF)
	s.counted("algs_answered", "noop_refused")
}

// TestKeepAlives: the first comes before the least time for which a translator keeps an
// idle connection that begins or ends, and each minute or less.
func TestKeepAlives(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	client, _ := s.meet()
	if err := tune(client.TCPConn); err != nil {
		t.Fatal(err)
	}
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []struct{ level, name, least, most int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1, 60},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1, 60},
	} {
		var got int
		var failed error
		if err := raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), option.level, option.name) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got < option.least || got > option.most {
			t.Errorf("option %d of level %d is %d, want %d to %d", option.name, option.level, got, option.least, option.most)
		}
	}
}
