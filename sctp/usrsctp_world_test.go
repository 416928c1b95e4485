// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/sctp"
)

// world is a host of ours and one with usrsctp, joined by two networks that can be cut:
//
//	us ── wire, 2001:db8:1::/64 ── them
//	   ── wire, 2001:db8:2::/64 ──
//
// We are a and they are b in each network.
type world struct {
	t        *testing.T
	ctx      context.Context
	us, them *lab.Node
	wires    [2]*lab.Wire
	program  string
}

const (
	us1, us2     = "2001:db8:1::a", "2001:db8:2::a"
	them1, them2 = "2001:db8:1::b", "2001:db8:2::b"
)

// A test has so many ticks of patience, and takes a second or two. Ticks that are taken are counted, not the time that
// goes by: a machine that stands still takes none, and a busy one takes few.
const (
	patience = 600
	tick     = 100 * time.Millisecond
)

// patient ends when patience is over.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		defer cancel()
		for range patience {
			time.Sleep(tick)
			if ctx.Err() != nil {
				return
			}
		}
	}()
	return ctx
}

func newWorld(t *testing.T) *world {
	w := emptyWorld(t)
	for i := range w.wires {
		name := fmt.Sprintf("e%d", i+1)
		wire, err := w.us.Lab().Wire(w.us, name, w.them, name, lab.WireConfig{})
		if err != nil {
			t.Fatal(err)
		}
		w.wires[i] = wire
	}
	w.us.Addr("e1", us1+"/64").Addr("e2", us2+"/64")
	w.them.Addr("e1", them1+"/64").Addr("e2", them2+"/64")
	if err := w.us.Lab().Err(); err != nil {
		t.Fatal(err)
	}
	return w
}

// emptyWorld has the two hosts alone.
func emptyWorld(t *testing.T) *world {
	testutil.NeedRoot(t)
	t.Parallel() // they wait more than they work
	program, err := usrsctp.Build(t.TempDir())
	if err != nil {
		testutil.Missing(t, err)
	}
	l, err := lab.New(context.Background(), lab.Options{Name: "sctp"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, ctx: patient(t), us: l.Node("us"), them: l.Node("them"), program: program}
}

// them3 is the only address of a host behind a router.
const them3 = "2001:db8:3::b"

// newRoutedWorld gives them one address, and us two networks to it; we send by that of the source address:
//
//	us ── wire, 2001:db8:1::/64 ── router ── 2001:db8:3::/64 ── them
//	   ── wire, 2001:db8:2::/64 ──
//
// The router is fe in each network.
func newRoutedWorld(t *testing.T) *world {
	w := emptyWorld(t)
	l := w.us.Lab()
	router := l.Node("router")
	for i, address := range []string{us1, us2} {
		name := fmt.Sprintf("e%d", i+1)
		wire, err := l.Wire(w.us, name, router, name, lab.WireConfig{})
		if err != nil {
			t.Fatal(err)
		}
		w.wires[i] = wire
		gateway := strings.TrimSuffix(address, "a") + "fe"
		w.us.Addr(name, address+"/64")
		router.Addr(name, gateway+"/64")
		if err := sendFrom(w.us.Kernel(), name, address, gateway, 101+i); err != nil {
			t.Fatal(err)
		}
	}
	l.Link(router, "s", w.them, "s")
	router.Addr("s", "2001:db8:3::fe/64").Forward(false, true)
	w.them.Addr("s", them3+"/64").Route("default", "2001:db8:3::fe")
	w.us.Route("default", "2001:db8:1::fe")
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return w
}

// sendFrom has what is sent from an address go by a gateway of its own.
func sendFrom(h *lab.Kernel, name, address, gateway string, table int) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Table: table}
	rule := netlink.NewRule()
	rule.Family, rule.Table = netlink.FAMILY_V6, table
	rule.Src = &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(128, 128)}
	return errors.Join(h.RouteAdd(route), h.RuleAdd(rule))
}

