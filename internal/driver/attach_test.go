// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// table is one without memory, but for the places of devices, of which there are few.
type table struct {
	programs fastpath.Programs
	devices  [8]fastpath.Device
	beats    chan struct{} // nil: nobody counts
}

func (t *table) Beat(time.Duration) {
	if t.beats != nil {
		t.beats <- struct{}{}
	}
}

func (t *table) Devices() (list []int) {
	for _, d := range t.devices {
		if d.Index != 0 {
			list = append(list, d.Index)
		}
	}
	return list
}

func (t *table) SetDevice(d fastpath.Device) error {
	slot := &t.devices[d.Index%len(t.devices)]
	if slot.Index != 0 && slot.Index != d.Index {
		return fmt.Errorf("%d has the place of %d", slot.Index, d.Index)
	}
	*slot = d
	return nil
}

func (t *table) RemoveDevice(index int) {
	if slot := &t.devices[index%len(t.devices)]; slot.Index == index {
		*slot = fastpath.Device{}
	}
}

func (t *table) Programs() fastpath.Programs           { return t.programs }
func (*table) Trace(every, perSecond int)              {}
func (*table) Samples() (*ringbuf.Reader, error)       { return nil, nil }
func (*table) Reason(uint8) string                     { return "" }
func (*table) Counters() ([]fastpath.Counter, error)   { return nil, nil }
func (*table) Close() error                            { return nil }
func (*table) Bump()                                   {}
func (*table) Routes4() []byte                         { return nil }
func (*table) Neighbours() ([]fastpath.NextHop, error) { return nil, nil }
func (*table) Adopted() bool                           { return false }
func (*table) Unpin() error                            { return nil }

// Two problems that stay are two lines of the log, however often the driver looks.
func TestProblemsThatStayAreLoggedOnce(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeTC, fastpath.ModeOff} {
		t.Run(string(mode), func(t *testing.T) {
			var log bytes.Buffer
			f := New(Role{
				Name: "test", Steer: func() *Steering { return new(Steering) },
			}, Config{Mode: mode, Devices: []string{"missing"}}, slog.New(slog.NewTextHandler(&log, nil)))
			f.table = new(table)
			f.settle()
			if n := bytes.Count(log.Bytes(), []byte("\n")); n < 2 {
				t.Errorf("%d lines at first:\n%s", n, &log)
			}
			log.Reset()
			f.settle()
			f.settle()
			if log.Len() > 0 {
				t.Errorf("said again:\n%s", &log)
			}
		})
	}
}

// A device may come with the place of one that goes at the same time.
func TestDeviceTakesThePlaceOfOneThatIsGone(t *testing.T) {
	testutil.NewNetns(t).Do(t, func() error {
		host, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer host.Abandon()
		f := New(Role{Name: "test"}, Config{}, slog.New(slog.DiscardHandler))
		programs := new(table)
		f.table, f.forward, f.host = programs, programs, host
		for _, index := range []int{10, 18, 26} {
			device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port", Index: index, MTU: 1400}, PeerName: "host"}
			if err := netlink.LinkAdd(device); err != nil {
				return err
			}
			f.retargetTo([]attach.DeviceReport{{Device: "port", Index: index, Hook: attach.HookTCX, MTU: 1400, Target: true}})
			if got := programs.Devices(); !slices.Equal(got, []int{index}) || programs.devices[index%8].MTU != 1400 {
				t.Errorf("with device %d programs know %v: %+v", index, got, programs.devices)
			}
			if len(f.slow) > 0 {
				t.Errorf("with device %d: %v", index, f.slow)
			}
			if err := netlink.LinkDel(device); err != nil {
				return err
			}
		}
		return nil
	})
}

// passing is a program for tc that lets all pass.
func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// takeAway takes what is at tc ingress of a device from it, and returns how many programs these
// were.
func takeAway(index int) (int, error) {
	if probe.LacksTCX() {
		filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, netlink.HANDLE_MIN_INGRESS)
		return len(filters), errors.Join(err, netlink.QdiscDel(pinned.Clsact(index)))
	}
	r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return 0, err
	}
	for _, p := range r.Programs {
		id, _ := p.LinkID()
		l, err := link.NewFromID(id)
		if err != nil {
			return 0, err
		}
		err = l.Detach()
		l.Close()
		if err != nil {
			return 0, err
		}
	}
	return len(r.Programs), nil
}

// Programs that somebody else takes from devices, theirs and the steering's, are put back at the
// next look, which no change of a link need cause.
func TestProgramsThatOthersTakeComeBack(t *testing.T) {
	for _, row := range []struct {
		mode fastpath.Mode
		want int
	}{{fastpath.ModeTC, 2}, {fastpath.ModeOff, 1}} {
		t.Run(string(row.mode), func(t *testing.T) {
			w := fastpathtest.NewWire(t)
			steering := &Steering{fastpath.Programs{Ingress: passing(t)}}
			programs := &table{programs: fastpath.Programs{Ingress: passing(t)}}
			w.Near.Do(t, func() error {
				port, err := netlink.LinkByName("port")
				if err != nil {
					return err
				}
				var log bytes.Buffer
				f := New(Role{
					Name: "test", Steer: func() *Steering { return steering },
				}, Config{Mode: row.mode}, slog.New(slog.NewTextHandler(&log, nil)))
				f.table = programs
				defer f.Close()
				for range 3 {
					log.Reset()
					f.settle()
					if n, err := takeAway(port.Attrs().Index); err != nil || n != row.want {
						t.Errorf("%d programs were there, want %d: %v\n%s", n, row.want, err, &log)
					}
				}
				if n := bytes.Count(log.Bytes(), []byte("somebody has taken")); n != 1 {
					t.Errorf("said %d times:\n%s", n, &log)
				}
				return nil
			})
		})
	}
}
