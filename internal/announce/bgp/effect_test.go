// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// router listens for calls of a speaker as a neighbor of it does.
type router struct{ net.Listener }

// listen has a neighbor take calls that fulfil what the options of its socket want.
func listen(t *testing.T, address string, options func(fd int) error) router {
	t.Helper()
	l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = options(int(fd)) }), err)
	}}
	listener, err := l.Listen(context.Background(), "tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return router{listener}
}

func (r router) port() int { return r.Addr().(*net.TCPAddr).Port }

// call waits for the speaker's call.
func (r router) call(t *testing.T) net.Conn {
	t.Helper()
	if err := r.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := r.Accept()
	if err != nil {
		t.Fatalf("no call for %s: %v", r.Addr(), err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	return conn
}

// receive reads one message.
func receive(t *testing.T, conn net.Conn) *bgp.BGPMessage {
	t.Helper()
	header := make([]byte, 19)
	if _, err := io.ReadFull(conn, header); err != nil {
		t.Fatal(err)
	}
	whole := append(header, make([]byte, int(binary.BigEndian.Uint16(header[16:]))-len(header))...)
	if _, err := io.ReadFull(conn, whole[len(header):]); err != nil {
		t.Fatal(err)
	}
	m, err := bgp.ParseBGPMessage(whole)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestKeysInSessions sees in calls, and in the messages to a neighbor of the same AS, what
// keys do.
func TestKeysInSessions(t *testing.T) {
	configtest.InEffect(t, "announce", "local_as", "router_id", "next_hop4", "next_hop6", "med", "local_pref", "communities", "hold_time", "graceful_restart", "neighbor")
	configtest.InEffect(t, "announce.neighbor", "address", "as", "local", "port", "password_file", "multihop", "ttl_security")
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := listen(t, "127.0.0.2:0", func(fd int) error {
		signed := unix.TCPMD5Sig{Keylen: 6}
		signed.Addr.Family = unix.AF_INET
		copy(signed.Addr.Data[2:], []byte{127, 0, 0, 9})
		copy(signed.Key[:], "secret")
		return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &signed)
	})
	least := func(ttl int) func(int) error {
		return func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MINTTL, ttl), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 255))
		}
	}
	far, near := listen(t, "127.0.0.3:0", least(9)), listen(t, "127.0.0.4:0", least(255))
	c, err := config.Parse(strings.NewReader(fmt.Sprintf(`
[announce]
method = "bgp"
local_as = 64999
router_id = "192.0.2.77"
next_hop4 = "192.0.2.78"
next_hop6 = "2001:db8::78"
med = 17
local_pref = 170
communities = ["64999:100"]
hold_time = "45s"
graceful_restart = "50s"
[[announce.neighbor]]
address = "127.0.0.2"
as = 64999
local = "127.0.0.9"
port = %d
password_file = %q
[[announce.neighbor]]
address = "127.0.0.3"
as = 64513
port = %d
multihop = 9
[[announce.neighbor]]
address = "127.0.0.4"
as = 64514
port = %d
ttl_security = true
`, inside.port(), password, far.port(), near.port())), "isthmus.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(c.Announce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false)
	if err := errors.Join(s.Announce(netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")), s.AddPeers()); err != nil {
		t.Fatal(err)
	}
	far.call(t)
	near.call(t)
	session := inside.call(t)
	if from := session.RemoteAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.9" {
		t.Errorf("called from %s", from)
	}
	open := receive(t, session).Body.(*bgp.BGPOpen)
	if open.MyAS != 64999 || open.ID != netip.MustParseAddr("192.0.2.77") || open.HoldTime != 45 {
		t.Errorf("OPEN %+v", open)
	}
	restart := uint16(0)
	for _, p := range open.OptParams {
		for _, one := range p.(*bgp.OptionParameterCapability).Capability {
			if graceful, ok := one.(*bgp.CapGracefulRestart); ok {
				restart = graceful.Time
			}
		}
	}
	if restart != 50 {
		t.Errorf("a restart may take %d s", restart)
	}
	answer(t, session, 64999)
	heard := map[string][]string{}
	for len(heard) < 2 {
		update, ok := receive(t, session).Body.(*bgp.BGPUpdate)
		if !ok || len(update.PathAttributes) == 0 {
			continue // a keepalive, or the end of a table
		}
		var attributes []string
		for _, a := range update.PathAttributes {
			attributes = append(attributes, fmt.Sprint(a))
		}
		heard[fmt.Sprint(len(update.NLRI))] = attributes
	}
	for n, hop := range map[string]string{"0": "Nexthop: 2001:db8::78", "1": "Nexthop: 192.0.2.78"} {
		for _, want := range []string{"Med: 17", "LocalPref: 170", "Communities: 64999:100", hop} {
			if !slices.ContainsFunc(heard[n], func(a string) bool { return strings.Contains(a, want) }) {
				t.Errorf("no %s in %q", want, heard[n])
			}
		}
	}
}

// answer takes the session up, as a neighbor of an AS.
func answer(t *testing.T, session net.Conn, as uint16) {
	t.Helper()
	id := session.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	open, err := bgp.NewBGPOpenMessage(as, 90, id, []bgp.OptionParameterInterface{
		bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
			bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapMultiProtocol(bgp.RF_IPv6_UC), bgp.NewCapFourOctetASNumber(uint32(as)),
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	send(t, session, open, bgp.NewBGPKeepAliveMessage())
}

// send writes messages.
func send(t *testing.T, session net.Conn, messages ...*bgp.BGPMessage) {
	t.Helper()
	for _, m := range messages {
		b, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPassive asks the library whether it waits for the neighbor's call.
func TestPassive(t *testing.T) {
	configtest.InEffect(t, "announce.neighbor", "passive")
	s, err := Open(settings(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false)
	if err := s.AddPeers(); err != nil {
		t.Fatal(err)
	}
	s.peers(func(p *api.Peer) {
		if !p.Transport.PassiveMode {
			t.Errorf("it calls %s", p.State.NeighborAddress)
		}
	})
}
