// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// TestEventLog writes events in their order: at once before it runs, then apart, and all that
// wait before it ends; what a slow writer leaves no room for is counted.
func TestEventLog(t *testing.T) {
	var mu sync.Mutex
	var got []int
	slow := make(chan struct{})
	l := &EventLog[int]{Write: func(n *int) {
		if *n == 1 {
			<-slow
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, *n)
	}}
	l.Add(0)
	if len(got) != 1 {
		t.Errorf("%v was written before it runs", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { l.Run(ctx) })
	awaitRunning(l)
	for n := range maxEvents + 10 {
		l.Add(n + 1)
	}
	lost := l.Lost()
	close(slow)
	stop()
	run.Wait()
	if lost < 9 || lost > 10 { // the first may be in work
		t.Errorf("%d were lost", lost)
	}
	if want := maxEvents + 11 - int(lost); len(got) != want || !slices.IsSorted(got) {
		t.Errorf("%d were written, sorted %v, want %d", len(got), slices.IsSorted(got), want)
	}
}

// awaitRunning waits until Run runs.
func awaitRunning(l *EventLog[int]) {
	for running := false; !running; runtime.Gosched() {
		l.mu.Lock()
		running = l.running
		l.mu.Unlock()
	}
}

// TestEventLogAfterItsEnd writes at once what comes when nobody writes apart any more, as loops do
// whose ports are not closed yet.
func TestEventLogAfterItsEnd(t *testing.T) {
	var got []int
	l := &EventLog[int]{Write: func(n *int) { got = append(got, *n) }}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	l.Run(ctx)
	if l.Add(1); !slices.Equal(got, []int{1}) {
		t.Errorf("%v was written", got)
	}
}

// TestEventLogAroundItsEnd adds events while it ends: each is written, in its order.
func TestEventLogAroundItsEnd(t *testing.T) {
	var mu sync.Mutex
	var got []int
	l := &EventLog[int]{Write: func(n *int) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, *n)
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var run sync.WaitGroup
	run.Go(func() { l.Run(ctx) })
	awaitRunning(l)
	const n = maxEvents / 2 // none is lost for want of room
	for i := range n {
		if i == n/2 {
			stop()
		}
		l.Add(i)
	}
	run.Wait()
	if len(got) != n || !slices.IsSorted(got) || l.Lost() != 0 {
		t.Errorf("%d were written, sorted %v, and %d lost, want %d", len(got), slices.IsSorted(got), l.Lost(), n)
	}
}
