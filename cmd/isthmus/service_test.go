// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// dist is where what is installed beside the program lies.
const dist = "../../dist"

// serviceRig is what a process of the packaged service needs around it: a machine of its
// own, on which it runs with the rights of dist/systemd/isthmus.service and no more.
type serviceRig struct {
	manager manager
	machine *service.Machine
	socket  string
	ns      *testutil.Netns
}

// unitFile is the unit as it is installed.
var unitFile = filepath.Join(dist, "systemd/isthmus.service")

// newServiceRig has a machine with a configuration, in a network namespace.
func newServiceRig(t *testing.T, ns *testutil.Netns, text string) *serviceRig {
	t.Helper()
	return newServiceRigOf(t, unitFile, ns, text)
}

// newServiceRigOf is newServiceRig with another unit.
func newServiceRigOf(t *testing.T, unit string, ns *testutil.Netns, text string) *serviceRig {
	t.Helper()
	testutil.NeedRoot(t)
	m := service.NewMachine(t, unit, filepath.Join(dist, "tmpfiles.d/isthmus.conf"))
	m.Write(t, "isthmus.toml", text)
	r := &serviceRig{machine: m, ns: ns, socket: filepath.Join(m.Run(), "control.sock")}
	r.manager = listenManager(t, m.NotifySocket())
	if err := os.Chmod(m.NotifySocket(), 0o777); err != nil {
		t.Fatal(err)
	}
	return r
}

// start starts the service, and returns when it serves.
func (r *serviceRig) start(t *testing.T) *process {
	t.Helper()
	p := startProcessAs(t, r.ns, "", func(cmd *exec.Cmd) { r.machine.Start(cmd, asProgram+"=1") })
	r.manager.expect(t, "READY=1", p)
	return p
}

// stop ends the service by a signal.
func (r *serviceRig) stop(t *testing.T, p *process, how syscall.Signal) {
	t.Helper()
	p.signal(t, how)
	r.manager.expect(t, "STOPPING=1", p)
	if err := <-p.done; err != nil {
		t.Errorf("after %v: %v\n%s", how, err, p.log())
	}
}

// end stops the service for good: it has had nothing to complain of, and leaves nothing.
func (r *serviceRig) end(t *testing.T, p *process) {
	t.Helper()
	r.stop(t, p, syscall.SIGTERM)
	if strings.Contains(p.log(), "level=WARN") || strings.Contains(p.log(), "level=ERROR") {
		t.Errorf("warnings:\n%s", p.log())
	}
	left, err := os.ReadDir(filepath.Join(r.machine.Dir, "bpf/isthmus-service"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestServiceRelay has a relay with a fast path that survives: it looks for what it would
// skip, attaches, and takes over what a process before has left.
func TestServiceRelay(t *testing.T) {
	s := newSpan(t)
	r := newServiceRig(t, s.relay, "[[teredo_relay]]\nfast_path_devices = [\"v4\", \"v6\"]\n")
	p := r.start(t)
	s.establish(t, p)
	end := s.flow(t, 1)
	r.stop(t, p, syscall.SIGUSR2)
	p = r.start(t)
	if sent, lost := end(); len(lost) > 0 {
		t.Errorf("of %d packets %d are lost, the first of them %v\n%s", sent, len(lost), lost[:min(len(lost), 5)], p.log())
	}
	code, out, errs := call("status", "--socket", r.socket)
	for _, want := range []string{"tc by v4, v6", "survives a restart", "peers taken over"} {
		if !strings.Contains(out, want) {
			t.Errorf("isthmus status says nothing of %q: %d\n%s%s\n%s", want, code, out, errs, p.log())
		}
	}
	r.end(t, p)
}

// TestServiceNAT64 has a NAT64 on the host's own address, with its fast path, the
// announcement of its prefix, and the FTP gateway.
func TestServiceNAT64(t *testing.T) {
	g := newGate(t)
	r := newServiceRig(t, g.gateway, `
[[nat64]]
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.3 20000-29999", "192.0.2.64"]
fast_path = "tc"
ftp = true
announce_pref64 = ["v6"]
state_file = "/var/lib/isthmus/state"
`)
	p := r.start(t)
	seen := g.passes(t, p)
	for _, how := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM} {
		r.stop(t, p, how)
		p = r.start(t)
		if again := g.passes(t, p); again != seen {
			t.Errorf("after %v four saw %s, before %s\n%s", how, again, seen, p.log())
		}
	}
	g.greets(t, p)
	r.end(t, p)
}

// greets has an FTP server greet a client, which takes the FTP gateway.
func (g *gate) greets(t *testing.T, p *process) {
	t.Helper()
	var listener net.Listener
	g.fourNS.Do(t, func() (err error) {
		listener, err = net.Listen("tcp4", "192.0.2.7:21")
		return err
	})
	defer listener.Close()
	const greeting = "220 welcome\r\n"
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte(greeting))
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}
	}()
	var conn net.Conn
	g.sixNS.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp6", "[2001:db8:64::c000:207]:21", testutil.Patience)
		return err
	})
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != greeting {
		t.Errorf("the client was greeted with %q, %v\n%s", line, err, p.log())
	}
}

