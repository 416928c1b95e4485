// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// stream sends numbered packets from host to client, one each millisecond, and
// counts those that arrive.
type stream struct {
	end, ended     chan struct{}
	sent, received atomic.Uint32
	err            error // of the sender, once it has ended
}

// streamAhead is how many packets may be under way: fewer than queues and the client's
// socket hold while whoever empties them stands still.
const streamAhead = 64

func (r *rig) startStream(t *testing.T) *stream {
	t.Helper()
	s := &stream{end: make(chan struct{}), ended: make(chan struct{})}
	// Woken by the end of the test, if not by that of the stream.
	if err := r.client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		to := &net.UDPAddr{IP: relayClientIP.AsSlice(), Port: relayClientPort}
		for s.err == nil {
			select {
			case <-s.end:
				return
			case <-ticker.C:
			}
			if s.sent.Load()-s.received.Load() < streamAhead {
				n := s.sent.Add(1)
				_, s.err = r.host.WriteTo(binary.BigEndian.AppendUint32(nil, n), &ipv6.ControlMessage{HopLimit: 64}, to)
			}
		}
	}()
	go func() {
		seen := map[uint32]bool{}
		buf := make([]byte, 2048)
		for {
			n, err := r.client.Read(buf)
			if err != nil {
				return
			}
			if n == 40+8+4 {
				seen[binary.BigEndian.Uint32(buf[48:])] = true
				s.received.Store(uint32(len(seen)))
			}
		}
	}()
	return s
}

// flow waits until so many packets more have been sent.
func (s *stream) flow(t *testing.T, n uint32) {
	t.Helper()
	start := s.sent.Load()
	for deadline := time.Now().Add(testutil.Patience); s.sent.Load() < start+n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %d packets %d have come", s.sent.Load(), s.received.Load())
		}
	}
}

// stop ends the stream and waits for what is under way. It returns how many packets
// there were, and how many are lost.
func (s *stream) stop(t *testing.T) (sent, lost uint32) {
	t.Helper()
	close(s.end)
	if <-s.ended; s.err != nil {
		t.Fatal(s.err)
	}
	sent = s.sent.Load()
	for deadline := time.Now().Add(testutil.Patience); s.received.Load() < sent && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return sent, sent - s.received.Load()
}

// left reports what of a relay there is in its namespace.
func (r *rig) left(t *testing.T) (device bool, routes int) {
	t.Helper()
	r.relayNS.Do(t, func() error {
		_, err := netlink.LinkByName("teredo")
		device = err == nil
		all, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
		for _, route := range all {
			if route.Dst != nil && route.Dst.String() == "2001::/32" {
				routes++
			}
		}
		return err
	})
	return device, routes
}

// Established peers lose no packet while a successor takes over.
func TestFastPathSurvivesARestart(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeTC, fastpath.ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, by(mode))
			r.awaitPath(t, string(mode))
			r.establish(t)
			s := r.startStream(t)
			for range 3 {
				s.flow(t, 50)
				if err := r.leave(); err != nil {
					t.Fatal(err)
				}
				if device, routes := r.left(t); !device || routes != 1 {
					t.Errorf("left: device %v, %d routes", device, routes)
				}
				s.flow(t, 50)
				r.start(t, ModeRelay)
				if f := r.fastPath(); f.Path != string(mode) || f.Adopted != 1 {
					t.Errorf("after the restart: %+v", f)
				}
			}
			s.flow(t, 50)
			if sent, lost := s.stop(t); lost > 0 {
				t.Errorf("%d of %d packets are lost", lost, sent)
			}
			// Who was established is still known by name.
			if peers, total := r.relay.Peers(10); total != 1 || peers[0].Address != relayClientIP || !peers[0].Trusted {
				t.Errorf("%d peers: %+v", total, peers)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if device, routes := r.left(t); device || routes > 0 {
				t.Errorf("after the end: device %v, %d routes", device, routes)
			}
		})
	}
}

// A symmetric client's mapping survives, too.
func TestForeignPeerSurvivesARestart(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeTC))
	r.awaitPath(t, "tc")
	r.hostSends(t, "one")
	b := r.bubbleArrives(t)
	send(t, r.foreign, teredo.AppendBubble(nil, relayClientIP, b.Src()), relayAt)
	wantText(t, "the client got", clientReceives(t, r.foreign), "one hop 63")
	if err := r.leave(); err != nil {
		t.Fatal(err)
	}
	r.hostSends(t, "two")
	wantText(t, "the client got", clientReceives(t, r.foreign), "two hop 63")
	r.start(t, ModeRelay)
	r.hostSends(t, "three")
	wantText(t, "the client got", clientReceives(t, r.foreign), "three hop 63")
	send(t, r.foreign, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from [%s]:%d hop 63", relayClientIP, relayClientPort))
}

