// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// headroom is what frames have in front of them beside what XDP wants: with less, a
// packet that a program at tc makes longer would be copied where XDP receives it.
const headroom = 64

// How far headers and number of a frame reach that can be probed with.
const (
	plainProbe  = etherLen + innerLen + len(marker) + 8
	tunnelProbe = plainProbe + outerLen
	gpduProbe   = tunnelProbe + gtpuLen
)

// Prober sends single frames by the kernel's live test run of an XDP program, numbered
// and stamped, as a network card's driver would hand them over: a packet of the host's
// own would have to be copied for XDP first. Their far end needs NAPI, by an XDP program
// or GRO. It is not safe for concurrent use.
type Prober struct {
	objects  probeObjects
	memory   []byte
	departed []uint64
	anchor   link.Link
}

// NewProber loads a prober. It needs root.
func NewProber() (*Prober, error) {
	p := &Prober{}
	if err := loadProbeObjects(&p.objects, nil); err != nil {
		return nil, fmt.Errorf("the prober cannot be loaded, which needs root and Linux 5.18: %w", err)
	}
	var err error
	if p.memory, err = mapped(p.objects.ProbeDeparted, MaxStamps*8); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.departed = words(p.memory, MaxStamps)
	return p, nil
}

// Close frees what the prober holds. Meters that it stamps for are closed before.
func (p *Prober) Close() error {
	var errs []error
	if p.anchor != nil {
		errs = append(errs, p.anchor.Close())
	}
	if p.memory != nil {
		errs = append(errs, unmap(p.memory))
	}
	return errors.Join(append(errs, p.objects.Close())...)
}

// Target makes an interface of the calling thread's network namespace the target of that
// number.
func (p *Prober) Target(number int, iface string) error {
	return setTarget(p.objects.ProbeTargets, number, iface)
}

// Anchor is that of a [Generator].
func (p *Prober) Anchor(iface string) (err error) {
	p.anchor, err = attachXDP(p.objects.Probe, iface)
	return err
}

// Probe sends n copies of a frame by a target, each with a number of its own that counts
// from first, one every gap, on the CPU of the calling thread, which it keeps busy. A
// relay or router that works in the kernel has done so before the next one leaves.
func (p *Prober) Probe(target int, frame []byte, first uint64, n int, gap time.Duration) error {
	s := probeProbeSettings{Room: headroom, Target: uint32(target), First: first, Interval: uint64(gap)}
	length := tagEnd(frame)
	if !slices.Contains([]int{plainProbe, tunnelProbe, gpduProbe}, length) {
		return errors.New("the frame is of a form that cannot be probed with")
	}
	s.Length = uint32(copy(s.Header[:], frame[:length]))
	if err := errors.Join(p.objects.ProbeSet.Put(uint32(0), s), p.objects.ProbeState.Put(uint32(0), probeProbeProgress{})); err != nil {
		return fmt.Errorf("the prober cannot be set up: %w", err)
	}
	page := append(make([]byte, headroom), frame...)
	for sent := 0; sent < n; {
		err := liveRun(p.objects.Probe.FD(), page, uint32(n-sent), 1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("the prober cannot run, which needs Linux 5.18: %w", err)
		}
		var now probeProbeProgress
		if err := p.objects.ProbeState.Lookup(uint32(0), &now); err != nil {
			return err
		}
		if err == nil && int(now.Sent) == sent {
			return errors.New("the prober sends nothing")
		}
		sent = int(now.Sent)
	}
	return nil
}
