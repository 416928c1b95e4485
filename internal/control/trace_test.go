// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// Trace shows a packet from each of two hosts, again and again, but no more than a reader
// that gets no time for a while can still have.
func (s *source) Trace(ctx context.Context, instance string, asked trace.Sampling, emit func(*trace.Sample)) error {
	if instance != "" && instance != "live" {
		return fmt.Errorf("%w: %q", ErrNoInstance, instance)
	}
	for range traceQueue / 2 {
		for _, host := range []string{"2001:db8::1", "2001:db8::2"} {
			emit(tracedFrom(host, asked))
		}
	}
	<-ctx.Done()
	return nil
}

func tracedFrom(host string, asked trace.Sampling) *trace.Sample {
	from := netip.MustParseAddr(host)
	return &trace.Sample{
		Time: time.Unix(3, 4).UTC(), Instance: "live", Path: trace.Engine, Hook: "tun", Verdict: trace.Drop, Reason: "too_big",
		Link: trace.IP, Length: asked.Every, Data: packet.AppendIPv6Header(nil, packet.ProtoNone, 64, 0, from, from),
	}
}

func TestTrace(t *testing.T) {
	client := start(t, &source{})
	asked := TraceRequest{Instance: "live", Filter: "host 2001:db8::2", Sampling: trace.Sampling{Every: 3, PerSecond: 10}}
	enough := errors.New("enough")
	var got []*trace.Sample
	err := client.Trace(t.Context(), asked, func(s *trace.Sample) error {
		if got = append(got, s); len(got) == 3 {
			return enough
		}
		return nil
	}, func(n uint64) { t.Errorf("%d samples lost", n) })
	if err != enough {
		t.Fatalf("the trace ended with %v", err)
	}
	for _, s := range got {
		if diff := cmp.Diff(tracedFrom("2001:db8::2", asked.Sampling), s); diff != "" {
			t.Errorf("sample (-want +got):\n%s", diff)
		}
	}
}

func TestTraceRefusals(t *testing.T) {
	client := start(t, &source{})
	good := trace.Sampling{Every: 1, PerSecond: 1}
	for want, asked := range map[string]TraceRequest{
		`no such instance: "dead"`: {Instance: "dead", Sampling: good},
		`"nonsense" is no word of a filter: isthmus trace --help shows those that are`: {Filter: "nonsense", Sampling: good},
		"every 0-th packet cannot be taken: write a number from 1 to 16777216":         {Sampling: trace.Sampling{PerSecond: 1}},
		"1000000 samples a second cannot be had: write a number from 1 to 100000":      {Sampling: trace.Sampling{Every: 1, PerSecond: 1_000_000}},
	} {
		err := client.Trace(t.Context(), asked, func(*trace.Sample) error { return nil }, func(uint64) {})
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestTraceEnds has a trace end with its reader, and with the server.
func TestTraceEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := start(t, &source{}).Trace(ctx, TraceRequest{Sampling: trace.Sampling{Every: 1, PerSecond: 1}},
		func(*trace.Sample) error { cancel(); return nil }, func(uint64) {})
	if err != nil {
		t.Errorf("an interrupted trace ended with %v", err)
	}

	path := filepath.Join(t.TempDir(), "control.sock")
	listener, err := Listen(path, 0o600, "")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(&source{})
	go func() { _ = server.Serve(listener) }()
	begun := make(chan struct{}, 1<<16)
	ended := make(chan error)
	go func() {
		ended <- NewClient(path).Trace(t.Context(), TraceRequest{Sampling: trace.Sampling{Every: 1, PerSecond: 1}},
			func(*trace.Sample) error { begun <- struct{}{}; return nil }, func(uint64) {})
	}()
	<-begun
	// Without the end of the trace this would wait for the whole test's time.
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the reader was not told that the daemon had stopped")
	}
}