// TestServiceSIIT has a stateless translator with its fast path.
func TestServiceSIIT(t *testing.T) {
	g := newGate(t)
	r := newServiceRig(t, g.gateway, `
[[siit]]
pool6 = ["2001:db8:64::/96"]
eam = ["192.0.2.66 2001:db8:1::2"]
fast_path = "tc"
`)
	p := r.start(t)
	for range 3 {
		if seen := g.passes(t, p); seen != netip.MustParseAddrPort("192.0.2.66:7000") {
			t.Errorf("four saw %s", seen)
		}
	}
	r.end(t, p)
}

// TestServiceTeredo has a server, a client of it that asks the router for a port, and a
// relay of the host.
func TestServiceTeredo(t *testing.T) {
	ns := testutil.NewNetns(t)
	addresses(t, ns, "lo", "192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.9/32")
	r := newServiceRig(t, ns, `
[[teredo_server]]
address = "192.0.2.1"
secondary = "192.0.2.2"

[[teredo_relay]]
mode = "host"
bind = "192.0.2.3:3545"

[[teredo_client]]
server = "192.0.2.1"
bind = "192.0.2.9"
port_mapping = "auto"
# The client may ask before the server listens.
qualification_timeout = "100ms"
`)
	p := r.start(t)
	qualified(t, control.NewClient(r.socket), p)
	p.signal(t, syscall.SIGHUP)
	r.manager.expect(t, "RELOADING=1", p)
	r.manager.expect(t, "READY=1", p)
	r.stop(t, p, syscall.SIGTERM)
}

// announcing is a NAT64 that tells hosts of its prefix.
const announcing = `
[[nat64]]
clients = ["2001:db8:1::/48"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.64"]
announce_pref64 = ["v6"]
`

// TestServiceCLAT has a host with IPv6 alone reach IPv4 by a CLAT, through a gateway with
// NAT64 and DNS64, of which it hears from router advertisements. Host and gateway are
// services both.
//
//	host, CLAT -- v6 -- gateway, NAT64, DNS64 -- v4 -- 192.0.2.7
func TestServiceCLAT(t *testing.T) {
	g := newGate(t)
	nameServer(t, g.fourNS, "192.0.2.7:53")
	gateway := newServiceRig(t, g.gateway, announcing+`[[dns64]]
listen = ["2001:db8:1::1"]
clients = ["2001:db8:1::/48"]
prefixes = ["2001:db8:64::/96"]
upstreams = ["192.0.2.7:53"]
`)
	at := gateway.start(t)
	host := newServiceRig(t, g.sixNS, "[[clat]]\n")
	p := host.start(t)
	p.awaitLog(t, "msg=serving")

	var conn *net.UDPConn
	g.sixNS.Do(t, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(gateFour))
		return err
	})
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := g.four.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	_, seen, err := g.four.ReadFromUDPAddrPort(buf)
	if err != nil || seen.Addr().Unmap() != netip.MustParseAddr("192.0.2.64") {
		t.Fatalf("four saw %s, %v\n%s\n%s", seen, err, p.log(), at.log())
	}
	if _, err := g.four.WriteToUDPAddrPort([]byte("hello too"), seen); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, conn, p); string(got) != "hello too" {
		t.Errorf("the host heard %q", got)
	}
	g.sixNS.Do(t, func() error {
		question := new(dns.Msg).SetQuestion("four.example.", dns.TypeAAAA)
		answer, _, err := (&dns.Client{Timeout: testutil.Patience}).Exchange(question, "[2001:db8:1::1]:53")
		if err != nil || len(answer.Answer) != 1 || !strings.HasSuffix(answer.Answer[0].String(), "2001:db8:64::c000:207") {
			t.Errorf("the DNS64 answers %v, %v\n%s", answer, err, at.log())
		}
		return nil
	})
	host.end(t, p)
	gateway.end(t, at)
}

