// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// redirect is an XDP program that redirects all into one device.
func redirect(t *testing.T, index int) fastpath.Programs {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "redirect", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(index)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return fastpath.Programs{XDP: p}
}

// addVeth makes a pair in the calling thread's namespace, and returns the end out.
func addVeth(gro bool) (netlink.Link, error) {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "in"}
	err := netlink.LinkAdd(pair)
	if err == nil {
		err = fastpathtest.Up("in")
	}
	if err == nil {
		err = testutil.ReceiveByNAPI("in", gro)
	}
	return pair, err
}

// TestLosses: devices that refuse what XDP redirects into them are found out, be it that
// the kernel knows, or that the driver alone does. One that sends is none of these.
func TestLosses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		add     func() (netlink.Link, error)
		refuses bool
	}{
		{"a veth whose far end has no NAPI", func() (netlink.Link, error) { return addVeth(false) }, true},
		{"a veth whose far end has one", func() (netlink.Link, error) { return addVeth(true) }, false},
		{"a tap that no one reads", func() (netlink.Link, error) {
			tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "out"}, Mode: netlink.TUNTAP_MODE_TAP}
			return tap, netlink.LinkAdd(tap)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t)
			var index int
			r, elsewhere := new(losses), new(losses)
			w.Near.Do(t, func() error {
				out, err := tt.add()
				if err != nil {
					return err
				}
				index = out.Attrs().Index
				r, err = watchLosses()
				return errors.Join(err, netlink.LinkSetUp(out))
			})
			t.Cleanup(func() { _ = r.close() })
			w.Far.Do(t, func() (err error) {
				elsewhere, err = watchLosses()
				return err
			})
			t.Cleanup(func() { _ = elsewhere.close() })
			if err := errors.Join(r.follow([]int{index}), elsewhere.follow([]int{index})); err != nil {
				t.Fatal(err)
			}
			w.mustAttach(t, redirect(t, index), Config{Mode: fastpath.ModeXDP, Devices: []string{"port"}})
			if tt.refuses {
				w.throw(t, 5)
				awaitLoss(t, r, index)
			} else {
				var tap int
				w.Near.Do(t, func() (err error) {
					tap, err = fastpathtest.PacketSocket("in")
					return err
				})
				defer unix.Close(tap)
				w.throw(t, 5)
				if got := frames(tap, 5); got != 5 {
					t.Errorf("%d of 5 frames were sent", got)
				}
				if found := r.fresh(); found != nil {
					t.Errorf("refused: %v", found)
				}
			}
			if found := elsewhere.fresh(); found != nil {
				t.Errorf("a device of the same number in another namespace refuses: %v", found)
			}
		})
	}
}

// awaitLoss waits until a device has refused a frame.
func awaitLoss(t *testing.T, r *losses, index int) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); r.fresh()[index] == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is refused")
		}
	}
}
