// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Limits of a [Generator].
const (
	// MaxLanes is how many streams one run can mix.
	MaxLanes = len(generatorSettings{}.Lanes)
	// MaxSchedule is the sum of the shares of all lanes of a run.
	MaxSchedule = len(generatorSettings{}.Schedule)
	// liveBatch is how many frames are sent together in a flood, and pacedBatch
	// how many at a stated rate, which shall not come in bursts.
	liveBatch  = 64
	pacedBatch = 8
	// flat is more than any core sends, in frames per second.
	flat = 16e6
)

// Peer is what differs between the frames of a [Lane].
type Peer struct {
	// Client is the inner IPv6 address of the client.
	Client [16]byte
	// IP and Port are where a tunnelled frame of the client comes from, and the
	// client of an IPv4 frame. With Ports they are the client's in any frame.
	IP   [4]byte
	Port [2]byte
	// Net replaces the third group of the other inner address unless it is 0.
	Net [2]byte
	// Far replaces the last four octets of the other address, of an IPv4 frame too,
	// unless it is 0.
	Far [4]byte
	_   [4]byte
}

// Lane is one stream of frames of a run.
type Lane struct {
	// Frame is one frame of it, as Frame6 or Frame4 make it around Packet, or an
	// IPv4 or IPv6 packet of TCP or UDP, at least 60 bytes of frame.
	Frame []byte
	// ToClient says that clients are the inner destination, not the source.
	ToClient bool
	// Ports has the client's port come from the table.
	Ports bool
	// Target is the device to send by, as Target numbered it.
	Target int
	// First and Count choose the entries of the table, which are taken in order,
	// over and over; Start is the one of them to start with.
	First, Count, Start int
	// Share is how many of each round of frames belong to the lane, 1 if 0.
	Share int
}

// Pace is how fast and how long to send.
type Pace struct {
	// Rate in frames per second over all lanes; 0 is as fast as can be.
	Rate float64
	// Time of the run.
	Time time.Duration
	// Batch is how many frames are sent together; if 0, 8 at a stated rate and 64
	// without one, which is the most.
	Batch int
	// Slack is how much delay the generator makes up, if it was kept waiting, by
	// sending faster: none changes the load least, much keeps the rate best.
	Slack time.Duration
}

// Sent is what a run sent.
type Sent struct {
	// Frames by lane. Those that the device had no room for are among them.
	Frames []uint64
	// Took is the time that the frames are for, up to when the next batch would have been
	// due. The last one left at End by the kernel's clock (CLOCK_MONOTONIC).
	Took, End time.Duration
}

// All is the number of frames of all lanes.
func (s Sent) All() (n uint64) {
	for _, f := range s.Frames {
		n += f
	}
	return n
}

// Rate is the frames per second of all lanes.
func (s Sent) Rate() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.All()) / s.Took.Seconds()
}

// Generator sends frames by the kernel's live test run of an XDP program: some
// two million a second by one core, each with headers of its own. Their far end
// needs NAPI, by an XDP program or GRO. It is not safe for concurrent use, but
// for Stop.
type Generator struct {
	objects generatorObjects
	memory  []byte
	anchor  link.Link

	stopped atomic.Bool // by Stop, in the present run
	mu      sync.Mutex
	running *generatorSettings // nil between runs
}

// NewGenerator loads a generator with room for so many peers. It needs root.
func NewGenerator(peers int) (*Generator, error) {
	spec, err := loadGenerator()
	if err != nil {
		return nil, err
	}
	spec.Maps["table"].MaxEntries = uint32(peers)
	g := &Generator{}
	if err := spec.LoadAndAssign(&g.objects, nil); err != nil {
		return nil, fmt.Errorf("the generator cannot be loaded, which needs root and Linux 5.18: %w", err)
	}
	size := peers * int(unsafe.Sizeof(Peer{}))
	if g.memory, err = mapped(g.objects.Table, size); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// mapped maps the values of an array into memory.
func mapped(m *ebpf.Map, size int) ([]byte, error) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("an eBPF array cannot be mapped: %w", err)
	}
	return b[:size], nil
}

// unmap ends a mapping.
func unmap(b []byte) error { return unix.Munmap(b[:cap(b)]) }

// Close frees what the generator holds.
func (g *Generator) Close() error {
	var errs []error
	if g.anchor != nil {
		errs = append(errs, g.anchor.Close())
	}
	if g.memory != nil {
		errs = append(errs, unmap(g.memory))
	}
	return errors.Join(append(errs, g.objects.Close())...)
}

// Peers is the table, to be filled before a run.
func (g *Generator) Peers() []Peer {
	return unsafe.Slice((*Peer)(unsafe.Pointer(&g.memory[0])), len(g.memory)/int(unsafe.Sizeof(Peer{})))
}

