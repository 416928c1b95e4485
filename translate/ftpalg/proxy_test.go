// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRelay(t *testing.T) {
	s := newSite(t, Settings{}, func(p *directPeers) { p.from = ownAddress })
	client, server := s.meet()
	client.says("EPSV")
	server.hears("PASV")
	server.says("227 Entering Passive Mode (192,0,2,31,237,19)")
	client.hears("229 Entering Extended Passive Mode (|||60691|)")
	client.says("EPRT |2|2001:db8:2::31|5282|")
	server.hears("PORT 192,0,2,31,235,32")
	server.says("200 ok")
	client.hears("200 ok")
	client.says("QUIT")
	server.hears("QUIT")
	server.says("221 Bye")
	client.hears("221 Bye")
	client.Close()
	server.hearsEnd(io.EOF)
	if err := server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s.awaitEmpty()
	s.counted("epsv_translated", "eprt_translated", "ended")
}

// TestHalfClose: what a client says no more does not end what the server says.
func TestHalfClose(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	client, server := s.meet()
	client.says("RETR file")
	client.says("QUIT")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	server.hears("RETR file")
	server.hears("QUIT")
	server.hearsEnd(io.EOF)
	server.says("226 Done")
	client.hears("226 Done")
	server.says("221 Bye")
	server.Close()
	client.hears("221 Bye")
	client.hearsEnd(io.EOF)
	s.counted("ended")
}

// TestServerEndsFirst: commands that no one will answer do not hold anything up.
func TestServerEndsFirst(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	client, server := s.meet()
	client.says(strings.Repeat("NOOP\r\n", 4*maxPending) + "QUIT")
	server.hears("NOOP")
	if err := server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	client.hearsEnd(io.EOF)
	for range 4*maxPending - 1 {
		server.hears("NOOP")
	}
	server.hears("QUIT")
	client.Close()
	server.hearsEnd(io.EOF)
	s.counted("ended")
}

func TestResets(t *testing.T) {
	t.Run("by the client", func(t *testing.T) {
		s := newSite(t, Settings{}, nil)
		client, server := s.meet()
		abandon(client.TCPConn)
		client.Close()
		server.hearsEnd(syscall.ECONNRESET)
		s.counted("reset_by_client")
	})
	t.Run("by the server", func(t *testing.T) {
		s := newSite(t, Settings{}, nil)
		client, server := s.meet()
		abandon(server.TCPConn)
		server.Close()
		client.hearsEnd(syscall.ECONNRESET)
		s.counted("reset_by_server")
	})
}

