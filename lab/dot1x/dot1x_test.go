// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dot1x

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// world is a terminal at an access router, which asks a RADIUS server by IPv6.
//
//	ue 2001:db8:1::a ---- wlan ---- 2001:db8:1::1 router 2001:db8:9:3::1 ---- core ---- 2001:db8:9:3::2 radius
type world struct {
	peers      *peers.Peers
	dir        string
	ue, router *lab.Node
	certs      *Certificates
	radius     *lab.Proc
	port       *Port
	mac        string // of the terminal
}

var (
	ueWLAN     = netip.MustParseAddr("2001:db8:1::a")
	routerWLAN = netip.MustParseAddr("2001:db8:1::1")
	routerCore = netip.MustParseAddr("2001:db8:9:3::1")
	server     = netip.MustParseAddrPort("[2001:db8:9:3::2]:1812")
)

// closedWait is how long packets are waited for that must not come.
const closedWait = 300 * time.Millisecond

func newWorld(t *testing.T) *world {
	testutil.NeedRoot(t)
	w := &world{peers: peerstest.Find(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	l, err := lab.New(ctx, lab.Options{Name: "dot1x", Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w.dir = l.Dir()
	w.ue, w.router = l.Node("ue"), l.Node("router")
	radius := l.Node("radius")
	l.Link(w.ue, "wlan", w.router, "wlan")
	l.Link(w.router, "core", radius, "core")
	w.ue.Addr("wlan", ueWLAN.String()+"/64")
	w.router.Addr("wlan", routerWLAN.String()+"/64").Addr("core", routerCore.String()+"/64")
	radius.Addr("core", server.Addr().String()+"/64")
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	// Who is a neighbour for good needs not be looked for again.
	for _, end := range []struct {
		at, of *lab.Node
		addr   netip.Addr
	}{{w.ue, w.router, routerWLAN}, {w.router, w.ue, ueWLAN}} {
		device, err := end.of.Kernel().LinkByName("wlan")
		if err != nil {
			t.Fatal(err)
		}
		if end.of == w.ue {
			w.mac = device.Attrs().HardwareAddr.String()
		}
		if err := end.at.Know("wlan", end.addr, device.Attrs().HardwareAddr); err != nil {
			t.Fatal(err)
		}
	}
	if w.certs, err = MakeCertificates(w.dir); err != nil {
		t.Fatal(err)
	}
	command, err := w.peers.FreeRADIUS(w.dir, peers.FreeRADIUS{
		Name: "radius", Listen: server, Client: routerCore, Secret: "xyzzy5461",
		TLS: &peers.RADIUSTLS{CA: w.certs.Trust, Certificate: w.certs.Server.Certificate, Key: w.certs.Server.Key},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.radius, err = radius.Start(ctx, lab.Process{Name: "freeradius", Path: command.Path, Args: command.Args})
	if err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, testutil.Patience)
	defer cancel()
	if _, err := w.radius.WaitFor(wait, "Ready to process requests"); err != nil {
		t.Fatal(err)
	}
	w.port, err = Guard(ctx, w.router, w.peers, w.dir, peers.Hostapd{Name: "router", Interface: "wlan", Server: server, Secret: "xyzzy5461"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// join has the terminal come with a certificate.
func (w *world) join(t *testing.T, kind Kind) *Supplicant {
	t.Helper()
	s, err := w.certs.Start(t.Context(), w.ue, w.peers, w.dir, "wlan", w.port, kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// passes reports how many of three echo requests each way are answered.
func (w *world) passes(t *testing.T) (n int) {
	t.Helper()
	wait := closedWait
	if w.port.State().Open {
		wait = testutil.Patience
	}
	for _, way := range []struct {
		from *lab.Node
		to   netip.Addr
	}{{w.ue, routerWLAN}, {w.router, ueWLAN}} {
		r, err := way.from.Ping(t.Context(), lab.Ping{To: way.to, Count: 3, Interval: 10 * time.Millisecond, Timeout: wait})
		if err != nil {
			t.Fatal(err)
		}
		n += r.Received()
	}
	return n
}

func (w *world) await(t *testing.T, wait func(context.Context) (State, error)) State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	s, err := wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// works reports whether the terminal's link works, for its programs.
func (w *world) works(t *testing.T) bool {
	t.Helper()
	link, err := w.ue.Kernel().LinkByName("wlan")
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().OperState == netlink.OperUp
}

// TestPort lets a terminal in that has a valid certificate, until it says that it goes, is lost, or fails to prove again
// who it is.
func TestPort(t *testing.T) {
	w := newWorld(t)
	if n := w.passes(t); n != 0 {
		t.Errorf("%d packets passed before anybody came", n)
	}
	s := w.join(t, Valid)
	if w.works(t) {
		t.Error("the terminal's link works before the terminal has proved who it is")
	}
	w.await(t, w.port.AwaitOpen)
	for s.Proved().IsZero() {
		time.Sleep(time.Millisecond)
	}
	if !w.works(t) {
		t.Error("the terminal's link does not work though it has proved who it is")
	}
	if n := w.passes(t); n != 6 {
		t.Errorf("of 6 packets of an authorised terminal %d passed", n)
	}
	if err := s.Logoff(); err != nil {
		t.Fatal(err)
	}
	w.await(t, w.port.AwaitClosed)
	if n := w.passes(t); n != 0 {
		t.Errorf("%d packets passed after the logoff", n)
	}
	if err := errors.Join(s.Logon(), w.port.Associate(w.mac)); err != nil {
		t.Fatal(err)
	}
	w.await(t, w.port.AwaitOpen)
	before := w.port.State().Proofs
	if err := w.port.Reauthenticate(); err != nil {
		t.Fatal(err)
	}
	w.await(t, func(ctx context.Context) (State, error) {
		return w.port.Await(ctx, "asked again", func(s State) bool { return s.Proofs > before })
	})
	if n := w.passes(t); n != 6 {
		t.Errorf("of 6 packets %d passed after the terminal had proved again who it is", n)
	}
	if err := w.port.Lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.passes(t); n != 0 {
		t.Errorf("%d packets passed after the terminal was lost", n)
	}
	if err := errors.Join(s.Reassociate(t.Context()), w.port.Associate(w.mac)); err != nil {
		t.Fatal(err)
	}
	w.await(t, w.port.AwaitOpen)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	w.join(t, Revoked)
	if err := w.port.Reauthenticate(); err != nil {
		t.Fatal(err)
	}
	w.await(t, w.port.AwaitClosed)
	if n := w.passes(t); n != 0 {
		t.Errorf("%d packets passed after the terminal had failed to prove again who it is", n)
	}
}

// TestRefused lets no one in whose certificate is revoked, has expired, or is of another authority.
func TestRefused(t *testing.T) {
	for kind, reason := range map[Kind]string{Revoked: "certificate revoked", Expired: "certificate has expired", Stranger: "unable to get local issuer certificate"} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			w.join(t, kind)
			w.await(t, func(ctx context.Context) (State, error) {
				return w.port.Await(ctx, "asked in vain", func(s State) bool { return s.Failures > 0 })
			})
			if n := w.passes(t); n != 0 || w.port.State().Open {
				t.Errorf("%d packets passed", n)
			}
			if said := w.radius.Log(); !strings.Contains(said, reason) {
				t.Errorf("the server does not say %q:\n%s", reason, said)
			}
		})
	}
}
