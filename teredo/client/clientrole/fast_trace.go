// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"sync"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Trace implements [role.Tracer]: it shows the packets of both paths.
func (c *Client) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	f := c.dev.fast
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
	group.Go(func() error { return c.loop.Trace(ctx, c.name, sampling, one) })
	group.Go(func() error { return f.trace(ctx, sampling, one) })
	return group.Wait()
}

// trace shows what the programs see, until ctx is done.
func (f *fastPath) trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	reader, reason, err := f.sample(sampling)
	if reader == nil {
		if err == nil {
			<-ctx.Done() // there are no programs
		}
		return err
	}
	defer f.endSamples()
	return driver.ReadSamples(ctx, reader, f.cfg.Name, f.deviceName, reason, emit)
}

// sample has the programs sample packets; the reader is nil when there are none.
func (f *fastPath) sample(sampling trace.Sampling) (reader *ringbuf.Reader, reason func(uint8) string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.host == nil {
		return nil, nil, nil
	}
	reader, err = f.host.Samples()
	if err == nil {
		f.host.Trace(sampling.Every, sampling.PerSecond)
	}
	return reader, f.host.Reason, err
}

func (f *fastPath) endSamples() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.host != nil {
		f.host.Trace(0, 0)
	}
}

// deviceName names a device of the fast path.
func (f *fastPath) deviceName(index int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, ok := f.devices[index]; ok {
		return name
	}
	return f.cfg.Interface // what remains is the TUN device
}
