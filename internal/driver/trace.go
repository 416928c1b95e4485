// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Trace shows what the programs see beside what engine shows, which is a trace of the
// engine's packets, until ctx is done.
func (f *Driver) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample), engine func(context.Context, func(*trace.Sample)) error) error {
	if !f.traced.CompareAndSwap(false, true) {
		return trace.ErrBusy
	}
	defer f.traced.Store(false)
	var mu sync.Mutex
	one := func(s *trace.Sample) {
		mu.Lock()
		defer mu.Unlock()
		emit(s)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return engine(ctx, one) })
	group.Go(func() error { return f.trace(ctx, sampling, one) })
	return group.Wait()
}

// trace shows what the programs see, until ctx is done.
func (f *Driver) trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	reader, reason, err := f.sample(sampling)
	if reader == nil {
		if err == nil {
			<-ctx.Done() // there are no programs
		}
		return err
	}
	defer f.endSamples()
	defer reader.Close()
	defer context.AfterFunc(ctx, func() { _ = reader.Close() })()
	var record ringbuf.Record
	for {
		err := reader.ReadInto(&record)
		if errors.Is(err, ringbuf.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		s, err := fastpath.ParseSample(record.RawSample)
		if err != nil {
			return err
		}
		emit(&trace.Sample{
			Time:     time.Now().Add(s.Time - fastpath.Monotonic()),
			Instance: f.role.Name, Path: trace.Fast, Hook: hookWord(s.Place), Device: f.deviceName(s.Ifindex),
			Verdict: trace.Verdict(s.Verdict.String()), Reason: reason(s.Reason),
			Link: linkOf(s.Place), Length: s.Length, Data: s.Data,
		})
	}
}

// linkOf reports what samples of a place begin with: a TUN device has no Ethernet
// header.
func linkOf(p fastpath.Place) trace.Link {
	if p == fastpath.PlaceEgress {
		return trace.IP
	}
	return trace.Ethernet
}

// sample has the programs sample packets; the reader is nil when there are none. reason
// has the words of their reasons.
func (f *Driver) sample(sampling trace.Sampling) (reader *ringbuf.Reader, reason func(uint8) string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table == nil {
		return nil, nil, nil
	}
	reader, err = f.table.Samples()
	if err == nil {
		f.table.Trace(sampling.Every, sampling.PerSecond)
	}
	return reader, f.table.Reason, err
}

func (f *Driver) endSamples() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table != nil {
		f.table.Trace(0, 0)
	}
}

// deviceName names a device of the fast path.
func (f *Driver) deviceName(index int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attachment != nil {
		for _, d := range f.attachment.Report() {
			if d.Index == index {
				return d.Device
			}
		}
	}
	return ""
}

// Attached returns the name of a device that programs are attached to, other than the
// instance's own. It locks.
func (f *Driver) Attached(index int) (name string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attachment == nil || index == f.tunnel.index {
		return "", false
	}
	for _, d := range f.attachment.Report() {
		if d.Index == index && d.Hook != attach.HookNone {
			return d.Device, true
		}
	}
	return "", false
}

// hookWord names the kind of hook.
func hookWord(p fastpath.Place) string {
	if p == fastpath.PlaceXDP {
		return "xdp"
	}
	return "tc"
}