// Target makes an interface of the calling thread's network namespace the
// target of that number.
func (g *Generator) Target(number int, iface string) error {
	return setTarget(g.objects.Targets, number, iface)
}

// setTarget puts an interface of the calling thread's network namespace into a map of
// targets.
func setTarget(targets *ebpf.Map, number int, iface string) error {
	device, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	if err := targets.Put(uint32(number), uint32(device.Index)); err != nil {
		return fmt.Errorf("interface %s cannot be a target: %w", iface, err)
	}
	return nil
}

// Anchor attaches the program to a veth of the calling thread's network
// namespace that nothing is sent to. The kernel need not make it known to its XDP
// code then at the begin of each run and unknown at the end, which takes some 25
// milliseconds.
func (g *Generator) Anchor(iface string) (err error) {
	g.anchor, err = attachXDP(g.objects.Generator, iface)
	return err
}

// attachXDP attaches a program to an interface of the calling thread's network namespace.
func attachXDP(program *ebpf.Program, iface string) (link.Link, error) {
	device, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", iface, err)
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: device.Index, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be attached to %s by XDP: %w", program, iface, err)
	}
	return l, nil
}

// attempts is how often a run is begun that the machine has kept from its CPU.
const attempts = 20

// Run sends until the time is over, on the CPU of the calling thread, which it
// keeps busy. Call it from a goroutine that is locked to its thread. A run that was
// put aside for all its time, after a first batch, is begun again; those batches are
// among the frames.
func (g *Generator) Run(lanes []Lane, pace Pace) (sent Sent, err error) {
	g.stopped.Store(false)
	before := make([]uint64, len(lanes))
	for try := range attempts {
		if try >= attempts/2 {
			pace.Time *= 2 // short runs are not for this machine
		}
		sent, err = g.run(lanes, pace)
		for i := range sent.Frames {
			sent.Frames[i] += before[i]
		}
		if err != nil || sent.Took > 0 || g.stopped.Load() {
			break
		}
		before = sent.Frames
	}
	return sent, err
}

func (g *Generator) run(lanes []Lane, pace Pace) (Sent, error) {
	settings, longest, err := compose(lanes, pace)
	if err != nil {
		return Sent{}, err
	}
	progress := &generatorProgress{}
	for i, l := range lanes {
		progress.Cursor[i] = uint32(l.Start)
	}
	if err := errors.Join(g.objects.RunSettings.Put(uint32(0), settings), g.objects.RunProgress.Put(uint32(0), progress)); err != nil {
		return Sent{}, fmt.Errorf("the generator cannot be set up: %w", err)
	}
	rate := pace.Rate
	if rate == 0 {
		rate = flat
	}
	frames := uint32(math.Ceil(rate*pace.Time.Seconds())) + settings.Batch
	g.setRunning(settings)
	defer g.setRunning(nil)
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = liveRun(g.objects.Generator.FD(), longest, frames, settings.Batch)
	}
	if err != nil {
		return Sent{}, fmt.Errorf("the generator cannot run, which needs Linux 5.18: %w", err)
	}
	if err := g.objects.RunProgress.Lookup(uint32(0), progress); err != nil {
		return Sent{}, err
	}
	sent := Sent{Frames: progress.Sent[:len(lanes)], End: time.Duration(progress.End)}
	if all := sent.All(); all > uint64(settings.Batch) {
		batches := float64(all) / float64(settings.Batch)
		sent.Took = time.Duration(float64(progress.End-progress.Begin) * batches / (batches - 1))
	}
	return sent, nil
}

func (g *Generator) setRunning(s *generatorSettings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = s
}

// Stop ends a run of another goroutine before its time, if there is one.
func (g *Generator) Stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		return nil
	}
	g.stopped.Store(true)
	g.running.Length = 0
	return g.objects.RunSettings.Put(uint32(0), g.running)
}

// testRun is the part of union bpf_attr for BPF_PROG_TEST_RUN (linux/bpf.h).
type testRun struct {
	program, result       uint32
	inSize, outSize       uint32
	in, out               uint64
	repeat, duration      uint32
	inContext, outContext uint32
	contextIn, contextOut uint64
	flags, processor      uint32
	batch, _              uint32
	_                     uint64
}

// liveRun makes the kernel run a program on so many frames, and do with each what
// the program says.
func liveRun(program int, data []byte, frames, batch uint32) error {
	const command = 10 // BPF_PROG_TEST_RUN
	attr := testRun{
		program: uint32(program), inSize: uint32(len(data)), in: uint64(uintptr(unsafe.Pointer(&data[0]))),
		repeat: frames, flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, batch: batch,
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attr)), unsafe.Offsetof(attr.batch)+4)
	runtime.KeepAlive(data)
	if errno != 0 {
		return errno
	}
	return nil
}
