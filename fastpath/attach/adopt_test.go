// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// ahead is how many frames the stream may be ahead of the programs; the ring of a
// veth holds more.
const ahead = 64

// stream sends frames until stop is closed, and then reports how many. It waits
// for the programs to keep up, so that every frame that they do not see was
// missed.
func (w *wire) stream(t *testing.T, stop <-chan struct{}, seen func() uint64) <-chan uint64 {
	sent := make(chan uint64, 1)
	go func() {
		var n uint64
		defer func() { sent <- n }()
		w.Far.Do(t, func() error {
			l, err := netlink.LinkByName("host")
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if n-seen() > ahead {
					continue
				}
				if err := unix.Sendto(fd, testFrame, 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}); err != nil {
					return err
				}
				n++
			}
		})
	}()
	return sent
}

// TestSuccessorMissesNoFrame changes the process's programs under a stream.
func TestSuccessorMissesNoFrame(t *testing.T) {
	for _, row := range []struct {
		name          string
		before, after Config
	}{
		{"XDP", Config{Mode: fastpath.ModeXDP}, Config{Mode: fastpath.ModeXDP}},
		{"tcx", Config{Mode: fastpath.ModeTC}, Config{Mode: fastpath.ModeTC}},
		{"clsact", Config{Mode: fastpath.ModeTC, Classic: true}, Config{Mode: fastpath.ModeTC, Classic: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := fastpathtest.MountBPFFS(t)
			w := newWire(t)
			first, second := newCounter(t), newCounter(t)
			row.before.Pins = w.openPins(t, root)
			a := w.mustAttach(t, first.Programs, row.before)

			var last atomic.Uint64
			seen := func() uint64 {
				n := first.seen(t) + second.seen(t)
				last.Store(n)
				return n
			}
			stop := make(chan struct{})
			sent := w.stream(t, stop, seen)
			for last.Load() < 1000 {
				runtime.Gosched()
			}
			w.finish(t, a.Leave)
			if err := row.before.Pins.Close(); err != nil {
				t.Fatal(err)
			}
			// The process is gone; its programs go on.
			for mark := last.Load(); last.Load() < mark+1000; {
				runtime.Gosched()
			}
			row.after.Pins = w.openPins(t, root)
			b := w.mustAttach(t, second.Programs, row.after)
			for second.seen(t) < 1000 {
				runtime.Gosched()
			}
			close(stop)
			n := <-sent
			end := time.Now().Add(testutil.Patience) // some are under way
			for first.seen(t)+second.seen(t) < n && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			if got := first.seen(t) + second.seen(t); got != n {
				t.Errorf("of %d frames %d met a program", n, got)
			}
			w.finish(t, b.Close)
			before := first.seen(t) + second.seen(t)
			w.send(t, 10)
			if got := first.seen(t) + second.seen(t); got != before {
				t.Errorf("after Close %d frames met a program", got-before)
			}
			wantNothingPinned(t, row.after.Pins)
		})
	}
}

func wantNothingPinned(t *testing.T, p *pinned.Folder) {
	t.Helper()
	links, err := os.ReadDir(p.LinksDir())
	if err != nil || len(links) > 0 {
		t.Errorf("pinned links are left: %v, %v", links, err)
	}
	if names, err := p.Names(); err != nil || len(names) > 0 {
		t.Errorf("pins are left: %v, %v", names, err)
	}
}

// TestSuccessorInAnotherMode finds what its predecessor left in place, and takes
// it away once its own programs are there.
func TestSuccessorInAnotherMode(t *testing.T) {
	modes := map[string]Config{
		"XDP":    {Mode: fastpath.ModeXDP},
		"tcx":    {Mode: fastpath.ModeTC},
		"clsact": {Mode: fastpath.ModeTC, Classic: true},
	}
	for from, before := range modes {
		for to, after := range modes {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				root := fastpathtest.MountBPFFS(t)
				w := newWire(t)
				first, second := newCounter(t), newCounter(t)
				before.Pins = w.openPins(t, root)
				w.finish(t, w.mustAttach(t, first.Programs, before).Leave)
				before.Pins.Close()
				w.send(t, 5)
				if got := first.await(t, 5); got != 5 {
					t.Fatalf("the predecessor's program saw %d of 5 frames", got)
				}
				after.Pins = w.openPins(t, root)
				a := w.mustAttach(t, second.Programs, after)
				w.send(t, 5)
				if got := first.await(t, 5); got != 5 {
					t.Errorf("the predecessor's program still sees frames: %d", got-5)
				}
				if got := second.await(t, 5); got != 5 {
					t.Errorf("the successor's program saw %d of 5 frames", got)
				}
				w.finish(t, a.Close)
				wantNothingPinned(t, after.Pins)
			})
		}
	}
}

// TestSuccessorDropsUnwantedDevices names fewer devices than the predecessor.
func TestSuccessorDropsUnwantedDevices(t *testing.T) {
	for _, classic := range []bool{false, true} {
		root := fastpathtest.MountBPFFS(t)
		w := newWire(t)
		w.Near.Do(t, func() error {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "second"}, PeerName: "peer"}); err != nil {
				return err
			}
			return fastpathtest.Up("second")
		})
		first, second := newCounter(t), newCounter(t)
		o := Config{Mode: fastpath.ModeTC, Classic: classic, Pins: w.openPins(t, root), Devices: []string{"port", "second"}}
		w.finish(t, w.mustAttach(t, first.Programs, o).Leave)
		o.Pins.Close()
		o.Pins, o.Devices = w.openPins(t, root), []string{"second"}
		w.mustAttach(t, second.Programs, o)
		w.send(t, 5)
		if got := first.seen(t) + second.seen(t); got != 0 {
			t.Errorf("classic %t: %d frames of a device that is no longer wanted met a program", classic, got)
		}
	}
}