// on is the world in another test, which has patience of its own.
func (w *world) on(t *testing.T) *world {
	one := *w
	one.t, one.ctx = t, patient(t)
	return &one
}

// transport is how packets travel.
type transport struct {
	network  string   // as we name it
	settings []string // as they do
}

var (
	inUDP = transport{"sctp6+udp", []string{"udp=9899", "peer-udp=9899"}}
	inIP  = transport{network: "sctp6"}
)

// eachTransport runs a test in both.
func (w *world) eachTransport(f func(w *world, by transport)) {
	for _, by := range []transport{inUDP, inIP} {
		w.t.Run(by.network, func(t *testing.T) { f(w.on(t), by) })
	}
}

// quick has both ends wait for less: tests wait for timeouts. No count of timeouts ends an association, since on a busy
// machine one end may have many while the other waits for its turn.
var quick = []string{
	"rto-min=100", "rto-initial=100", "rto-max=1000", "heartbeat=200", "path-max-retrans=2",
	"association-max-retrans=1000", "max-init-retrans=1000",
}

func parameters() *sctp.Parameters {
	p := sctp.Defaults()
	p.RTOInitial, p.RTOMin, p.RTOMax = 100*time.Millisecond, 100*time.Millisecond, time.Second
	p.HeartbeatInterval, p.PathMaxRetrans = 200*time.Millisecond, 2
	p.AssociationMaxRetrans, p.MaxInitRetrans = 1000, 1000
	return &p
}

// still has both ends send nothing but data and what answers it, by the path of the data, once the paths are confirmed:
// what comes late to or from an address that has left is out of the blue, and its answer, an ABORT, would end the
// association. Nor does a timeout of theirs, or of ours, lead anything to another path on a busy machine.
var still = []string{"heartbeat=0", "rto-max=3000", "rto-initial=3000", "rto-min=3000"}

func stillParameters() *sctp.Parameters {
	p := parameters()
	p.RTOInitial, p.RTOMin, p.RTOMax = 3*time.Second, 3*time.Second, 3*time.Second
	p.HeartbeatInterval, p.HeartbeatMaxBurst, p.SACKDelay, p.MaxMTU = -1, 10, 0, 1280
	return p
}

// peer starts usrsctp; without remote addresses it listens.
func (w *world) peer(by transport, local, remote []string, settings ...string) *usrsctp.Peer {
	w.t.Helper()
	all := append(append(append([]string{"hash=1"}, by.settings...), quick...), settings...)
	p, err := usrsctp.Start(w.ctx, w.them, w.program, usrsctp.Config{Local: parse(local), Remote: parse(remote), Settings: all})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if signal := crash(p); signal != 0 {
			w.t.Errorf("%s: %v", crashed, signal)
		}
		_ = p.Stop()
		if w.t.Failed() {
			w.t.Logf("usrsctp, which ended by %v:\n%s", p.Wait(), p.Log())
		}
	})
	return p
}

// crashed is what a test says of usrsctp that has ended by a fault of its own.
const crashed = "usrsctp has crashed"

// crash is the signal by which usrsctp has ended if that was a fault of its own, else 0.
func crash(p *usrsctp.Peer) syscall.Signal {
	if p.Signal(syscall.Signal(0)) == nil {
		return 0 // it lives
	}
	if exit := (*exec.ExitError)(nil); errors.As(p.Wait(), &exit) {
		switch signal := exit.Sys().(syscall.WaitStatus).Signal(); signal {
		case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGABRT:
			return signal
		}
	}
	return 0
}

// aloneEnv says that a test runs in a process of its own.
const aloneEnv = "ISTHMUS_USRSCTP_ALONE"

