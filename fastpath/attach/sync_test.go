// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// sync calls Sync in the near namespace.
func (w *wire) sync(t *testing.T, a *Attachment) (changed bool, err error) {
	t.Helper()
	w.Near.Do(t, func() error {
		changed, err = a.Sync()
		return nil
	})
	return changed, err
}

// unplug removes the pair.
func (w *wire) unplug(t *testing.T) {
	t.Helper()
	w.Near.Do(t, func() error {
		l, err := netlink.LinkByName("port")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

var everyHook = []struct {
	name   string
	config Config
}{
	{"XDP", Config{Mode: fastpath.ModeXDP}},
	{"tcx", Config{Mode: fastpath.ModeTC}},
	{"clsact", Config{Mode: fastpath.ModeTC, Classic: true}},
}

func TestSyncFollowsADeviceThatComesBack(t *testing.T) {
	for _, row := range everyHook {
		for _, names := range [][]string{nil, {"port"}} {
			t.Run(row.name, func(t *testing.T) {
				root := fastpathtest.MountBPFFS(t)
				w := newWire(t)
				c := newCounter(t)
				o := row.config
				o.Devices, o.Pins = names, w.openPins(t, root)
				a := w.mustAttach(t, c.Programs, o)
				first := only(t, a).Index
				if changed, err := w.sync(t, a); changed || err != nil {
					t.Errorf("with nothing changed, Sync says %t and %v", changed, err)
				}

				w.unplug(t)
				if changed, err := w.sync(t, a); !changed || err != nil {
					t.Errorf("with the device gone, Sync says %t and %v", changed, err)
				}
				if r := a.Report(); len(r) != 0 {
					t.Errorf("with the device gone the report is %+v", r)
				}
				wantNothingPinned(t, o.Pins)

				w.Plug(t)
				if changed, err := w.sync(t, a); !changed || err != nil {
					t.Errorf("with the device back, Sync says %t and %v", changed, err)
				}
				if r := only(t, a); r.Index == first || r.Hook == HookNone {
					t.Errorf("with the device back the report is %+v", r)
				}
				w.send(t, 5)
				if got := c.await(t, 5); got != 5 {
					t.Errorf("the program saw %d of 5 frames", got)
				}
				w.finish(t, a.Close)
				wantNothingPinned(t, o.Pins)
			})
		}
	}
}

// TestSyncDecidesLate starts before there is any device.
func TestSyncDecidesLate(t *testing.T) {
	w := newWire(t)
	w.unplug(t)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeAuto})
	if r := a.Report(); len(r) != 0 || a.XDP() {
		t.Errorf("with no device the report is %+v", r)
	}
	w.Plug(t)
	if _, err := w.sync(t, a); err != nil {
		t.Fatal(err)
	}
	r := only(t, a)
	if r.Hook != hookTC() {
		t.Errorf("auto chose %s", r.Hook)
	}
	fastpathtest.WantWords(t, r.Why, "veth pair")
	w.send(t, 5)
	if got := c.await(t, 5); got != 5 {
		t.Errorf("the program saw %d of 5 frames", got)
	}
}

// TestSyncLeavesOutWhatDoesNotFit adds a device that cannot take the XDP of the
// others.
func TestSyncLeavesOutWhatDoesNotFit(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
	w.Near.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}); err != nil {
			return err
		}
		return fastpathtest.Up("bridge")
	})
	changed, err := w.sync(t, a)
	if !changed {
		t.Error("Sync says that nothing changed")
	}
	fastpathtest.WantWords(t, err, "bridge", "left out")
	reports := a.Report()
	if len(reports) != 2 || reports[0].Hook != HookXDP || reports[1].Hook != HookNone || reports[1].Target {
		t.Fatalf("the report is %+v, want port by XDP and bridge left out", reports)
	}
	fastpathtest.WantWords(t, reports[1].Why, "the other devices use XDP", "bridge", "set fast_path to auto or tc")
	w.send(t, 5)
	if got := c.await(t, 5); got != 5 {
		t.Errorf("the program saw %d of 5 frames", got)
	}
	if changed, _ := w.sync(t, a); changed {
		t.Error("the second Sync says that something changed")
	}
}

