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
	"testing"
	"time"

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
	// dialing, if it is there, hears of each connection that no server accepts or refuses.
	dialing chan struct{}
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
	if p.dialing != nil {
		p.dialing <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
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

// newSite starts a proxy; without a server its peers know no one.
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
