// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Trace implements [role.Tracer]: it shows the packets of both paths.
func (r *Relay) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	if !r.fast.traced.CompareAndSwap(false, true) {
		return trace.ErrBusy
	}
	defer r.fast.traced.Store(false)
	var mu sync.Mutex
	one := func(s *trace.Sample) {
		mu.Lock()
		defer mu.Unlock()
		emit(s)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.loop.Trace(ctx, r.name, sampling, one) })
	group.Go(func() error { return r.fast.trace(ctx, r.name, sampling, one) })
	return group.Wait()
}

// trace shows what the programs see, until ctx is done.
func (f *fast) trace(ctx context.Context, instance string, sampling trace.Sampling, emit func(*trace.Sample)) error {
	reader, err := f.sample(sampling)
	if reader == nil {
		if err == nil {
			<-ctx.Done() // there are no programs
		}
		return err
	}
	defer f.endSamples()
	return readSamples(ctx, reader, instance, f.deviceName, emit)
}

// readSamples hands samples of programs on, and closes their reader, when ctx is
// done.
func readSamples(ctx context.Context, reader *ringbuf.Reader, instance string, name func(index int) string, emit func(*trace.Sample)) error {
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
			Instance: instance, Path: trace.Fast, Hook: hookWord(s.Place), Device: name(s.Ifindex),
			Verdict: trace.Verdict(s.Verdict.String()), Reason: s.Reason.String(),
			Link: linkOf(s.Place), Length: s.Length, Data: s.Data,
		})
	}
}

// linkOf tells what samples of a place begin with: a TUN device has no Ethernet
// header.
func linkOf(p fastpath.Place) trace.Link {
	if p == fastpath.PlaceEgress {
		return trace.IP
	}
	return trace.Ethernet
}

// sample has the programs sample packets; the reader is nil when there are none.
func (f *fast) sample(sampling trace.Sampling) (*ringbuf.Reader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table == nil {
		return nil, nil
	}
	reader, err := f.table.Samples()
	if err == nil {
		f.table.Trace(sampling.Every, sampling.PerSecond)
	}
	return reader, err
}

func (f *fast) endSamples() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table != nil {
		f.table.Trace(0, 0)
	}
}

// deviceName names a device of the fast path.
func (f *fast) deviceName(index int) string {
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

// hookWord names the kind of hook.
func hookWord(p fastpath.Place) string {
	if p == fastpath.PlaceXDP {
		return "xdp"
	}
	return "tc"
}
