// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo"
)

// One trace shows what the programs forward, what they leave to the engine, and
// what becomes of it there.
func TestTraceShowsBothPaths(t *testing.T) {
	for mode, hook := range map[fastpath.Mode]string{fastpath.ModeTC: "tc", fastpath.ModeXDP: "xdp"} {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, by(mode))
			r.awaitPath(t, string(mode))
			r.hostSends(t, "first")
			host := r.bubbleArrives(t).Src()
			bubble := func() { send(t, r.client, teredo.AppendBubble(nil, relayClientIP, host), relayAt) }
			bubble()
			wantText(t, "the client got", clientReceives(t, r.client), "first hop 63")
			ctx, stop := context.WithCancel(t.Context())
			seen := make(chan string, 1000)
			ended := make(chan error)
			go func() {
				ended <- r.relay.Trace(ctx, trace.Sampling{Every: 1, PerSecond: 1000}, func(s *trace.Sample) {
					text := s.Text()
					seen <- text[strings.Index(text, " ")+1:] // without the time
				})
			}()
			for !r.relay.loop.Tracing() {
				time.Sleep(time.Millisecond)
			}
			fast := func() {
				r.hostSends(t, "fast")
				wantText(t, "the client got", clientReceives(t, r.client), "fast hop 63")
			}
			if err := r.relay.Trace(ctx, trace.Sampling{Every: 1, PerSecond: 1}, func(*trace.Sample) {}); !errors.Is(err, trace.ErrBusy) {
				t.Errorf("a second trace: %v, want %v", err, trace.ErrBusy)
			}
			awaitLine(t, seen, fast, "fast", hook, "forward (encap_forwarded)", "> ["+relayClientIP.String()+"]")
			awaitLine(t, seen, bubble, "fast", hook, "punt (bubble)", "none")
			awaitLine(t, seen, bubble, "engine", "udp", "keep", "none")
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the trace ended with %v", err)
			}
		})
	}
}

// awaitLine causes a line with all these words and waits for it; the two paths begin to
// be traced at their own times, so it is caused again. Lines of both paths come in any
// order: the others are left.
func awaitLine(t *testing.T, lines chan string, cause func(), words ...string) {
	t.Helper()
	cause()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	var passed []string
	defer func() {
		for _, line := range passed {
			lines <- line
		}
	}()
	for deadline := time.After(testutil.Patience); ; {
		select {
		case line := <-lines:
			has := true
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			if has {
				return
			}
			passed = append(passed, line)
		case <-again.C:
			cause()
		case <-deadline:
			t.Fatalf("no sample with %q among\n%s", words, strings.Join(passed, "\n"))
		}
	}
}
