// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
)

func TestClientNameInUse(t *testing.T) {
	r := newRig(t)
	first, _ := newClient(t)
	roletest.Start(t, r.a, first)
	second, _ := newClient(t)
	var err error
	r.a.Do(t, func() error { err = second.Run(t.Context()); return nil })
	if err == nil || !strings.Contains(err.Error(), "teredo") {
		t.Errorf("error %v", err)
	}
}

// The stop may find no device to close yet: whoever opens it then closes it.
func TestClientStoppedBeforeItsDevice(t *testing.T) {
	ns := testutil.NewNetns(t)
	c, _ := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns.Do(t, func() error {
		if err := c.openSocket(); err != nil {
			return err
		}
		c.endReads()
		return c.openDevice(ctx, new(errgroup.Group))
	})
	ended := make(chan error, 1)
	go func() { ended <- c.loop.ReadTun(c.dev.tun.Queues[0], c.engine.HandleIP) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testutil.Patience):
		t.Error("the device is still read")
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// A client can be told to stop at any time of its start.
func TestClientStoppedAtStart(t *testing.T) {
	ns := testutil.NewNetns(t)
	for _, wait := range []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		c, log := newClient(t)
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		ended := ns.Go(func() error { return c.Run(ctx) })
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("stopped after %v: %v\n%s", wait, err, log)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("stopped after %v, it does not end", wait)
		}
		cancel()
	}
}

// A client that cannot start leaves nothing open behind.
func TestClientThatFailsClosesAll(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		taken, err := port.ListenUDP(port.UDPConfig{Addr: netip.MustParseAddrPort("0.0.0.0:3550")})
		if err != nil {
			return err
		}
		defer taken.Close()
		c, _ := newClient(t, func(c *Settings) { c.Port = 3550 })
		before := openFiles(t)
		if err := c.Run(t.Context()); err == nil {
			t.Error("a port in use was taken")
		}
		for deadline := time.Now().Add(testutil.Patience); openFiles(t) > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d files are open, %d were before", openFiles(t), before)
				break
			}
		}
		return nil
	})
}

// openFiles counts the files that the process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A client that starts before its server has its address long before a time-out.
func TestClientStartsBeforeItsServer(t *testing.T) {
	r := newRig(t)
	if err := r.stopServer(); err != nil {
		t.Fatal(err)
	}
	c, _ := newClient(t, func(c *Settings) { c.QualificationTimeout = time.Hour })
	roletest.Start(t, r.a, c)
	await(t, c, "asking", func(s Status) bool { return s.State == "starting" })
	next, err := serverrole.New(r.serverCfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, r.router, next)
	await(t, c, "qualified", qualified)
}
