// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

func TestAttachRunsThePrograms(t *testing.T) {
	for _, row := range []struct {
		name   string
		config Config
		hook   Hook
	}{
		{"XDP", Config{Mode: fastpath.ModeXDP}, HookXDP},
		{"tc", Config{Mode: fastpath.ModeTC}, hookTC()},
		{"clsact", Config{Mode: fastpath.ModeTC, Classic: true}, HookClassic},
		{"auto on veth", Config{Mode: fastpath.ModeAuto}, hookTC()},
		{"host", Config{Mode: fastpath.ModeAuto, Host: true}, hookTC()},
		{"host by clsact", Config{Mode: fastpath.ModeTC, Host: true, Classic: true}, HookClassic},
		{"named device", Config{Mode: fastpath.ModeXDP, Devices: []string{"port"}}, HookXDP},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			c := newCounter(t)
			a := w.mustAttach(t, c.Programs, row.config)
			r := only(t, a)
			if r.Hook != row.hook || r.Device != "port" || r.Why == "" {
				t.Errorf("the report is %+v, want port by %s and a reason", r, row.hook)
			}
			w.send(t, 10)
			if got := c.await(t, 10); got != 10 {
				t.Errorf("the program saw %d of 10 frames", got)
			}
			w.finish(t, a.Close)
			w.send(t, 10)
			if got := c.await(t, 10); got != 10 {
				t.Errorf("the detached program saw %d frames more", got-10)
			}
			w.Near.Do(t, func() error {
				if kind := qdiscKind(r.Index); kind != "" {
					t.Errorf("a qdisc of the kind %s was left", kind)
				}
				return nil
			})
		})
	}
}

func TestAttachTheTunnelsEgress(t *testing.T) {
	for _, classic := range []bool{false, true} {
		w := newWire(t)
		c := newCounter(t)
		var index int
		w.Far.Do(t, func() error {
			l, err := netlink.LinkByName("host")
			index = l.Attrs().Index
			return err
		})
		// The far end stands for the tunnel here: what counts is that it sends.
		end := &wire{&fastpathtest.Wire{Near: w.Far, Far: w.Near}}
		a := end.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeAuto, Host: true, Tunnel: index, Classic: classic})
		if r := only(t, a); !r.Egress || r.Device != "host" {
			t.Errorf("the report is %+v, want the egress of host", r)
		}
		w.send(t, 7)
		if got := c.await(t, 7); got != 7 {
			t.Errorf("classic %t: the program saw %d of 7 frames that were sent", classic, got)
		}
	}
}

// foreign attaches someone else's XDP program to the port.
func foreign(t *testing.T, w *wire, flags link.XDPAttachFlags) *counter {
	t.Helper()
	other := newCounter(t)
	w.Near.Do(t, func() error {
		l, err := netlink.LinkByName("port")
		if err != nil {
			return err
		}
		x, err := link.AttachXDP(link.XDPOptions{Program: other.XDP, Interface: l.Attrs().Index, Flags: flags})
		if err == nil {
			t.Cleanup(func() { x.Close() })
		}
		return err
	})
	return other
}

func TestAttachRefusesAnothersXDP(t *testing.T) {
	w := newWire(t)
	other := foreign(t, w, link.XDPDriverMode)
	c := newCounter(t)
	_, err := w.attach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
	fastpathtest.WantWords(t, err, "port", "count_xdp", "detach")
	w.send(t, 5)
	if got := other.await(t, 5); got != 5 {
		t.Errorf("the other program saw %d of 5 frames after the refusal", got)
	}
}

func TestAutoLeavesAnothersXDPAlone(t *testing.T) {
	w := newWire(t)
	other := foreign(t, w, link.XDPGenericMode)
	c := newCounter(t)
	r := only(t, w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeAuto}))
	if r.Hook != hookTC() {
		t.Errorf("auto chose %s", r.Hook)
	}
	fastpathtest.WantWords(t, r.Why, "count_xdp")
	fastpathtest.WantWords(t, r.Warnings, "count_xdp", "first")
	w.send(t, 5)
	if got := other.await(t, 5); got != 5 {
		t.Errorf("the other program saw %d of 5 frames", got)
	}
	if got := c.await(t, 5); got != 5 {
		t.Errorf("ours saw %d of 5 frames", got)
	}
}

func TestAttachRefusesMissingDevice(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	_, err := w.attach(t, c.Programs, Config{Mode: fastpath.ModeAuto, Devices: []string{"port", "nowhere"}})
	fastpathtest.WantWords(t, err, "no network device nowhere")
	w.send(t, 3)
	if got := c.seen(t); got != 0 {
		t.Errorf("a refused attachment saw %d frames", got)
	}
}

