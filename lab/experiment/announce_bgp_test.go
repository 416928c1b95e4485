// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// speakerNet is a router with BIRD, and a host with a relay and a server that
// announce:
//
//	router 192.0.2.1, 2001:db8::1 ---- 192.0.2.2, 2001:db8::2 speaker, 203.0.113.1
type speakerNet struct {
	t               *testing.T
	ctx             context.Context
	daemons         *daemons
	router, speaker *lab.Node
	bird            peers.Bird
	process         *lab.Proc
	instances       string // what the speaker runs
}

var (
	anycast   = netip.MustParsePrefix("203.0.113.1/32")
	router4   = netip.MustParseAddr("192.0.2.1")
	router6   = netip.MustParseAddr("2001:db8::1")
	speaker4  = netip.MustParseAddr("192.0.2.2")
	speaker6  = netip.MustParseAddr("2001:db8::2")
	noNextHop netip.Addr
)

// announcedTeredo is what the speaker runs unless a test has it run something else.
const announcedTeredo = `
[[teredo_relay]]
bind = "192.0.2.2:3545"
announce = true
fast_path = "off"
[[teredo_server]]
address = "203.0.113.1"
announce = true
`

// quietChecks do not make a test wait, and do not fail because a busy machine has no
// processor for them. Who stops serves on until the test has seen what comes before.
const quietChecks = `
[announce]
check_interval = "100ms"
check_timeout = "3s"
fall = 2
rise = 2
hold_down = "0s"
drain_time = "60s"
`

// newSpeakerNet draws the topology and starts BIRD on the router.
func newSpeakerNet(t *testing.T, session peers.BirdSession) *speakerNet {
	t.Helper()
	n := drawSpeakerNet(t, session)
	n.startBird(n.router, n.bird)
	return n
}

