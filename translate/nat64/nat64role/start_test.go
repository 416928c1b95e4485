// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// fails runs an instance in the gateway that cannot start.
func fails(t *testing.T, w *gatewaytest.World, n *NAT64) {
	t.Helper()
	ended := w.Gateway.Go(func() error { return n.Run(t.Context()) })
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-n.Ready():
		t.Error("it has started")
	}
}

// foretells wants the advice about a configuration to have a word, or to be none.
func foretells(t *testing.T, w *gatewaytest.World, c Settings, want string) {
	t.Helper()
	w.Gateway.Do(t, func() error {
		got := strings.Join(advise(c), "\n")
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("the advice is %q, want %q", got, want)
		}
		return nil
	})
}

// TestStartsInTheWay: sessions of an earlier process that hold the port of a static
// binding end, with a word in the log, and all else goes on.
func TestStartsInTheWay(t *testing.T) {
	inModes(t, func(t *testing.T, w *gatewaytest.World, c Settings) {
		c.SessionLog = true
		for _, leaves := range []bool{false, true} {
			start(t, w, c).attached(t, c.FastPath)
			taken, other := newFlow(t, w, 7000), newFlow(t, w, 7001)
			next := c
			next.Static = []StaticBinding{{Transport: UDP, Inside: netip.AddrPortFrom(gatewaytest.SixAddr, 9000), Outside: taken.pool}}
			foretells(t, w, c, "")
			foretells(t, w, next, "ends 1 sessions") // while it runs
			end := w.Stop
			if leaves {
				end = w.Leave
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			foretells(t, w, next, "ends 1 sessions")
			var text bytes.Buffer
			n, err := New(next, slog.New(slog.NewTextHandler(&text, nil)))
			if err != nil {
				t.Fatal(err)
			}
			w.Start(t, n)
			n.attached(t, c.FastPath)
			if got := text.String(); !strings.Contains(got, "sessions of an earlier process end") || !strings.Contains(got, "sessions=1") {
				t.Errorf("the log says %s", got)
			} else if stop := "msg=session_stop transport=udp inside=" + taken.six.At().String(); strings.Count(got, "msg=session_stop") != 1 || !strings.Contains(got, stop) {
				t.Errorf("the log lacks %s: %s", stop, got)
			}
			other.passes(t)
			bound := gatewaytest.Open(t, w.Six, netip.AddrPortFrom(gatewaytest.SixAddr, 9000))
			taken.four.Send(t, taken.pool, "for the bound")
			bound.Wants(t, "for the bound", 63)
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
			for _, s := range []*gatewaytest.Socket{taken.six, taken.four, other.six, other.four, bound} {
				s.Conn.Close()
			}
		}
	})
}

// TestFailedStartLeaves: a start that cannot be leaves the fast path of the process
// before it at work, and the next one takes it over.
func TestFailedStartLeaves(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.FastPath, c.Name = fastpath.ModeTC, "nat64.failed"
	start(t, w, c).attached(t, c.FastPath)
	f := newFlow(t, w, 7000)
	if err := w.Leave(); err != nil {
		t.Fatal(err)
	}
	wrong := c
	wrong.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:6::/96")} // holds the gateway's own
	for range 2 {
		n, err := New(wrong, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		fails(t, w, n)
		f.passes(t) // by the programs alone
	}
	if n := start(t, w, c); n.adopted != 1 {
		t.Errorf("%d sessions taken over, want 1", n.adopted)
	}
	f.passes(t)
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}