// TestServiceRefused has a CLAT on which something is forbidden that it needs. What it
// does in vain changes the host's network, which does not have it try again at once, and
// it tells of it once.
func TestServiceRefused(t *testing.T) {
	g := newGate(t)
	gateway := newServiceRig(t, g.gateway, announcing)
	gateway.start(t)
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	unit := writeFile(t, strings.ReplaceAll(string(text), " AF_PACKET", ""))
	made := make(chan netlink.LinkUpdate, 1000)
	done := make(chan struct{})
	defer close(done)
	g.sixNS.Do(t, func() error { return netlink.LinkSubscribe(made, done) })
	host := newServiceRigOf(t, unit, g.sixNS, "[[clat]]\n")
	p := host.start(t)
	seen := map[int32]bool{}
	for end := time.After(testutil.Patience); len(seen) < 3; {
		select {
		case link := <-made:
			if link.Attrs().Name == "clat" {
				seen[link.Index] = true
			}
		case <-end:
			t.Fatalf("%d tries\n%s", len(seen), p.log())
		}
	}
	host.stop(t, p, syscall.SIGTERM)
	if told := strings.Count(p.log(), "level=WARN"); told != 1 {
		t.Errorf("told %d times\n%s", told, p.log())
	}
}

// nameServer knows the IPv4 address of every name.
func nameServer(t *testing.T, ns *testutil.Netns, at string) {
	t.Helper()
	var conn net.PacketConn
	ns.Do(t, func() (err error) {
		conn, err = net.ListenPacket("udp4", at)
		return err
	})
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 7),
			}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = conn.Close() })
}

// TestServiceAnnounce has two speakers of BGP, one of which calls the other with a
// password, and one that sets routes for a routing daemon.
func TestServiceAnnounce(t *testing.T) {
	configtest.InEffect(t, "announce", "listen")
	a, b := testutil.NewNetns(t), testutil.NewNetns(t)
	joined(t, a, b, "bgp", "2001:db8::1/64", "2001:db8::2/64")
	var rigs []*serviceRig
	var running []*process
	for _, speaker := range []struct {
		ns            *testutil.Netns
		own, neighbor string
		as            int
		passive       bool
	}{{a, "2001:db8::1", "2001:db8::2", 64512, true}, {b, "2001:db8::2", "2001:db8::1", 64513, false}} {
		addresses(t, speaker.ns, "lo", "192.0.2.1/32")
		r := newServiceRig(t, speaker.ns, fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
announce = true
[announce]
method = "bgp"
local_as = %d
router_id = "192.0.2.%d"
next_hop4 = "192.0.2.1"
listen = [%q]
check_interval = "100ms"
check_timeout = "10s"
drain_time = "0s"
[[announce.neighbor]]
address = %q
as = %d
passive = %t
password_file = "/etc/isthmus/password"
`, speaker.as, speaker.as-64511, speaker.own, speaker.neighbor, 64512+64513-speaker.as, speaker.passive))
		r.machine.Write(t, "password", "secret\n")
		rigs, running = append(rigs, r), append(running, r.start(t))
	}
	for i, p := range running {
		p.awaitLog(t, "the BGP session is up")
		p.awaitLog(t, "msg=announcing")
		rigs[i].stop(t, p, syscall.SIGTERM)
	}

	r := newServiceRig(t, a, `
[[teredo_server]]
address = "192.0.2.1"
announce = true
[announce]
method = "route"
check_interval = "100ms"
check_timeout = "10s"
drain_time = "0s"
`)
	p := r.start(t)
	p.awaitLog(t, "msg=announcing")
	r.stop(t, p, syscall.SIGTERM)
}
