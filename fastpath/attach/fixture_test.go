// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// wire is one with attachments.
type wire struct{ *fastpathtest.Wire }

func newWire(t *testing.T, options ...func(*netlink.Veth)) *wire {
	t.Helper()
	return &wire{fastpathtest.NewWire(t, options...)}
}

// send sends n Ethernet frames from the far end, and waits until they have come to the
// near one: a frame that passes XDP comes to a packet socket in front of tc.
func (w *wire) send(t *testing.T, n int) {
	t.Helper()
	var tap int
	w.Near.Do(t, func() (err error) {
		tap, err = fastpathtest.PacketSocket("port")
		return err
	})
	defer unix.Close(tap)
	w.throw(t, n)
	if got := frames(tap, n); got < n {
		t.Fatalf("%d of %d frames have come", got, n)
	}
}

// throw sends n frames from the far end, whatever becomes of them.
func (w *wire) throw(t *testing.T, n int) {
	t.Helper()
	w.Far.Do(t, func() error {
		l, err := net.InterfaceByName("host")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: l.Index}
		for range n {
			if err := unix.Sendto(fd, testFrame, 0, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// frames waits for n test frames at a packet socket, and returns how many came.
func frames(tap, n int) (got int) {
	buf := make([]byte, 2048)
	for end := time.Now().Add(testutil.Patience); got < n && time.Now().Before(end); {
		if m, _, err := unix.Recvfrom(tap, buf, 0); err == nil && slices.Equal(buf[:m], testFrame) {
			got++
		}
	}
	return got
}

// testFrame is a frame of a type that no host sends by itself (IEEE 802 local
// experimental), so that counts are exact.
var testFrame = append([]byte{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5,
}, make([]byte, 50)...)

// counter is a set of programs that count test frames and let them pass.
type counter struct {
	fastpath.Programs
	counts *ebpf.Map
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	c := &counter{counts: counts}
	c.XDP = c.load(t, ebpf.XDP, "count_xdp", 2) // XDP_PASS
	c.Ingress = c.load(t, ebpf.SchedCLS, "count_ingress", -1)
	c.HostIngress = c.load(t, ebpf.SchedCLS, "count_host", -1)
	c.Egress = c.load(t, ebpf.SchedCLS, "count_egress", -1)
	return c
}

func (c *counter) load(t *testing.T, kind ebpf.ProgramType, name string, verdict int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: kind, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			// Data and its end, of both kinds of context.
			asm.LoadMem(asm.R2, asm.R1, dataOffset(kind), asm.Word),
			asm.LoadMem(asm.R3, asm.R1, dataOffset(kind)+4, asm.Word),
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, 14),
			asm.JGT.Reg(asm.R4, asm.R3, "out"),
			asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
			asm.JNE.Imm(asm.R5, 0xb588, "out"), // 0x88b5 in memory order
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, c.counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// dataOffset is where struct xdp_md and struct __sk_buff hold their data.
func dataOffset(kind ebpf.ProgramType) int16 {
	if kind == ebpf.XDP {
		return 0
	}
	return 76
}

// await returns how many test frames met one of the programs once these are as many as
// wanted: at tc the last frame may be on its way to them.
func (c *counter) await(t *testing.T, want uint64) (n uint64) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		if n = c.seen(t); n >= want || time.Now().After(end) {
			return n
		}
	}
}

// seen returns how many test frames met one of the programs.
func (c *counter) seen(t *testing.T) uint64 {
	t.Helper()
	var n uint64
	if err := c.counts.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// attach attaches in the near namespace and detaches with the test.
func (w *wire) attach(t *testing.T, p fastpath.Programs, o Config) (*Attachment, error) {
	t.Helper()
	if o.Name == "" {
		o.Name = "test"
	}
	var a *Attachment
	var err error
	w.Near.Do(t, func() error {
		a, err = Attach(p, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { w.finish(t, a.Close) })
	return a, nil
}

func (w *wire) mustAttach(t *testing.T, p fastpath.Programs, o Config) *Attachment {
	t.Helper()
	a, err := w.attach(t, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// finish ends an attachment in its namespace.
func (w *wire) finish(t *testing.T, end func() error) {
	t.Helper()
	w.Near.Do(t, end)
}

// hookTC is what tc means on this kernel.
func hookTC() Hook {
	if probe.LacksTCX() {
		return HookClassic
	}
	return HookTCX
}

// only returns the report of the one device.
func only(t *testing.T, a *Attachment) DeviceReport {
	t.Helper()
	r := a.Report()
	if len(r) != 1 {
		t.Fatalf("the report has %d devices, want 1: %+v", len(r), r)
	}
	return r[0]
}

// openPins opens pins of the near namespace.
func (w *wire) openPins(t *testing.T, root string) *pinned.Folder {
	t.Helper()
	var p *pinned.Folder
	w.Near.Do(t, func() (err error) {
		p, err = pinned.OpenAt(root, "test")
		return err
	})
	return p
}
