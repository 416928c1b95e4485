// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// patienceOfTests is how long something that is to happen may take.
const patienceOfTests = testutil.Patience

// directPeers stands for a translator on this host: the client is who it is, the
// server is on loopback.
type directPeers struct {
	server netip.AddrPort
	// from takes the place of the client's address, if there is one.
	from netip.Addr
	// callers, if it is there, has the addresses of one connection after the other.
	callers chan netip.Addr
	expect  func(port uint16) (netip.AddrPort, error)
}

var errStranger = errors.New("nobody knows this connection")

func (p directPeers) Peer(from netip.AddrPort) (Peer, error) {
	if !p.server.IsValid() {
		return Peer{}, errStranger
	}
	if p.callers != nil {
		p.from = <-p.callers
	}
	if p.from.IsValid() {
		from = netip.AddrPortFrom(p.from, from.Port())
	}
	return Peer{Client: from, Server: p.server}, nil
}

func (p directPeers) Dial(ctx context.Context, peer Peer) (*net.TCPConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", peer.Server.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (p directPeers) Announce(Peer, uint16) error { return nil }

func (p directPeers) Expect(_ Peer, port uint16, _ time.Duration) (netip.AddrPort, error) {
	return p.expect(port)
}

// site is a proxy at work between a client's listener and a server's.
type site struct {
	t      *testing.T
	proxy  *Proxy
	at     string
	server *net.TCPListener
	stop   func()
}

// newSite starts a proxy; without a server its peers know nobody.
func newSite(t *testing.T, s Settings, change func(*directPeers)) *site {
	t.Helper()
	server, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	peers := directPeers{server: server.Addr().(*net.TCPAddr).AddrPort(), expect: func(uint16) (netip.AddrPort, error) {
		return poolPort, nil
	}}
	if change != nil {
		change(&peers)
	}
	proxy, err := New(s, peers)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6 on its loopback: ", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(ctx, l) }()
	once := false
	stop := func() {
		if once {
			return
		}
		once = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return &site{t: t, proxy: proxy, at: l.Addr().String(), server: server, stop: stop}
}

// person is one end of a control connection.
type person struct {
	*net.TCPConn
	t     *testing.T
	lines *bufio.Reader
}

func (s *site) person(conn *net.TCPConn) *person {
	s.t.Helper()
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patienceOfTests)); err != nil {
		s.t.Fatal(err)
	}
	return &person{conn, s.t, bufio.NewReader(conn)}
}

// call connects a client.
func (s *site) call() *person {
	s.t.Helper()
	conn, err := net.DialTimeout("tcp6", s.at, patienceOfTests)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.person(conn.(*net.TCPConn))
}

// answer accepts the proxy at the server.
func (s *site) answer() *person {
	s.t.Helper()
	if err := s.server.SetDeadline(time.Now().Add(patienceOfTests)); err != nil {
		s.t.Fatal(err)
	}
	conn, err := s.server.AcceptTCP()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.person(conn)
}

// meet connects both sides and lets the server greet.
func (s *site) meet() (client, server *person) {
	s.t.Helper()
	client = s.call()
	server = s.answer()
	server.says("220 hello")
	client.hears("220 hello")
	return client, server
}

func (p *person) says(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p, line+"\r\n"); err != nil {
		p.t.Fatalf("saying %q: %v", line, err)
	}
}

func (p *person) hears(line string) {
	p.t.Helper()
	got, err := p.lines.ReadString('\n')
	if err != nil || got != line+"\r\n" {
		p.t.Fatalf("heard %q (%v), want %q", got, err, line)
	}
}

// hearsEnd expects the other side's end, by FIN or by reset.
func (p *person) hearsEnd(want error) {
	p.t.Helper()
	if rest, err := p.lines.ReadString(0); !errors.Is(err, want) || rest != "" {
		p.t.Fatalf("heard %q (%v), want %v", rest, err, want)
	}
}

// awaitEmpty waits until no connection is open.
func (s *site) awaitEmpty() {
	s.t.Helper()
	for deadline := time.Now().Add(patienceOfTests); s.proxy.Active() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("a connection does not end")
		}
	}
}

// counted stops the proxy and checks what it has counted, beside accepted.
func (s *site) counted(want ...string) {
	s.t.Helper()
	s.stop()
	var got []string
	for c, n := range s.proxy.Counters() {
		if c != accepted {
			for range n {
				got = append(got, c.String())
			}
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		s.t.Errorf("counted %q, want %q", got, want)
	}
	if n := s.proxy.Active(); n != 0 {
		s.t.Errorf("%d connections are still counted as open", n)
	}
}

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

// TestServerEndsFirst: commands that nobody will answer do not hold anything up.
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
