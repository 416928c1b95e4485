// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// passingXDP is a program for XDP that lets all pass, and takes no frames in several pieces.
func passingXDP(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestRefusalDisturbsNoOtherDevice has one of two devices refuse the program only when it comes: the
// other gets and loses it once, however often the driver looks, until something changes.
//
//	good ---- peer0        wide (9000) ---- peer1 (9000)
func TestRefusalDisturbsNoOtherDevice(t *testing.T) {
	testutil.NewNetns(t).Do(t, func() error {
		for peer, v := range map[string]*netlink.Veth{
			"peer0": {LinkAttrs: netlink.LinkAttrs{Name: "good", MTU: 1500}, PeerName: "peer0"},
			"peer1": {LinkAttrs: netlink.LinkAttrs{Name: "wide", MTU: 9000}, PeerName: "peer1", PeerMTU: 9000},
		} {
			if err := netlink.LinkAdd(v); err != nil {
				return err
			}
			for _, name := range []string{v.Name, peer} {
				if err := fastpathtest.Up(name); err != nil {
					return err
				}
			}
		}
		host, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer host.Abandon()
		f := New(Role{Name: "test"}, Config{Mode: fastpath.ModeXDP, Devices: []string{"good", "wide"}}, slog.New(slog.DiscardHandler))
		programs := &table{programs: fastpath.Programs{XDP: passingXDP(t)}}
		f.table, f.host = programs, host
		tries := 0
		f.attachAll = func(p fastpath.Programs, as attach.Config) (*attach.Attachment, error) {
			tries++
			return attach.Attach(p, as)
		}
		defer f.Close()
		looks := func(what string, want int, attached bool) {
			for range 3 {
				f.LinksChanged() // as an event does, of whatever device
				f.settle()
			}
			if tries != want || (f.attachment != nil) != attached {
				t.Errorf("%s: %d tries, want %d; attached %t, want %t: %s", what, tries, want, f.attachment != nil, attached, f.Status().Why)
			}
		}
		looks("refused", 1, false)
		peer, err := netlink.LinkByName("peer1")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(peer, 8000); err != nil { // not of the device itself
			return err
		}
		looks("where another device changed", 1, false)
		f.Configure(Config{Mode: fastpath.ModeXDP, Devices: []string{"good"}})
		looks("without it", 2, true)
		f.Configure(Config{Mode: fastpath.ModeXDP, Devices: []string{"good", "wide"}})
		looks("with it again", 3, false)
		f.Configure(Config{Mode: fastpath.ModeXDP, Devices: []string{"good", "missing"}})
		looks("where a plan refuses it, which touches no device", 6, false)
		f.Configure(Config{Mode: fastpath.ModeXDP, Devices: []string{"good", "wide"}})
		looks("with it once more", 7, false)
		wide, err := netlink.LinkByName("wide")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(peer, 1500); err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(wide, 1500); err != nil {
			return err
		}
		looks("where it takes the program", 8, true)
		return nil
	})
}

// TestRefusalWaits has attaching fail until the longest wait. After a change of the devices the
// first wait is that of a first failure.
func TestRefusalWaits(t *testing.T) {
	var r refusal
	now := time.Unix(1_800_000_000, 0)
	refused := errors.New("refused")
	fail := func(devices []deviceState, want time.Duration) {
		t.Helper()
		r.note(attach.Config{Mode: fastpath.ModeTC}, devices, refused, now)
		if wait := r.trouble.Wait(now); wait != want {
			t.Errorf("it waits %v, want %v", wait, want)
		}
		now = now.Add(want)
	}
	testutil.NewNetns(t).Do(t, func() error {
		for _, want := range []time.Duration{10, 20, 40, 60, 60} {
			fail([]deviceState{{index: 1}}, want*time.Second)
		}
		fail([]deviceState{{index: 1, mtu: 1500}}, 10*time.Second)
		fail([]deviceState{{index: 1, mtu: 1500}}, 20*time.Second)
		fail([]deviceState{{index: 1}}, 10*time.Second)
		return nil
	})
}