// TestSyncLetsMembersGo makes the device a member of a bridge.
func TestSyncLetsMembersGo(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			c := newCounter(t)
			a := w.mustAttach(t, c.Programs, row.config)
			w.Near.Do(t, func() error {
				b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
				if err := netlink.LinkAdd(b); err != nil {
					return err
				}
				l, err := netlink.LinkByName("port")
				if err != nil {
					return err
				}
				return netlink.LinkSetMaster(l, b)
			})
			if _, err := w.sync(t, a); err != nil {
				t.Fatal(err)
			}
			for _, r := range a.Report() {
				if r.Hook != HookNone {
					t.Errorf("still attached: %+v", r)
				}
			}
			w.send(t, 5)
			if got := c.seen(t); got != 0 {
				t.Errorf("the program saw %d frames of a bridge's member", got)
			}
		})
	}
}

func TestSyncAfterCloseDoesNothing(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC})
	w.finish(t, a.Close)
	if changed, err := w.sync(t, a); changed || err != nil {
		t.Errorf("Sync says %t and %v", changed, err)
	}
	w.send(t, 5)
	if got := c.seen(t); got != 0 {
		t.Errorf("the program saw %d frames", got)
	}
}

// The MTU of a device may change as long as it is attached to.
func TestSyncTellsTheMTU(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC})
	for _, mtu := range []int{1500, 1400} {
		w.Near.Do(t, func() error {
			l, err := netlink.LinkByName("port")
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, mtu)
		})
		if _, err := w.sync(t, a); err != nil {
			t.Fatal(err)
		}
		if r := only(t, a); r.MTU != mtu {
			t.Errorf("the report says %d of an MTU of %d", r.MTU, mtu)
		}
	}
}

// TestSyncChoosesAgain has another device come when all have gone, which cannot do what was
// chosen for them.
func TestSyncChoosesAgain(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeXDP})
	a.config.Mode = fastpath.ModeAuto // which has found cards here
	if r := only(t, a); r.Hook != HookXDP {
		t.Fatalf("the report is %+v", r)
	}
	w.unplug(t)
	w.Near.Do(t, func() error {
		if a.Missing() {
			t.Error("a program that has gone with its device is missing")
		}
		return nil
	})
	if _, err := w.sync(t, a); err != nil {
		t.Error(err)
	}
	w.Plug(t, func(v *netlink.Veth) { v.NumRxQueues, v.NumTxQueues, v.PeerNumTxQueues = 1, 1, 2 })
	if _, err := w.sync(t, a); err != nil {
		t.Error(err)
	}
	if r := only(t, a); r.Hook != hookTC() || a.XDP() {
		t.Errorf("with another device the report is %+v", r)
	}
	w.send(t, 5)
	if got := c.await(t, 5); got != 5 {
		t.Errorf("the program saw %d of 5 frames", got)
	}
}