func TestRefusals(t *testing.T) {
	t.Run("connection that the translator does not know", func(t *testing.T) {
		s := newSite(t, Settings{}, func(p *directPeers) { p.server = netip.AddrPort{} })
		conn, err := net.DialTimeout("tcp6", s.at, patienceOfTests)
		if err == nil {
			_, err = s.person(conn.(*net.TCPConn)).Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ends with %v", err)
		}
		s.counted("stranger_refused")
	})
	t.Run("too many", func(t *testing.T) {
		s := newSite(t, Settings{Connections: 1}, nil)
		s.meet()
		second := s.call()
		second.hears("421 Too many connections through this gateway")
		second.hearsEnd(io.EOF)
		s.counted("too_many", "stopped")
	})
	t.Run("room made meanwhile", func(t *testing.T) {
		s := newSite(t, Settings{Connections: 1}, nil)
		s.meet()
		if err := s.proxy.SetLimits(2, -1); err == nil {
			t.Error("a negative limit is taken")
		}
		s.call().hears("421 Too many connections through this gateway")
		if err := s.proxy.SetLimits(2, 1); err != nil {
			t.Fatal(err)
		}
		s.call().hears("421 Too many connections through this gateway")
		if err := s.proxy.SetLimits(2, 2); err != nil {
			t.Fatal(err)
		}
		s.meet()
		s.counted("too_many", "too_many_of_client", "stopped", "stopped")
	})
	t.Run("too many of a client", func(t *testing.T) {
		s := newSite(t, Settings{PerClient: 1, ClientLength: 127}, nil)
		first, server := s.meet()
		s.call().hears("421 Too many connections through this gateway")
		first.says("QUIT")
		server.hears("QUIT")
		server.Close()
		first.hearsEnd(io.EOF)
		first.Close()
		s.awaitEmpty()
		s.meet()
		s.counted("too_many_of_client", "ended", "stopped")
	})
	t.Run("clients within their share have all of them", func(t *testing.T) {
		callers := make(chan netip.Addr, 1)
		s := newSite(t, Settings{Connections: 4, PerClient: 2}, func(p *directPeers) { p.callers = callers })
		as := func(client string) (*person, *person) {
			t.Helper()
			callers <- netip.MustParseAddr(client)
			return s.meet()
		}
		refused := func(client string) {
			t.Helper()
			callers <- netip.MustParseAddr(client)
			s.call().hears("421 Too many connections through this gateway")
		}
		busy, server := as("2001:db8:1::1")
		idle, _ := as("2001:db8:1::2") // the same network
		as("2001:db8:2::1")
		as("2001:db8:2::2")
		busy.says("SYST") // so the other has been silent longest
		server.hears("SYST")
		server.says("215 UNIX")
		busy.hears("215 UNIX")
		refused("2001:db8:1::3")
		as("2001:db8:3::1")
		idle.hears("421 Service not available, closing control connection")
		idle.hearsEnd(io.EOF)
		busy.says("NOOP")
		server.hears("NOOP")
		as("2001:db8:3::2") // still fewer than one other
		refused("2001:db8:3::3")
		s.counted("too_many", "too_many", "stopped", "stopped", "stopped", "stopped", "gave_way", "gave_way")
	})
	t.Run("server that is not there", func(t *testing.T) {
		s := newSite(t, Settings{}, nil)
		s.server.Close()
		client := s.call()
		client.hears("421 The server cannot be reached")
		client.hearsEnd(io.EOF)
		s.counted("server_unreachable")
	})
}

// TestStop tells clients, but never in the middle of another's words.
func TestStop(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	idle, _ := s.meet()
	secret, server := s.meet()
	secret.says("AUTH TLS")
	server.hears("AUTH TLS")
	server.says("234 Go ahead")
	secret.hears("234 Go ahead")
	s.counted("auth_accepted", "stopped", "stopped")
	idle.hears("421 Service not available, closing control connection")
	idle.hearsEnd(io.EOF)
	secret.hearsEnd(io.EOF)
}

// TestStopWhileDialing is not the server's fault.
func TestStopWhileDialing(t *testing.T) {
	dialing := make(chan struct{})
	s := newSite(t, Settings{}, func(p *directPeers) { p.dialing = dialing })
	client := s.call()
	<-dialing
	s.counted("stopped")
	client.hears("421 Service not available, closing control connection")
	client.hearsEnd(io.EOF)
}

// TestUrgentData stays in its place in the stream.
func TestUrgentData(t *testing.T) {
	s := newSite(t, Settings{}, nil)
	client, server := s.meet()
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), []byte{telnetIAC, telnetIP, telnetIAC}, unix.MSG_OOB, nil)
		return !errors.Is(failed, unix.EAGAIN)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	client.says("\xf2ABOR")
	server.hears("\xff\xf4\xff\xf2ABOR")
	server.says("225 ok")
	client.hears("225 ok")
	s.counted("stopped")
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Settings
		want string
	}{
		{"short hold", Settings{Hold: time.Second}, "1s is too short for an FTP server to connect to a client; give at least 30 s"},
		{"prefix of no bits", Settings{ClientLength: 129}, "a client of FTP cannot be a prefix of 129 bits; give 1 to 128"},
		{"negative number", Settings{PerClient: -1}, "a number of FTP connections is negative; give at least 1"},
		{"negative time", Settings{Idle: -1}, "a time limit of FTP is negative; give a time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.s, directPeers{}); err == nil || err.Error() != c.want {
				t.Errorf("New says %v", err)
			}
		})
	}
}