// emptySpeakerNet has no nodes yet.
func emptySpeakerNet(t *testing.T, name string) (*speakerNet, *lab.Lab) {
	t.Helper()
	ctx, e := testEnv(t)
	l, err := e.New(ctx, fmt.Sprintf("%s-%d", name, time.Now().UnixNano()%1e9))
	if err != nil {
		t.Fatal(err)
	}
	n := &speakerNet{t: t, ctx: ctx, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}
	t.Cleanup(func() {
		if err := errors.Join(n.daemons.healthy(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return n, l
}

// drawSpeakerNet draws the topology.
func drawSpeakerNet(t *testing.T, session peers.BirdSession) *speakerNet {
	t.Helper()
	n, l := emptySpeakerNet(t, "speaker")
	n.instances = announcedTeredo
	n.router, n.speaker = l.Node("router"), l.Node("speaker")
	l.Link(n.router, "eth0", n.speaker, "eth0")
	n.router.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64").Forward(true, true)
	n.speaker.Addr("eth0", "192.0.2.2/24", "2001:db8::2/64").Addr("lo", anycast.String()).Forward(false, true)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	session.Name, session.AS = "isthmus", announceAS
	n.bird = peers.Bird{Name: "router", RouterID: router4, AS: routerAS, Sessions: []peers.BirdSession{session}}
	return n
}

func (n *speakerNet) startBird(node *lab.Node, c peers.Bird) {
	n.t.Helper()
	command, err := peersOf(n.daemons.env).Bird(n.daemons.dir, c)
	if _, err := n.daemons.startPeer(n.ctx, node, "bird-"+c.Name, command, err); err != nil {
		n.t.Fatal(err)
	}
}

func (n *speakerNet) socket() string { return filepath.Join(n.daemons.dir, "speaker.sock") }

// start starts the speaker with more lines of [announce].
func (n *speakerNet) start(announce string) {
	n.t.Helper()
	file := filepath.Join(n.daemons.dir, "speaker.toml")
	text := fmt.Sprintf("[control]\nsocket = %q\n", n.socket()) + n.instances + quietChecks + announce
	err := os.WriteFile(file, []byte(text), 0o600)
	if err == nil {
		n.process, err = n.daemons.start(n.ctx, n.speaker, lab.Process{Name: "isthmus", Path: n.daemons.env.Binary, Args: []string{"run", "-c", file}})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// bgp are the lines for the router as the neighbor.
func bgpLines(address netip.Addr, more, neighbor string) string {
	return fmt.Sprintf("method = \"bgp\"\nlocal_as = %d\nrouter_id = %q\n%s\n[[announce.neighbor]]\naddress = %q\nas = %d\n%s\n",
		announceAS, speaker4, more, address, routerAS, neighbor)
}

// hop is the next hop of the router to a prefix.
func (n *speakerNet) hop(p netip.Prefix) netip.Addr {
	n.t.Helper()
	for {
		routes, err := n.router.Kernel().RouteList(nil, netlink.FAMILY_ALL)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			n.t.Fatal(err)
		}
		for _, r := range routes {
			if r.Dst != nil && r.Dst.String() == p.String() {
				hop, _ := netip.AddrFromSlice(r.Gw)
				if r.Via != nil {
					hop = netip.MustParseAddr(r.Via.(*netlink.Via).Addr.String())
				}
				return hop
			}
		}
		return noNextHop
	}
}

// await waits until the router's next hop to a prefix is that.
func (n *speakerNet) await(p netip.Prefix, hop netip.Addr) {
	n.t.Helper()
	for deadline := time.Now().Add(announceWait); n.hop(p) != hop; time.Sleep(5 * time.Millisecond) {
		select {
		case <-n.process.Done():
			n.t.Fatalf("isthmus ended: %v", n.process.Wait())
		default:
		}
		if time.Now().After(deadline) {
			seen, err := peers.AskBird(n.bird.Socket(n.daemons.dir), "show route all")
			sessions, _ := peers.AskBird(n.bird.Socket(n.daemons.dir), "show protocols all")
			n.t.Fatalf("the next hop to %s is %v, want %v; BIRD: %s %v\n%s\n%s", p, n.hop(p), hop, seen, err, sessions, n.process.Log())
		}
	}
}

// TestAnnounceSessions announces the prefixes of both families over sessions of
// all kinds, and stops: both are withdrawn.
func TestAnnounceSessions(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("in the clear\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name           string
		session        peers.BirdSession
		lines          string
		attributes     []string
		needsSignature bool
	}{
		{"IPv6, we call", peers.BirdSession{Local: router6, Neighbor: speaker6, Passive: true},
			bgpLines(router6, "next_hop4 = \"192.0.2.2\"\nmed = 7\ncommunities = [\"64512:100\"]", ""),
			[]string{"BGP.med: 7", "BGP.community: (64512,100)", "BGP.as_path: 64512", "BGP.origin: IGP"}, false},
		{"IPv4, signed", peers.BirdSession{Local: router4, Neighbor: speaker4, Passive: true, Password: "in the clear"},
			bgpLines(router4, "next_hop6 = \"2001:db8::2\"", fmt.Sprintf("password_file = %q", secret)), nil, true},
		{"IPv6, it calls, from one hop only", peers.BirdSession{Local: router6, Neighbor: speaker6, TTLSecurity: true},
			bgpLines(router6, "next_hop4 = \"192.0.2.2\"\nlisten = [\"2001:db8::2\"]", "passive = true\nttl_security = true"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.needsSignature && !kernelSigns() {
				t.Skip("this kernel has no TCP MD5 signatures")
			}
			n := drawSpeakerNet(t, tt.session)
			if tt.session.Passive {
				n.startBird(n.router, n.bird)
			}
			n.start(tt.lines)
			if !tt.session.Passive {
				// Who counts hops does not hear a refusal, which is sent as if from afar.
				n.awaitSession("active")
				n.startBird(n.router, n.bird)
			}
			n.await(teredo.Prefix, speaker6)
			n.await(anycast, speaker4)
			if shown, err := peers.AskBird(n.bird.Socket(n.daemons.dir), "show route all"); err != nil || !containsAll(shown, tt.attributes) {
				t.Errorf("attributes %v, error %v; want %v", shown, err, tt.attributes)
			}
			n.wantStatus("announced", "established")
			if err := n.process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			n.await(teredo.Prefix, noNextHop) // fails if the process ends first
			n.await(anycast, noNextHop)
			if err := n.daemons.stop(n.process); err != nil { // a second signal
				t.Error(err)
			}
		})
	}
}

// TestWrongPassword finds no session, and says so in status.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	if !kernelSigns() {
		t.Skip("this kernel has no TCP MD5 signatures")
	}
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Password: "right"})
	n.start(bgpLines(router6, "next_hop4 = \"192.0.2.2\"", fmt.Sprintf("password_file = %q", secret)))
	time.Sleep(4 * time.Second) // more than both ends wait before they call
	if hop := n.hop(teredo.Prefix); hop != noNextHop {
		t.Errorf("the router has heard of the prefix, by %v", hop)
	}
	if got := n.status().Neighbors[0].State; got == "established" {
		t.Errorf("session %s", got)
	}
	n.kill() // stopping would take the time to drain
	_ = n.daemons.stop(n.process)
}

// kernelSigns reports whether the kernel has TCP MD5 signatures (RFC 2385).
func kernelSigns() bool {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(s)
	sig := &unix.TCPMD5Sig{Keylen: 1}
	sig.Addr.Family = unix.AF_INET
	copy(sig.Addr.Data[2:], router4.AsSlice())
	return unix.SetsockoptTCPMD5Sig(s, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig) == nil
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func (n *speakerNet) status() control.Status {
	n.t.Helper()
	status, err := control.NewClient(n.socket()).Status(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return status
}

// wantStatus checks the state of each announcement and of the session.
func (n *speakerNet) wantStatus(state, session string) {
	n.t.Helper()
	status := n.status()
	for _, i := range status.Instances {
		if i.Announcement == nil || i.Announcement.State != state {
			n.t.Errorf("%s: %+v, want %s", i.Name, i.Announcement, state)
		}
	}
	if session != "" && (len(status.Neighbors) != 1 || status.Neighbors[0].State != session) {
		n.t.Errorf("neighbors %+v, want %s", status.Neighbors, session)
	}
}

// awaitSession waits until the session is in a state.
func (n *speakerNet) awaitSession(state string) {
	n.t.Helper()
	for deadline := time.Now().Add(announceWait); ; time.Sleep(10 * time.Millisecond) {
		status, err := control.NewClient(n.socket()).Status(n.ctx)
		if err == nil && len(status.Neighbors) == 1 && status.Neighbors[0].State == state {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the session is not %s: %+v, %v", state, status.Neighbors, err)
		}
	}
}

// TestAnnounceFollowsHealth drains one instance, and sets the device of the other
// down: its prefix alone is withdrawn, and comes back.
func TestAnnounceFollowsHealth(t *testing.T) {
	t.Parallel()
	n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Passive: true})
	n.start(bgpLines(router6, "next_hop4 = \"192.0.2.2\"", ""))
	n.await(teredo.Prefix, speaker6)
	n.await(anycast, speaker4)
	asked := control.NewClient(n.socket())
	if _, err := asked.Drain(n.ctx, "server", true); err != nil {
		t.Fatal(err)
	}
	n.await(anycast, noNextHop)
	if n.hop(teredo.Prefix) != speaker6 {
		t.Error("the relay's prefix went with the server's")
	}
	if _, err := asked.Drain(n.ctx, "server", false); err != nil {
		t.Fatal(err)
	}
	n.await(anycast, speaker4)
	n.speaker.Down("teredo-relay")
	n.await(teredo.Prefix, noNextHop)
	if got := n.status().Instances; n.hop(anycast) != speaker4 || !containsAll(fmt.Sprint(*got[0].Announcement, *got[1].Announcement), []string{"check_failed", "announced"}) {
		t.Errorf("%+v, %+v", got[0].Announcement, got[1].Announcement)
	}
	n.speaker.Up("teredo-relay")
	n.await(teredo.Prefix, speaker6)
	n.kill()
	n.dead()
}

func (n *speakerNet) kill() {
	n.t.Helper()
	if err := n.process.Signal(unix.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	<-n.process.Done()
}

// dead waits until the router has lost the routes to a speaker that has ended.
func (n *speakerNet) dead() {
	n.t.Helper()
	_ = n.daemons.stop(n.process)
	for deadline := time.Now().Add(announceWait); n.hop(teredo.Prefix) != noNextHop || n.hop(anycast) != noNextHop; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatal("the router keeps the routes of a dead speaker")
		}
	}
}
