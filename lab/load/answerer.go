// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Answerer accepts and closes every TCP connection to the discard port of an IPv4
// host, and counts what of its answers comes back to an IPv6 host, which hears
// nothing of them. It keeps no state, so that it outruns whatever is between.
type Answerer struct {
	arrivals // of answers
	objects  answerObjects
	links    []io.Closer
}

// Answers is what an [Answerer] has seen.
type Answers struct {
	SYN, FIN         uint64 // at the host that answers
	SYNBack, FINBack uint64 // answers where they arrive
}

// NewAnswerer loads one. It needs root.
func NewAnswerer() (*Answerer, error) {
	spec, err := loadAnswer()
	if err == nil {
		err = roomForArrivals(spec)
	}
	a := &Answerer{}
	if err == nil {
		err = spec.LoadAndAssign(&a.objects, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("the answering host cannot be loaded, which needs root: %w", err)
	}
	if a.arrivals, err = openArrivals(a.objects.Arrivals, a.objects.Times); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close takes it away.
func (a *Answerer) Close() error {
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, a.arrivals.close(), a.objects.Close())...)
}

// Answer has it answer at an interface of the calling thread's network namespace.
func (a *Answerer) Answer(iface string, hook Hook) error {
	return a.attach(iface, hook, a.objects.AnswerTc, a.objects.AnswerXdp)
}

// Listen has it count answers at an interface of the calling thread's network
// namespace.
func (a *Answerer) Listen(iface string, hook Hook) error {
	return a.attach(iface, hook, a.objects.AnsweredTc, a.objects.AnsweredXdp)
}

func (a *Answerer) attach(iface string, hook Hook, tc, xdp *ebpf.Program) error {
	device, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	var l link.Link
	if hook == HookXDP {
		l, err = link.AttachXDP(link.XDPOptions{Program: xdp, Interface: device.Index, Flags: link.XDPDriverMode})
	} else {
		l, err = link.AttachTCX(link.TCXOptions{Program: tc, Interface: device.Index, Attach: ebpf.AttachTCXIngress})
	}
	if err != nil {
		return fmt.Errorf("the answering host cannot be attached to %s: %w", iface, err)
	}
	a.links = append(a.links, l)
	return nil
}

// Count is what it has seen so far.
func (a *Answerer) Count() (n Answers, err error) {
	for kind, to := range map[answerAnswerKind]*uint64{
		answerAnswerKindANSWER_SYN: &n.SYN, answerAnswerKindANSWER_FIN: &n.FIN,
		answerAnswerKindANSWER_SYN_BACK: &n.SYNBack, answerAnswerKindANSWER_FIN_BACK: &n.FINBack,
	} {
		var perCPU []uint64
		if err := a.objects.Answers.Lookup(uint32(kind), &perCPU); err != nil {
			return n, fmt.Errorf("the counts of the answering host cannot be read: %w", err)
		}
		*to += sum(perCPU)
	}
	return n, nil
}

// Settle waits until nothing is answered any more, at most for patience, and returns
// the counts.
func (a *Answerer) Settle(patience time.Duration) (last Answers, err error) {
	_, err = settle(func() (uint64, error) {
		n, err := a.Count()
		last = n
		return n.SYN + n.FIN + n.SYNBack + n.FINBack, err
	}, patience)
	return last, err
}