// TestSyncPutsBackWhatOthersTake has somebody take the programs away, with the qdisc that they
// are in, and perhaps make one of his own.
func TestSyncPutsBackWhatOthersTake(t *testing.T) {
	for _, row := range []struct {
		name string
		host bool
		take func(index int, a *Attachment) error
	}{
		{name: "the qdisc", take: func(index int, _ *Attachment) error { return netlink.QdiscDel(pinned.Clsact(index)) }},
		{name: "the qdisc of a host's tunnel", host: true, take: func(index int, _ *Attachment) error {
			return netlink.QdiscDel(pinned.Clsact(index))
		}},
		{name: "the qdisc, and makes his own", take: func(index int, _ *Attachment) error {
			if err := netlink.QdiscDel(pinned.Clsact(index)); err != nil {
				return err
			}
			return netlink.QdiscAdd(pinned.Clsact(index))
		}},
		{name: "links", take: func(_ int, a *Attachment) error {
			for _, p := range a.placed {
				if l, ok := p.hook.(*linkHook); ok {
					return l.link.Detach()
				}
			}
			return nil
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.name == "links" && probe.LacksTCX() {
				t.Skip("this kernel has no links for tc")
			}
			root := fastpathtest.MountBPFFS(t)
			w := newWire(t)
			c := newCounter(t)
			o := Config{Mode: fastpath.ModeTC, Classic: row.name != "links", Pins: w.openPins(t, root)}
			name := "port"
			if row.host {
				name = "tunnel"
			}
			index := 0
			w.Near.Do(t, func() error {
				if row.host {
					if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "end"}); err != nil {
						return err
					}
				}
				l, err := netlink.LinkByName(name)
				if err == nil {
					index = l.Attrs().Index
				}
				return err
			})
			if row.host {
				o.Host, o.Tunnel = true, index
			}
			a := w.mustAttach(t, c.Programs, o)
			a.config.Mode = fastpath.ModeAuto // which has left XDP here
			before := len(a.Report())
			w.Near.Do(t, func() error {
				if a.Missing() {
					t.Error("at first something is missing")
				}
				if err := row.take(index, a); err != nil {
					return err
				}
				if !a.Missing() {
					t.Error("nothing is missing")
				}
				return nil
			})
			if changed, err := w.sync(t, a); !changed || err != nil {
				t.Errorf("Sync says %t and %v", changed, err)
			}
			if a.XDP() {
				t.Error("the same device has XDP now")
			}
			if n := len(a.Report()); n != before {
				t.Errorf("%d programs were attached, now %d", before, n)
			}
			w.Near.Do(t, func() error {
				if a.Missing() {
					t.Error("then something is missing")
				}
				return nil
			})
			w.send(t, 5)
			if got := c.await(t, 5); got != 5 {
				t.Errorf("the program saw %d of 5 frames", got)
			}
			w.finish(t, a.Close)
			want := ""
			if row.name == "the qdisc, and makes his own" {
				want = "clsact"
			}
			w.Near.Do(t, func() error {
				if kind := qdiscKind(index); kind != want {
					t.Errorf("in the end there is a qdisc of the kind %q, want %q", kind, want)
				}
				return nil
			})
			wantNothingPinned(t, o.Pins)
		})
	}
}

// TestSyncListsDevicesFewTimes counts dumps of all links, each of which is as long as there are
// devices.
func TestSyncListsDevicesFewTimes(t *testing.T) {
	w := newWire(t)
	w.Near.Do(t, func() error {
		for i := range 10 {
			name := fmt.Sprint("more", i)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "far"}); err != nil {
				return err
			}
			if err := fastpathtest.Up(name); err != nil {
				return err
			}
		}
		return nil
	})
	c := newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC})
	if n := len(a.Report()); n < 11 {
		t.Fatalf("%d devices are reported", n)
	}
	dumps := 0
	ask := askLinks
	defer func() { askLinks = ask }()
	askLinks = func() ([]netlink.Link, error) {
		dumps++
		return ask()
	}
	if _, err := w.sync(t, a); err != nil {
		t.Error(err)
	}
	if dumps > 2 {
		t.Errorf("links were listed %d times", dumps)
	}
}

// TestSyncTriesTheTunnelAgain has somebody's qdisc in the place of ours for a while.
func TestSyncTriesTheTunnelAgain(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	index := 0
	w.Near.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, PeerName: "end"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("tunnel")
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	})
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC, Classic: true, Host: true, Tunnel: index})
	before := len(a.Report())
	theirs := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
	w.Near.Do(t, func() error {
		if err := netlink.QdiscDel(pinned.Clsact(index)); err != nil {
			return err
		}
		return netlink.QdiscAdd(theirs)
	})
	if _, err := w.sync(t, a); err == nil {
		t.Error("a program was attached to another's qdisc that has no place for it")
	}
	w.Near.Do(t, func() error { return netlink.QdiscDel(theirs) })
	if _, err := w.sync(t, a); err != nil {
		t.Error(err)
	}
	if n := len(a.Report()); n != before {
		t.Errorf("%d programs were attached, now %d", before, n)
	}
	w.finish(t, a.Close)
}
