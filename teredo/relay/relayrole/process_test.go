// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// span is a relay between an IPv6 host and a Teredo client with its server, both
// made of plain sockets:
//
//	host 2001:db8:1::2 -- 2001:db8:1::1 relay 192.0.2.3 -- 192.0.2.7 client
//	                                                       192.0.2.1 its server
type span struct {
	relay          *testutil.Netns
	host           *net.UDPConn
	client, server *net.UDPConn
}

var (
	spanRelay  = netip.MustParseAddrPort("192.0.2.3:3545")
	spanServer = netip.MustParseAddrPort("192.0.2.1:3544")
	spanClient = netip.MustParseAddrPort("192.0.2.7:40000")
	spanTeredo = teredo.Addr{Prefix: teredo.Prefix, Server: spanServer.Addr(), Mapped: spanClient}.IP()
)

func newSpan(t *testing.T) *span {
	t.Helper()
	s := &span{relay: testutil.NewNetns(t)}
	client, host := testutil.NewNetns(t), testutil.NewNetns(t)
	teredotest.Link(t, s.relay, client, "v4", []string{"192.0.2.3/24"}, "192.0.2.7/24")
	client.Do(t, func() error { return teredotest.SetUp("v4", "192.0.2.1/24") })
	teredotest.Link(t, s.relay, host, "v6", []string{"2001:db8:1::1/64"}, "2001:db8:1::2/64")
	s.relay.Do(t, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	})
	host.Do(t, func() error {
		return errors.Join(teredotest.FinishChecksums("v6"), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:1::1")}))
	})
	listen := func(ns *testutil.Netns, network string, at netip.AddrPort) (conn *net.UDPConn) {
		ns.Do(t, func() (err error) {
			conn, err = net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
			return err
		})
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	s.client, s.server = listen(client, "udp4", spanClient), listen(client, "udp4", spanServer)
	s.host = listen(host, "udp6", netip.MustParseAddrPort("[2001:db8:1::2]:7000"))
	return s
}

// establish makes the client a trusted peer of the relay.
func (s *span) establish(t *testing.T, p *program.Process) {
	t.Helper()
	s.send(t, 0)
	got := receive(t, s.server, p)
	parsed, err := teredo.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	answer := teredo.AppendBubble(nil, spanTeredo, parsed.IPv6.Src())
	if _, err := s.client.WriteToUDPAddrPort(answer, spanRelay); err != nil {
		t.Fatal(err)
	}
	receive(t, s.client, p)
}

func receive(t *testing.T, conn *net.UDPConn, p *program.Process) []byte {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Log())
	}
	return buf[:n]
}

func (s *span) send(t *testing.T, n uint32) {
	to := netip.AddrPortFrom(spanTeredo, 9000)
	if _, err := s.host.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, n), to); err != nil {
		t.Error(err)
	}
}

// flow sends numbered packets to the client until it is told to end and there were so
// many, and returns how many there were, and which did not arrive.
func (s *span) flow(t *testing.T, least int) (end func() (sent int, lost []int)) {
	t.Helper()
	roomy(t, s.client)
	var stop atomic.Bool
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; !stop.Load() || n < least; time.Sleep(500 * time.Microsecond) {
			n++
			s.send(t, uint32(n))
		}
		sent <- n
	}()
	arrived := make(chan uint32, 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(arrived)
		buf := make([]byte, 2048)
		for ctx.Err() == nil {
			n, err := s.client.Read(buf)
			if err == nil && n == packet.IPv6HeaderLen+packet.UDPHeaderLen+4 {
				arrived <- binary.BigEndian.Uint32(buf[n-4:])
			}
		}
	}()
	if err := s.client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return func() (int, []int) {
		stop.Store(true)
		n := <-sent
		received := make(map[uint32]bool)
		for late := time.After(testutil.Patience); len(received) < n; {
			select {
			case i := <-arrived:
				received[i] = true
				continue
			case <-late:
			}
			break
		}
		cancel()
		_ = s.client.SetReadDeadline(time.Unix(1, 0))
		var lost []int
		for i := range n {
			if !received[uint32(i+1)] {
				lost = append(lost, i+1)
			}
		}
		return n, lost
	}
}

// roomy gives a socket room for all that comes while its reader gets no time.
func roomy(t *testing.T, conn *net.UDPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
}

// leastFast is how many packets the programs are to carry at least in TestSurvival, which
// sends twice as many.
const leastFast = 500

