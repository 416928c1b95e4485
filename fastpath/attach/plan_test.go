// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// plan calls Plan in the near namespace.
func (w *wire) plan(t *testing.T, o Config) (r []DeviceReport, err error) {
	t.Helper()
	o.Name = "test"
	w.Near.Do(t, func() error {
		r, err = Plan(o)
		return nil
	})
	return r, err
}

// TestPlanIsWhatAttachDoes compares the two, where nothing has to be tried.
func TestPlanIsWhatAttachDoes(t *testing.T) {
	for _, row := range append(everyHook, []struct {
		name   string
		config Config
	}{
		{"auto", Config{Mode: fastpath.ModeAuto}},
		{"host", Config{Mode: fastpath.ModeAuto, Host: true}},
		{"named", Config{Mode: fastpath.ModeXDP, Devices: []string{"port"}}},
	}...) {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			w.Show(t)
			c := newCounter(t)
			planned, err := w.plan(t, row.config)
			if err != nil {
				t.Fatal(err)
			}
			w.send(t, 5)
			if got := c.seen(t); got != 0 {
				t.Errorf("planning let programs see %d frames", got)
			}
			a := w.mustAttach(t, c.Programs, row.config)
			if diff := cmp.Diff(planned, a.Report()); diff != "" {
				t.Errorf("planned (-) and done (+) differ:\n%s", diff)
			}
		})
	}
}

func TestPlanRefusesWhatAttachRefuses(t *testing.T) {
	w := newWire(t)
	_, err := w.plan(t, Config{Mode: fastpath.ModeAuto, Devices: []string{"nowhere"}})
	fastpathtest.WantWords(t, err, "nowhere")
	_, err = w.plan(t, Config{Mode: fastpath.ModeOff})
	fastpathtest.WantWords(t, err, "switched off")
	foreign(t, w, link.XDPDriverMode)
	_, err = w.plan(t, Config{Mode: fastpath.ModeXDP})
	fastpathtest.WantWords(t, err, "count_xdp")
}

// foreignFilter adds someone else's tc filter to the port.
func foreignFilter(t *testing.T, w *wire, c *counter) {
	t.Helper()
	w.Near.Do(t, func() error {
		l, err := netlink.LinkByName("port")
		if err != nil {
			return err
		}
		if err := netlink.QdiscAdd(pinned.Clsact(l.Attrs().Index)); err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7,
			},
			Fd: c.Ingress.FD(), Name: "police", DirectAction: true,
		})
	})
}

// TestOthersFiltersStay attaches beside another's tc filter and goes again.
func TestOthersFiltersStay(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			other, c := newCounter(t), newCounter(t)
			foreignFilter(t, w, other)
			a := w.mustAttach(t, c.Programs, row.config)
			fastpathtest.WantWords(t, only(t, a).Warnings, "police")
			w.send(t, 5)
			if ours, theirs := c.seen(t), other.seen(t); ours != 5 || theirs != 5 {
				t.Errorf("of 5 frames ours saw %d and the other %d", ours, theirs)
			}
			w.finish(t, a.Close)
			w.send(t, 5)
			if ours, theirs := c.seen(t), other.seen(t); ours != 5 || theirs != 10 {
				t.Errorf("after Close, of 10 frames ours saw %d and the other %d", ours, theirs)
			}
		})
	}
}

// TestQdiscOfOursStaysForOthers puts another's filter into the qdisc that we made.
func TestQdiscOfOursStaysForOthers(t *testing.T) {
	w := newWire(t)
	other, c := newCounter(t), newCounter(t)
	a := w.mustAttach(t, c.Programs, Config{Mode: fastpath.ModeTC, Classic: true})
	w.Near.Do(t, func() error {
		d, err := deviceNamed("port")
		if err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: d.index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7,
			},
			Fd: other.Ingress.FD(), Name: "police", DirectAction: true,
		})
	})
	w.finish(t, a.Close)
	w.send(t, 5)
	if ours, theirs := c.seen(t), other.seen(t); ours != 0 || theirs != 5 {
		t.Errorf("of 5 frames ours saw %d and the other %d", ours, theirs)
	}
}

// TestInstancesShareADevice runs two of them on one device.
func TestInstancesShareADevice(t *testing.T) {
	for _, row := range []struct {
		name     string
		one, two Config
	}{
		{"two relays", Config{Name: "one"}, Config{Name: "two"}},
		{"relay and client of one name", Config{Name: "one"}, Config{Name: "one", Host: true}},
	} {
		for _, classic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, classic %t", row.name, classic), func(t *testing.T) {
				w := newWire(t)
				one, two := newCounter(t), newCounter(t)
				row.one.Mode, row.one.Classic = fastpath.ModeTC, classic
				row.two.Mode, row.two.Classic = fastpath.ModeTC, classic
				a := w.mustAttach(t, one.Programs, row.one)
				w.mustAttach(t, two.Programs, row.two)
				w.send(t, 5)
				w.finish(t, a.Close)
				w.send(t, 5)
				if x, y := one.seen(t), two.seen(t); x != 5 || y != 10 {
					t.Errorf("the one saw %d frames, the other %d; want 5 and 10", x, y)
				}
			})
		}
	}
}

func TestClassicNeedsItsQdisc(t *testing.T) {
	w := newWire(t)
	var index int
	w.Far.Do(t, func() error {
		l, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		index = l.Attrs().Index
		return netlink.QdiscAdd(&netlink.Ingress{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS},
		})
	})
	end := &wire{&fastpathtest.Wire{Near: w.Far, Far: w.Near}}
	c := newCounter(t)
	_, err := end.attach(t, c.Programs, Config{Mode: fastpath.ModeTC, Classic: true, Host: true, Tunnel: index})
	fastpathtest.WantWords(t, err, "a qdisc of the kind ingress where clsact must be", "tc qdisc del dev host ingress")
}
