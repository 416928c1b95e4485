// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// home is a namespace of a peer, on a link of its own with the server's:
//
//	server 2001:db8:N::5 -- home 2001:db8:N::1
func (w *world) home(n int) (ns *testutil.Netns, server, terminal netip.Addr) {
	w.t.Helper()
	ns = testutil.NewNetns(w.t)
	server, terminal = netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::5", n)), netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", n))
	link := fmt.Sprintf("home%d", n)
	w.ns.Do(w.t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.Handle())}
		return errors.Join(netlink.LinkAdd(veth), join(link, server), forward())
	})
	ns.Do(w.t, func() error {
		return errors.Join(join("eth0", terminal), netlink.RouteAdd(&netlink.Route{Gw: server.AsSlice()}))
	})
	w.ns.AwaitLinks(w.t, link)
	ns.AwaitLinks(w.t, "eth0")
	return ns, server, terminal
}

// forward has the server's host be the router of homes, whose media goes from one to the other.
func forward() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0) }

func join(name string, a netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	one, err := netlink.ParseAddr(a.String() + "/64")
	if err != nil {
		return err
	}
	one.Flags = unix.IFA_F_NODAD
	return errors.Join(netlink.AddrAdd(link, one), netlink.LinkSetUp(link))
}

// said is what a program has printed so far; it takes orders.
type said struct {
	in   io.Writer
	mu   sync.Mutex
	text strings.Builder
}

// order gives the program a line.
func (s *said) order(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start starts a peer in a namespace.
func start(t *testing.T, ns *testutil.Netns, c *peers.Command, err error) (*exec.Cmd, *said) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := exec.Command(c.Path, c.Args...), new(said)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), c.Env...)
	if out.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	ns.Do(t, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, out
}

// TestBaresip has two of Debian's telephones register, by UDP and by TCP, and call each other; the
// caller hangs up.
func TestBaresip(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	homes := [2]*testutil.Netns{}
	var server, terminal [2]netip.Addr
	for n := range homes {
		homes[n], server[n], terminal[n] = w.home(n + 1)
	}
	s := w.serve(fmt.Sprintf("listen = [%q, %q]\nlisten_tls = []\nalgorithms = [\"MD5\"]", server[0], server[1]))
	phone := func(n int, user, transport string, change func(*peers.Baresip)) (*exec.Cmd, *said) {
		c := peers.Baresip{
			Name: user, Device: "eth0", Listen: netip.AddrPortFrom(terminal[n], 5070), User: user, Domain: domain, Password: user,
			Proxy: fmt.Sprintf("sip:[%s]:5060;transport=%s", server[n], transport),
		}
		change(&c)
		command, err := all.Baresip(w.dir, c)
		return start(t, homes[n], command, err)
	}
	_, bob := phone(1, "bob", "tcp", func(c *peers.Baresip) { c.Answer = true })
	registered := func(user string, out *said) {
		t.Helper()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: %s", user, out)
			}
		})
		eventually(t, user+" has registered", func() bool { return len(s.has(t, user+"@"+domain)) == 1 })
	}
	registered("bob", bob)
	alice, out := phone(0, "alice", "udp", func(c *peers.Baresip) { c.Dial = "sip:bob@" + domain })
	registered("alice", out)
	for name, one := range map[string]*said{"alice": out, "bob": bob} {
		eventually(t, name+" hears the other", func() bool { return strings.Contains(one.String(), "incoming rtp for 'audio' established") })
	}
	eventually(t, "the call is established", func() bool { return strings.Contains(out.String(), "Call established") })
	if err := alice.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "bob hears that alice has hung up", func() bool { return strings.Contains(bob.String(), "audio: destroyed") })
}

// TestLinphone has Debian's linphone and its baresip register and call each other; each ends the call
// of the other.
func TestLinphone(t *testing.T) {
	w := newWorld(t)
	all := peerstest.Find(t)
	alices, atAlice, _ := w.home(1)
	bobs, atBob, bobsAddress := w.home(2)
	s := w.serve(fmt.Sprintf("listen = [%q, %q]\nlisten_tls = []\nalgorithms = [\"MD5\"]", atAlice, atBob))
	c := peers.Linphone{Name: "alice", Port: 5060, User: "alice", Domain: domain, Password: "alice", Server: atAlice}
	command, err := all.Linphone(w.dir, c)
	_, alice := start(t, alices, command, err)
	command, err = all.Baresip(w.dir, peers.Baresip{
		Name: "bob", Device: "eth0", Listen: netip.AddrPortFrom(bobsAddress, 5070), User: "bob", Domain: domain, Password: "bob",
		Proxy: fmt.Sprintf("sip:[%s]:5060;transport=udp", atBob), Answer: true,
	})
	_, bob := start(t, bobs, command, err)
	for name, one := range map[string]*said{"alice": alice, "bob": bob} {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s: %s", name, one)
			}
		})
		eventually(t, name+" has registered", func() bool { return len(s.has(t, name+"@"+domain)) == 1 })
	}
	times := func(one *said, text string, n int) func() bool {
		return func() bool { return strings.Count(one.String(), text) >= n }
	}
	for _, line := range c.Orders(w.dir) {
		alice.order(t, line)
	}
	alice.order(t, "call sip:bob@"+domain)
	eventually(t, "alice hears bob", times(alice, "Media streams established", 1))
	eventually(t, "bob hears alice", times(bob, "incoming rtp for 'audio' established", 1))
	bob.order(t, "/hangup")
	eventually(t, "alice hears that bob has hung up", times(alice, "ended (No error)", 1))

	bob.order(t, "/dial sip:alice@"+domain)
	eventually(t, "alice is called", times(alice, "Receiving new incoming call from", 1))
	alice.order(t, "answer")
	eventually(t, "alice hears bob again", times(alice, "Media streams established", 2))
	eventually(t, "bob hears alice again", times(bob, "incoming rtp for 'audio' established", 2))
	alice.order(t, "terminate")
	eventually(t, "bob hears that alice has hung up", times(bob, "audio: destroyed", 2))
}
