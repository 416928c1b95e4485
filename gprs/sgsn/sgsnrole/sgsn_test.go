// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

const patience = testutil.Patience

// Addresses of the world, all on one loopback device.
var (
	ours   = netip.MustParseAddr("192.0.2.1")
	ours2  = netip.MustParseAddr("192.0.2.2")
	theirs = netip.MustParseAddr("198.51.100.1")
	other  = netip.MustParseAddr("198.51.100.2")
)

// world is an SGSN, a GGSN that it talks to, and the namespace of a terminal.
type world struct {
	core, ue *testutil.Netns
	ggsn     *ggsn
	sgsn     *SGSN
	stop     func() error
	end      func() error // by itself
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{core: testutil.NewNetns(t), ue: testutil.NewNetns(t)}
	w.core.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{ours, ours2, theirs, other} {
			err = errors.Join(err, netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}))
		}
		return err
	})
	w.ggsn = newGGSN(t, w.core, theirs)
	return w
}

// path is that of the terminal's namespace.
func (w *world) path() string { return fmt.Sprintf("/proc/self/fd/%d", w.ue.Handle()) }

// settings are those of a section with a terminal in its namespace, and what else lines have.
func (w *world) settings(t *testing.T, lines string) Settings {
	t.Helper()
	text := fmt.Sprintf("[[sgsn]]\nlocal = [%q, %q]\nggsn = %q\nnetns = %q\n", ours, ours2, theirs, w.path())
	if !strings.Contains(lines, "restart_counter") && !strings.Contains(lines, "state_file") {
		text += "restart_counter = \"clock\"\n"
	}
	return *configtest.One(t, Role.Section, text+lines).(*Settings)
}

// ue are the lines of a terminal.
func ue(version int, kind string) string {
	return fmt.Sprintf("imsi = \"240010123456789\"\napn = \"internet\"\ngtp = %d\ntype = %q\n", version, kind)
}

// start runs the SGSN in its namespace; stop ends it.
func (w *world) start(t *testing.T, s Settings) {
	t.Helper()
	w.run(t, s)
	select {
	case <-w.sgsn.Ready():
	case <-time.After(patience):
		t.Fatal("the SGSN is not ready")
	}
}

// run is start for one that may fail.
func (w *world) run(t *testing.T, s Settings) {
	t.Helper()
	var err error
	if w.sgsn, err = New(s, slog.New(slog.NewTextHandler(logWriter{t}, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := w.core.Go(func() error { return w.sgsn.Run(ctx) })
	w.end = func() error { return <-ended } // once: then it is closed
	w.stop = func() error {
		cancel()
		return w.end()
	}
	t.Cleanup(func() {
		if err := w.stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
}

// logWriter shows what the instance logs.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// echoes sends datagrams from the terminal by the GGSN, which come back.
func (w *world) echoes(t *testing.T, from, to netip.Addr, size int) {
	t.Helper()
	w.ue.Do(t, func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7)))
		if err != nil {
			return err
		}
		defer conn.Close()
		sent, got := make([]byte, size), make([]byte, size+1)
		for i := range 20 {
			sent[0] = byte(i)
			if _, err := conn.Write(sent); err != nil {
				return err
			}
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			if n, err := io.ReadAtLeast(conn, got, 1); err != nil || n != size || got[0] != byte(i) {
				return fmt.Errorf("%d octets came back: %w", n, err)
			}
		}
		return nil
	})
}

// links are the devices of the terminal's namespace.
func (w *world) links(t *testing.T) (list map[string]netlink.Link) {
	t.Helper()
	list = map[string]netlink.Link{}
	w.ue.Do(t, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			list[l.Attrs().Name] = l
		}
		return err
	})
	return list
}

var (
	site4 = netip.MustParseAddr("203.0.113.9")
	site6 = netip.MustParseAddr("2001:db8:9::9")
	ue4   = netip.MustParseAddr("10.45.0.1")
	ue6   = netip.MustParseAddr("2001:db8:6:1:200::1")
)

// TestTerminal gives a terminal of each type and version what it needs to talk, and takes all
// away.
func TestTerminal(t *testing.T) {
	for version := range 2 {
		for kind, mtu := range map[string]int{"v4": 1350, "v6": 1380, "v4v6": 1380} {
			t.Run(fmt.Sprintf("GTPv%d %s", version, kind), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.start(t, w.settings(t, ue(version, kind)))
				if kind != "v6" {
					w.echoes(t, ue4, site4, 1300)
				}
				if kind != "v4" {
					w.echoes(t, ue6, site6, 1300)
				}
				if l := w.links(t)["ue0"]; l == nil || l.Attrs().MTU != mtu {
					t.Errorf("the device is %+v", l)
				}
				c, err := w.sgsn.list(struct{}{})
				if err != nil || len(c.Contexts) != 1 || c.Contexts[0].State != "open" || c.Contexts[0].UpPackets < 20 || len(c.Contexts[0].DNS) == 0 {
					t.Errorf("%+v, %v", c, err)
				}
				if err := w.stop(); err != nil {
					t.Error(err)
				}
				if l := w.links(t); len(l) != 1 || w.ggsn.count(gtp.TypeDeleteRequest) != 1 {
					t.Errorf("%d devices are left, %d contexts deleted", len(l)-1, w.ggsn.count(gtp.TypeDeleteRequest))
				}
			})
		}
	}
}

// TestRefusal ends an instance whose terminal is refused, with the cause.
func TestRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ggsn.set(func() { w.ggsn.refuse = gtp.CauseUnknownAPN })
	w.run(t, w.settings(t, ue(1, "v4")))
	err := w.end()
	if err == nil || w.links(t)["ue0"] != nil {
		t.Errorf("%v; devices %v", err, w.links(t))
	}
	t.Log(err)
}