// TestAttachIsAllOrNothing lets the second device fail.
func TestAttachIsAllOrNothing(t *testing.T) {
	w := newWire(t)
	w.Near.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "second", MTU: 9000}, PeerName: "peer"})
	})
	c := newCounter(t)
	_, err := w.attach(t, c.Programs, Config{Mode: fastpath.ModeXDP, Devices: []string{"port", "second"}})
	fastpathtest.WantWords(t, err, "second", "MTU", "3506")
	w.send(t, 3)
	if got := c.seen(t); got != 0 {
		t.Errorf("after a failure %d frames met a program", got)
	}
}

// TestAutoFallsBackToTC lets a driver refuse the XDP that auto chose, and another
// take it without sending what is redirected.
func TestAutoFallsBackToTC(t *testing.T) {
	for _, row := range []struct {
		name  string
		mtu   int
		words []string
	}{
		{"refused", 9000, []string{"XDP does not serve", "second", "MTU"}},
		{"nothing is sent", 1500, []string{"XDP does not serve", "port cannot send what XDP redirects into it"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			w.Show(t)
			w.setFar(t, ethtoolSetGRO, 0)
			w.Near.Do(t, func() error {
				return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "second", MTU: row.mtu}, PeerName: "peer"})
			})
			c := newCounter(t)
			o := Config{Name: "test", Mode: fastpath.ModeAuto, Devices: []string{"port", "second"}}
			a := &Attachment{programs: c.Programs, config: o, placed: map[pinned.Spot]*placed{}, classic: probe.LacksTCX()}
			t.Cleanup(func() { w.finish(t, a.Close) })
			w.Near.Do(t, func() error {
				view, err := survey(o)
				if err != nil {
					return err
				}
				for _, d := range view.chosen {
					d.look(nobody)
				}
				return a.attachBy(regime{xdp: true}, view.chosen)
			})
			reports := a.Report()
			if len(reports) != 2 || a.XDP() {
				t.Fatalf("the report is %+v, want two devices by tc", reports)
			}
			for _, r := range reports {
				if r.Hook != hookTC() {
					t.Errorf("%s has %s", r.Device, r.Hook)
				}
				fastpathtest.WantWords(t, r.Why, row.words...)
			}
			w.send(t, 5)
			if got := c.await(t, 5); got != 5 {
				t.Errorf("the programs saw frames %d times, want 5", got)
			}
		})
	}
}

// TestAutoLeavesXDP has a device lose what XDP redirects into it when packets flow already:
// the kernel knows, or its driver alone does. No link event tells.
func TestAutoLeavesXDP(t *testing.T) {
	for _, row := range []struct {
		name  string
		lose  func(*testing.T, *wire, *Attachment)
		words []string
	}{
		{"it says so", func(t *testing.T, w *wire, _ *Attachment) { w.setFar(t, ethtoolSetGRO, 0) }, []string{"port cannot send"}},
		{"it says nothing", func(_ *testing.T, _ *wire, a *Attachment) {
			for s := range a.placed {
				a.refuses[s.Index] = unix.ENXIO
			}
		}, []string{"port has refused", unix.ENXIO.Error()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			w.Show(t)
			w.setFar(t, ethtoolSetGRO, 1)
			c := newCounter(t)
			a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
			a.config.Mode = fastpath.ModeAuto // which takes no veth for a card
			if r := only(t, a); r.Hook != HookXDP || !r.Target {
				t.Fatalf("the report is %+v", r)
			}
			failing := func() (failing bool) {
				w.Near.Do(t, func() error {
					failing = a.Failing()
					return nil
				})
				return failing
			}
			if failing() {
				t.Error("it fails before anything was lost")
			}
			row.lose(t, w, a)
			if row.name == "it says so" && !failing() {
				t.Error("it does not fail")
			}
			w.Near.Do(t, func() error {
				_, err := a.Sync()
				return err
			})
			r := only(t, a)
			if r.Hook != hookTC() || a.XDP() {
				t.Errorf("the report is %+v, want tc", r)
			}
			fastpathtest.WantWords(t, r.Why, append(row.words, "XDP does not serve")...)
			if failing() {
				t.Error("it fails by tc")
			}
			w.send(t, 5)
			if got := c.await(t, 5); got != 5 {
				t.Errorf("the programs saw frames %d times, want 5", got)
			}
		})
	}
}