// TestSurvival restarts the program by every signal that leaves the fast path in
// place, under traffic.
func TestSurvival(t *testing.T) {
	s := newSpan(t)
	socket := filepath.Join(t.TempDir(), "control.sock")
	path := program.File(t, fmt.Sprintf("[[teredo_relay]]\nname = \"north.1\"\nfast_path = \"tc\"\n[control]\nsocket = %q\n", socket))
	service, notify := program.NewManager(t)
	p := program.Start(t, s.relay, notify, "run", "-c", path)
	service.Expect(t, "READY=1", p)
	s.establish(t, p)
	end := s.flow(t, 2*leastFast)
	for _, how := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGKILL, syscall.SIGUSR2} {
		time.Sleep(100 * time.Millisecond)
		p.Signal(t, how)
		if how == syscall.SIGUSR2 {
			service.Expect(t, "STOPPING=1", p)
		}
		if err := <-p.Done; err != nil && how == syscall.SIGUSR2 {
			t.Errorf("after %v: %v\n%s", how, err, p.Log())
		}
		time.Sleep(100 * time.Millisecond) // no one is there
		p = program.Start(t, s.relay, notify, "run", "-c", path)
		service.Expect(t, "READY=1", p)
		p.AwaitLog(t, "taken over")
	}
	time.Sleep(100 * time.Millisecond)
	if sent, lost := end(); len(lost) > 0 {
		t.Errorf("of %d packets %d are lost, the first of them %v\n%s", sent, len(lost), lost[:min(len(lost), 5)], p.Log())
	}
	s.checkStatus(t, socket)

	s.relay.Do(t, func() error {
		code, out := program.Call(t, "clean")
		if code != 0 || !strings.HasPrefix(out, "in use: fast path of north+1 in ") {
			t.Errorf("isthmus clean beside a living one: %d\n%s", code, out)
		}
		return nil
	})
	p.Signal(t, syscall.SIGKILL)
	<-p.Done
	s.relay.Do(t, func() error {
		code, out := program.Call(t, "clean")
		if code != 0 || strings.Count(out, "removed: ") != 2 || !strings.Contains(out, "teredo-relay") {
			t.Errorf("isthmus clean: %d\n%s", code, out)
		}
		if code, out := program.Call(t, "clean", "--json"); code != 0 || !strings.Contains(out, `"removed": []`) {
			t.Errorf("isthmus clean once more: %d\n%s", code, out)
		}
		return nil
	})
}

// TestKilledWithoutFastPath kills a relay that has no fast path: the next one hears a client
// that speaks first, and its file is found by a cleaning.
func TestKilledWithoutFastPath(t *testing.T) {
	s := newSpan(t)
	state := filepath.Join(t.TempDir(), "peers")
	path := program.File(t, fmt.Sprintf("[[teredo_relay]]\nname = \"killed\"\nfast_path = \"off\"\nstate_file = %q\n[control]\nsocket = %q\n",
		state, filepath.Join(t.TempDir(), "control.sock")))
	service, notify := program.NewManager(t)
	p := program.Start(t, s.relay, notify, "run", "-c", path)
	service.Expect(t, "READY=1", p)
	s.establish(t, p)
	kill := func() {
		p.Signal(t, syscall.SIGKILL)
		<-p.Done
	}
	kill()
	p = program.Start(t, s.relay, notify, "run", "-c", path)
	service.Expect(t, "READY=1", p)
	p.AwaitLog(t, "taken over")
	if _, err := s.client.WriteToUDPAddrPort(fromClient("called"), spanRelay); err != nil {
		t.Fatal(err)
	}
	if got := string(receive(t, s.host, p)); got != "called" {
		t.Errorf("the host got %q", got)
	}
	s.send(t, 1)
	if got := receive(t, s.client, p); len(got) != packet.IPv6HeaderLen+packet.UDPHeaderLen+4 {
		t.Errorf("the client got %x", got)
	}
	clean := func(want string) {
		s.relay.Do(t, func() error {
			if code, out := program.Call(t, "clean", "-c", path); code != 0 || !strings.Contains(out, want) {
				t.Errorf("isthmus clean says nothing of %q: %d\n%s", want, code, out)
			}
			return nil
		})
	}
	clean("in use: peers in " + state)
	kill()
	clean("removed: peers in " + state)
}

// fromClient is a packet of the client to port 7000 of the host.
func fromClient(text string) []byte {
	n := packet.UDPHeaderLen + len(text)
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, n, spanTeredo, netip.MustParseAddr("2001:db8:1::2"))
	b = binary.BigEndian.AppendUint64(b, 9000<<48|7000<<32|uint64(n)<<16)
	b = append(b, text...)
	p := packet.IPv6(b)
	binary.BigEndian.PutUint16(p.Payload()[6:], packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload()))
	return b
}

// checkStatus looks at what people and programs are shown of the fast path.
func (s *span) checkStatus(t *testing.T, socket string) {
	t.Helper()
	code, out := program.Call(t, "status", "--socket", socket)
	for _, want := range []string{"tc by v4, v6", "survives a restart", "peers taken over"} {
		if !strings.Contains(out, want) {
			t.Errorf("isthmus status says nothing of %q: %d\n%s", want, code, out)
		}
	}
	code, out = program.Call(t, "status", "--socket", socket, "--json")
	var status struct {
		Instances []struct {
			State struct {
				FastPath struct {
					Path    string
					Packets map[string]map[string]uint64
				} `json:"fast_path"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil || len(status.Instances) != 1 {
		t.Fatalf("isthmus status --json: %d, %v\n%s", code, err, out)
	}
	if f := status.Instances[0].State.FastPath; f.Path != "tc" || f.Packets["forward"]["encap_forwarded"] < leastFast {
		t.Errorf("fast path: %+v", f)
	}
}