// TestStopMeanwhile: whoever ends an instance need not wait for a GGSN that does not answer its
// first request.
func TestStopMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ggsn.set(func() { w.ggsn.silent = true })
	w.run(t, w.settings(t, ue(1, "v4")+"t3_response = \"1m\"\nn3_requests = 20\n"))
	for end := time.Now().Add(patience); w.ggsn.count(gtp.TypeCreateRequest) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was asked")
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	select {
	case err := <-stopped:
		if l := w.links(t); err != nil || len(l) != 1 {
			t.Errorf("%v; devices %v", err, l)
		}
	case <-time.After(patience):
		t.Fatal("it waits for the answer")
	}
}

// TestRemedies: an error says what can be done.
func TestRemedies(t *testing.T) {
	for want, e := range map[string]sgsn.Event{
		"--gtp-fallback":   {Kind: sgsn.Refused, Reason: sgsn.ReasonNoAnswer},
		"--apn":            {Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseUnknownAPN},
		"subscribers_file": {Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseAPNDenied},
		"--type":           {Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseUnknownPDPType},
		"--password-file":  {Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseUserAuthentication},
		`user and password refused with the words "go on"`: {
			Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseUserAuthentication, Auth: sgsn.AuthRefused, AuthMessage: "go on"},
	} {
		if err := refusal(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err := refusal(sgsn.Event{Kind: sgsn.Ended, Reason: sgsn.ReasonDetached}); err != nil {
		t.Error(err)
	}
}

// TestNetworkDeletes takes the device away when the GGSN ends the context.
func TestNetworkDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v4")))
	i, _ := w.sgsn.list(struct{}{})
	var codec gtp.Codec
	b, err := codec.Append(nil, gtp.Header{Version: gtp.V1, HasSequence: true, TEID: i.Contexts[0].TEIDs[0]}, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)})
	if err != nil {
		t.Fatal(err)
	}
	w.core.Do(t, func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(theirs, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(ours, gtp.PortControl)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(b)
		return err
	})
	for end := time.Now().Add(patience); w.links(t)["ue0"] != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the device is still there")
		}
	}
}

// metrics are those of the routes by a device.
func (w *world) metrics(t *testing.T, device string) (list []int) {
	t.Helper()
	w.ue.Do(t, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
		for _, r := range routes {
			list = append(list, r.Priority)
		}
		return err
	})
	return list
}

// TestExamine finds addresses that the machine has not, and namespaces.
func TestExamine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.settings(t, ue(1, "v4"))
	w.core.Do(t, func() error {
		if found := s.examine(); len(found) != 0 {
			t.Errorf("found %+v", found)
		}
		s.Local, s.Netns = append(s.Local, netip.MustParseAddr("192.0.2.99")), "/nowhere"
		if found := s.examine(); len(found) != 2 {
			t.Errorf("found %+v", found)
		}
		return nil
	})
}

// TestAddressComesAndGoes: an address of ours that leaves the host stands in the status until it
// is back.
func TestAddressComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.start(t, w.settings(t, ""))
	second := &netlink.Addr{IPNet: &net.IPNet{IP: ours2.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	for _, step := range []struct {
		change func(netlink.Link, *netlink.Addr) error
		state  string
		gone   []netip.Addr
	}{{netlink.AddrDel, "address_missing", []netip.Addr{ours2}}, {netlink.AddrAdd, "serving", nil}} {
		w.core.Do(t, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return step.change(lo, second)
		})
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			st := w.sgsn.Status().(Status)
			if st.State == step.state && slices.Equal(st.MissingAddresses, step.gone) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("status %+v, want %s and %v", st, step.state, step.gone)
			}
		}
	}
}

// TestRefusalTold: the log has what the network has said to user and password of a context that it refuses.
func TestRefusalTold(t *testing.T) {
	var log strings.Builder
	s, err := New(*configtest.One(t, Role.Section, "[[sgsn]]\nlocal = [\"192.0.2.1\"]").(*Settings), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	refused := sgsn.Event{Kind: sgsn.Refused, Reason: sgsn.ReasonRefused, Cause: gtp.CauseUserAuthentication}
	if s.tell(outcome{event: refused}); strings.Contains(log.String(), "auth=") {
		t.Errorf("without a word: %s", log.String())
	}
	refused.Auth, refused.AuthMessage = sgsn.AuthRefused, "go on"
	if s.tell(outcome{event: refused}); !strings.Contains(log.String(), `auth=refused auth_message="go on"`) {
		t.Errorf("log %s", log.String())
	}
}

// TestToldOnce: an advertisement that comes again with the same content is no news for the log.
func TestToldOnce(t *testing.T) {
	var log strings.Builder
	s, err := New(*configtest.One(t, Role.Section, "[[sgsn]]\nlocal = [\"192.0.2.1\"]").(*Settings), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := gtp.ParseIMSI("240010123456789")
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind sgsn.EventKind, mtu int) outcome {
		return outcome{event: sgsn.Event{Kind: kind, Key: gtp.MakeTID(m, 5)}, info: sgsn.Info{MTU6: mtu}}
	}
	for i, step := range []struct {
		told  outcome
		lines int
	}{
		{at(sgsn.Attached, 0), 1}, {at(sgsn.Configured, 1400), 2}, {at(sgsn.Configured, 1400), 2}, {at(sgsn.Configured, 1300), 3},
		{at(sgsn.Ended, 0), 4}, {at(sgsn.Attached, 0), 5}, {at(sgsn.Configured, 1300), 6},
	} {
		if s.tell(step.told); strings.Count(log.String(), "\n") != step.lines {
			t.Errorf("step %d: want %d lines:\n%s", i, step.lines, log.String())
		}
	}
}