// What does not fit the new configuration is not taken over, and is gone.
func TestFastPathIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		path   string
	}{
		{"another table", func(c *Settings) { c.MaxPeers = 1000 }, "tc"},
		{"another prefix", func(c *Settings) { c.Prefixes = append(c.Prefixes, netip.MustParsePrefix("3fff:9::/32")) }, "tc"},
		{"no fast path, and nothing is kept", func(c *Settings) { c.FastPath, c.KeepState = fastpath.ModeOff, false }, "engine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newFastRig(t, by(fastpath.ModeTC))
			r.awaitPath(t, "tc")
			r.establish(t)
			if err := r.leave(); err != nil {
				t.Fatal(err)
			}
			name := r.config(ModeRelay).Name
			r.change = append(slices.Clone(r.change), tt.change, func(c *Settings) { c.Name = name })
			r.start(t, ModeRelay)
			if f := r.awaitPath(t, tt.path); f.Adopted != 0 {
				t.Errorf("%+v", f)
			}
			r.establish(t)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if device, routes := r.left(t); device || routes > 0 {
				t.Errorf("after the end: device %v, %d routes", device, routes)
			}
		})
	}
}

// A start that cannot be leaves the fast path of the relay before it at work.
func TestFastPathOutlivesFailedStart(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeTC))
	r.awaitPath(t, "tc")
	r.establish(t)
	if err := r.leave(); err != nil {
		t.Fatal(err)
	}
	r.relayNS.Do(t, func() error {
		busy, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(relayAt))
		if err != nil {
			return err
		}
		defer busy.Close()
		cfg := r.config(ModeRelay)
		relay, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if err := relay.Run(t.Context()); err == nil {
			t.Error("it has started")
		}
		return nil
	})
	r.hostSends(t, "still there")
	wantText(t, "the client got", clientReceives(t, r.client), "still there hop 63")
	r.start(t, ModeRelay)
	if f := r.awaitPath(t, "tc"); f.Adopted != 1 {
		t.Errorf("%+v", f)
	}
}

// A device that was left under another name makes room for the new one.
func TestFastPathMovesToAnotherDevice(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeTC))
	r.awaitPath(t, "tc")
	r.establish(t)
	if err := r.leave(); err != nil {
		t.Fatal(err)
	}
	r.change = append(slices.Clone(r.change), func(c *Settings) { c.Interface = "renamed" })
	r.relayNS.Do(t, func() error { return examineRoutes(r.config(ModeRelay)) })
	r.start(t, ModeRelay)
	if device, routes := r.left(t); device || routes != 1 {
		t.Errorf("beside the new device: device %v, %d routes", device, routes)
	}
	r.hostSends(t, "hello")
	wantText(t, "the client got", clientReceives(t, r.client), "hello hop 63")
	send(t, r.client, clientUDPWith("far", 1), relayAt) // by the engine
	if p := timeExceeded(t, r.client); p.Dst() != relayClientIP {
		t.Errorf("the answer went to %s", p.Dst())
	}
}

// A daemon that does not come back: its programs sleep when the linger is over, and
// what it left can be removed.
func TestFastPathSleepsAndIsCleaned(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "fast_path_linger")
	const linger = 3 * time.Second
	r := newFastRig(t, by(fastpath.ModeTC), func(c *Settings) { c.FastPathLinger = linger })
	r.awaitPath(t, "tc")
	r.establish(t)
	alive := time.Now() // and later still, by the last word of the relay
	if err := r.leave(); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	r.hostSends(t, "still there")
	if time.Since(alive) < linger {
		wantText(t, "the client got", clientReceives(t, r.client), "still there hop 63")
	} // else the machine stood still for as long
	time.Sleep(time.Until(left.Add(linger + 100*time.Millisecond)))
	r.hostSends(t, "asleep")
	r.nothingArrives(t)
	r.relayNS.Do(t, func() error {
		c, err := cleanHere()
		if len(c.Removed) != 2 || len(c.InUse) != 0 {
			t.Errorf("%+v", c)
		}
		return err
	})
	if device, routes := r.left(t); device || routes > 0 {
		t.Errorf("after the cleaning: device %v, %d routes", device, routes)
	}
	r.relayNS.Do(t, func() error {
		links, err := testutil.Whole(func() ([]netlink.Link, error) { return netlink.LinkList() })
		for _, l := range links {
			if l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
				t.Errorf("%s still has a program", l.Attrs().Name)
			}
		}
		return err
	})
	r.start(t, ModeRelay)
	if f := r.awaitPath(t, "tc"); f.Adopted != 0 {
		t.Errorf("%+v", f)
	}
	r.relayNS.Do(t, func() error {
		c, err := cleanHere()
		if len(c.Removed) != 0 || len(c.InUse) != 1 {
			t.Errorf("beside a living relay: %+v", c)
		}
		return err
	})
}

// cleanHere is the cleaning of relays without what others on this machine may have left.
func cleanHere() (role.Cleaned, error) {
	c, err := driver.Clean()
	files, filesErr := clean(nil)
	c.Removed, c.InUse, err = append(c.Removed, files.Removed...), append(c.InUse, files.InUse...), errors.Join(err, filesErr)
	c.InUse = slices.DeleteFunc(c.InUse, func(s string) bool { return strings.Contains(s, kept.Folder+"/") && !strings.Contains(s, "fast path") })
	return c, err
}

// What the relay mounts goes with it.
func TestFastPathUnmounts(t *testing.T) {
	const root = "/run/isthmus/bpf"
	bpffs := func() bool {
		info := unix.Statfs_t{}
		return unix.Statfs(root, &info) == nil && info.Type == unix.BPF_FS_MAGIC
	}
	r := newFastRig(t, by(fastpath.ModeTC))
	if !bpffs() {
		t.Error("there is no BPF file system for what is to survive")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if bpffs() {
		t.Error("the BPF file system is still mounted")
	}
}