// TestFailedSuccessorLeavesNothing detaches what the predecessor left, since
// no one looks after it any more.
func TestFailedSuccessorLeavesNothing(t *testing.T) {
	for _, classic := range []bool{false, true} {
		root := fastpathtest.MountBPFFS(t)
		w := newWire(t)
		c := newCounter(t)
		o := Config{Mode: fastpath.ModeTC, Classic: classic, Pins: w.openPins(t, root)}
		w.finish(t, w.mustAttach(t, c.Programs, o).Leave)
		o.Pins.Close()
		o.Pins, o.Devices = w.openPins(t, root), []string{"port", "nowhere"}
		_, err := w.attach(t, c.Programs, o)
		fastpathtest.WantWords(t, err, "nowhere")
		w.send(t, 5)
		if got := c.seen(t); got != 0 {
			t.Errorf("classic %t: %d frames met a program", classic, got)
		}
		wantNothingPinned(t, o.Pins)
	}
}

// TestLeaveWithoutPinsDetaches: without pins no one could take over.
func TestLeaveWithoutPinsDetaches(t *testing.T) {
	w := newWire(t)
	c := newCounter(t)
	for _, o := range []Config{{Mode: fastpath.ModeTC}, {Mode: fastpath.ModeTC, Classic: true}, {Mode: fastpath.ModeXDP}} {
		before := c.seen(t)
		w.finish(t, w.mustAttach(t, c.Programs, o).Leave)
		w.send(t, 5)
		if got := c.seen(t); got != before {
			t.Errorf("%s, classic %t: %d frames met a program", o.Mode, o.Classic, got-before)
		}
	}
}

// TestPredecessorsDeviceIsGone leaves a link whose device vanishes meanwhile.
func TestPredecessorsDeviceIsGone(t *testing.T) {
	for _, o := range []Config{{Mode: fastpath.ModeTC}, {Mode: fastpath.ModeTC, Classic: true}, {Mode: fastpath.ModeXDP}} {
		root := fastpathtest.MountBPFFS(t)
		w := newWire(t)
		c := newCounter(t)
		o.Pins = w.openPins(t, root)
		w.finish(t, w.mustAttach(t, c.Programs, o).Leave)
		o.Pins.Close()
		w.Near.Do(t, func() error {
			l, err := netlink.LinkByName("port")
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		})
		w.Plug(t)
		o.Pins = w.openPins(t, root)
		a := w.mustAttach(t, c.Programs, o)
		w.send(t, 5)
		if got := c.await(t, 5); got != 5 {
			t.Errorf("%s, classic %t: the program saw %d of 5 frames", o.Mode, o.Classic, got)
		}
		w.finish(t, a.Close)
		wantNothingPinned(t, o.Pins)
	}
}

// TestDetachLeft is for a successor that keeps to the engine.
func TestDetachLeft(t *testing.T) {
	for _, row := range everyHook {
		t.Run(row.name, func(t *testing.T) {
			root := fastpathtest.MountBPFFS(t)
			w := newWire(t)
			c := newCounter(t)
			o := row.config
			o.Name, o.Pins = "test", w.openPins(t, root)
			w.finish(t, w.mustAttach(t, c.Programs, o).Leave)
			o.Pins.Close()
			o.Pins = w.openPins(t, root)
			w.finish(t, func() error { return DetachLeft(o) })
			w.send(t, 5)
			if got := c.seen(t); got != 0 {
				t.Errorf("%d frames met a program that nobody looks after", got)
			}
			wantNothingPinned(t, o.Pins)
			w.finish(t, func() error { return DetachLeft(o) })
		})
	}
}

// TestRemovedPinsDetach removes the pins of a process that is gone, by whoever
// starts in its place or cleans up.
func TestRemovedPinsDetach(t *testing.T) {
	removals := map[string]func(root string) error{
		"pins": func(root string) error {
			p, err := pinned.OpenAt(root, "test")
			if err != nil {
				return err
			}
			return p.Remove()
		},
		"contents": func(root string) error {
			p, err := pinned.OpenAt(root, "test")
			if err != nil {
				return err
			}
			return errors.Join(p.Clear(), p.Close())
		},
		"leftover": func(root string) error {
			left, err := pinned.LeftoversAt(root)
			if err != nil || len(left) != 1 {
				return fmt.Errorf("leftovers are %v, %w", left, err)
			}
			return left[0].Remove()
		},
	}
	for _, row := range everyHook {
		for how, remove := range removals {
			t.Run(row.name+" by "+how, func(t *testing.T) {
				root := fastpathtest.MountBPFFS(t)
				w := newWire(t)
				c := newCounter(t)
				o := row.config
				o.Pins = w.openPins(t, root)
				a := w.mustAttach(t, c.Programs, o)
				index := only(t, a).Index
				w.finish(t, a.Leave)
				o.Pins.Close()
				w.finish(t, func() error { return remove(root) })
				w.Near.Do(t, func() error {
					d, err := deviceAt(index)
					if err != nil {
						return err
					}
					// Unpinning drops the last reference, and the kernel detaches in
					// its own time.
					for d.look(nobody); d.xdp != nil || len(d.ingress) > 0; d.look(nobody) {
						if d, err = deviceAt(index); err != nil {
							return err
						}
					}
					if kind := qdiscKind(index); kind != "" {
						t.Errorf("a qdisc of the kind %s was left", kind)
					}
					return nil
				})
			})
		}
	}
}