// bearsCrash runs a test in a process of its own, and once more if usrsctp has crashed in it: while it takes away an
// address of its own it frees what it sends by, without the lock of those who send (sctp_del_local_addr_ep). Of some 700
// runs of all tests one ended so. Whatever else fails, fails. It returns false in that process.
func bearsCrash(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == "1" {
		return false
	}
	testutil.NeedRoot(t)
	t.Parallel()
	for again := true; ; again = false {
		alone := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		alone.Env = append(os.Environ(), aloneEnv+"=1")
		said, err := alone.CombinedOutput()
		switch {
		case err == nil && bytes.Contains(said, []byte("--- SKIP")):
			t.Skipf("%s", said)
		case err == nil:
			return true
		case !again || !bytes.Contains(said, []byte(crashed)):
			t.Fatalf("%v:\n%s", err, said)
		}
		t.Logf("the test begins again:\n%s", said)
	}
}

func parse(list []string) (addresses []netip.Addr) {
	for _, one := range list {
		addresses = append(addresses, netip.MustParseAddr(one))
	}
	return addresses
}

// host writes addresses and the port as package sctp takes them.
func host(list []string) string { return "[" + strings.Join(list, "]/[") + "]:5000" }

// open opens an end of ours that dials, with these addresses and port 5000.
func (w *world) open(by transport, par *sctp.Parameters, local []string) *sctp.Endpoint {
	w.t.Helper()
	c := sctp.Config{Parameters: par, UDPPort: sctp.DefaultUDPPort}
	var e *sctp.Endpoint
	err := w.us.Do(func() (err error) {
		for {
			// Its readers let go of a socket after it was closed.
			if e, err = c.Open(w.ctx, by.network, host(local)); !errors.Is(err, syscall.EADDRINUSE) || w.ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.close(e) })
	return e
}

// close ends what there is of an end, which the peer need not learn.
func (w *world) close(e *sctp.Endpoint) {
	now, cancel := context.WithCancel(w.ctx)
	cancel()
	_ = e.Shutdown(now)
}

// dial sets up an association from us.
func (w *world) dial(by transport, par *sctp.Parameters, local, remote []string) *sctp.Conn {
	w.t.Helper()
	return w.dialFrom(w.open(by, par, local), remote)
}

func (w *world) dialFrom(e *sctp.Endpoint, remote []string) *sctp.Conn {
	w.t.Helper()
	var conn *sctp.Conn
	err := w.us.Do(func() (err error) {
		conn, err = e.Dial(w.ctx, host(remote))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.guard(conn)
	return conn
}

// listen opens our end at these addresses.
func (w *world) listen(by transport, par *sctp.Parameters, local []string) *sctp.Listener {
	w.t.Helper()
	c := sctp.Config{Parameters: par}
	var l *sctp.Listener
	err := w.us.Do(func() (err error) {
		l, err = c.Listen(w.ctx, by.network, host(local))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

func (w *world) accept(l *sctp.Listener) *sctp.Conn {
	w.t.Helper()
	conn, err := l.AcceptSCTP(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.guard(conn)
	return conn
}

// guard has an association end with its test, at the latest when patience is over.
func (w *world) guard(conn *sctp.Conn) {
	context.AfterFunc(w.ctx, func() { _ = conn.SetDeadline(time.Now()) })
	w.t.Cleanup(func() { conn.Abort("the test is over") })
}

// says waits for a line of usrsctp.
func (w *world) says(p *usrsctp.Peer, pattern string) {
	w.t.Helper()
	if _, err := p.WaitFor(w.ctx, "^"+pattern+"$"); err != nil {
		w.t.Fatal(err)
	}
}

// saysBehind waits for a line of usrsctp behind another one; it may have said the same before.
func (w *world) saysBehind(p *usrsctp.Peer, first, then string) {
	w.t.Helper()
	for w.ctx.Err() == nil {
		if _, behind, _ := strings.Cut(p.Log(), first+"\n"); strings.Contains(behind, then+"\n") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("usrsctp has not said %q behind %q", then, first)
}

func (w *world) order(p *usrsctp.Peer, order string) {
	w.t.Helper()
	if err := p.Order(order); err != nil {
		w.t.Fatal(err)
	}
}

// happens waits for an event of ours, of a path or a change that has this address if one is given.
func (w *world) happens(events <-chan sctp.Event, kind sctp.EventKind, address string) {
	w.t.Helper()
	for {
		select {
		case e, open := <-events:
			if !open {
				w.t.Fatalf("the association has ended before the event %q", kind)
			}
			if e.Kind == kind && (address == "" || e.Pair.Local.String() == address || e.Pair.Remote.String() == address) {
				return
			}
			w.t.Logf("event: %v %v %v", e.Kind, e.Pair, e.Reason)
		case <-w.ctx.Done():
			w.t.Fatalf("no event %q %s", kind, address)
		}
	}
}

func (w *world) cutBoth() {
	for _, wire := range w.wires {
		wire.Cut()
	}
}

func (w *world) restoreBoth() {
	for _, wire := range w.wires {
		wire.Restore()
	}
}

// confirmed waits until the peer has answered at all addresses.
func (w *world) confirmed(conn *sctp.Conn) {
	w.t.Helper()
	for w.ctx.Err() == nil {
		if !slices.ContainsFunc(conn.Status().Paths, func(p sctp.PathStatus) bool { return !p.Confirmed }) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("not all paths are confirmed: %+v", conn.Status())
}

// capture records both networks at our end; the result stops that and returns the files.
func (w *world) capture() (stop func() []string) {
	w.t.Helper()
	var files []string
	var under []*lab.Capture
	for _, name := range []string{"e1", "e2"} {
		file := filepath.Join(w.t.TempDir(), name+".pcap")
		c, err := w.us.Lab().Capture(w.us, name, file)
		if err != nil {
			w.t.Fatal(err)
		}
		files, under = append(files, file), append(under, c)
	}
	return func() []string {
		for _, c := range under {
			if err := c.Stop(); err != nil {
				w.t.Error(err)
			}
		}
		return files
	}
}

// readAll reads messages until the peer has shut down or so many have come, and counts them as usrsctp does.
func readAll(conn *sctp.Conn, most int) (t usrsctp.Traffic, err error) {
	t.Streams = map[int]usrsctp.Count{}
	parts := map[uint16][]byte{}
	b := make([]byte, 1<<17)
	for t.Messages < most {
		n, info, err := conn.ReadMessage(b)
		if err == io.EOF {
			break
		}
		if err != nil {
			return t, err
		}
		parts[info.Stream] = append(parts[info.Stream], b[:n]...)
		if info.Last {
			count(&t, int(info.Stream), parts[info.Stream])
			parts[info.Stream] = parts[info.Stream][:0]
		}
	}
	return t, nil
}

func count(t *usrsctp.Traffic, stream int, message []byte) {
	c, some := t.Streams[stream]
	if !some {
		c.Hash = usrsctp.NewHash()
	}
	c.Messages++
	c.Octets += len(message)
	c.Hash.Add(message)
	t.Streams[stream] = c
	t.Messages++
	t.Octets += len(message)
}

// writeAll sends so many messages of mixed sizes by four streams, with a pause between them: nine in ten have at most a
// thirtieth of the largest size.
func writeAll(conn *sctp.Conn, messages, largest int, pause time.Duration) (t usrsctp.Traffic, err error) {
	t.Streams = map[int]usrsctp.Count{}
	octets := make([]byte, largest)
	for i := range octets {
		octets[i] = byte(i * 7 >> 2)
	}
	for i := range messages {
		spread := largest
		if i%10 != 0 {
			spread = largest/30 + 1
		}
		message := octets[:1+i*7919%spread]
		message[0] = byte(i)
		if err := conn.WriteMessage(message, sctp.Message{Stream: uint16(i % 4), PPID: 1<<24 | uint32(i)}); err != nil {
			return t, err
		}
		count(&t, i%4, message)
		time.Sleep(pause)
	}
	return t, nil
}
