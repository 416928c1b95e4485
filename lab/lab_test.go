// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// newLab starts a lab that ends with the test.
func newLab(t *testing.T) (*Lab, context.Context) {
	t.Helper()
	testutil.NeedRoot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	l, err := New(ctx, Options{Name: "test"})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		cancel()
	})
	return l, ctx
}

func mustDraw(t *testing.T, l *Lab) {
	t.Helper()
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestNodesReachEachOtherThroughRouterAndBridge(t *testing.T) {
	l, ctx := newLab(t)
	a, router, b := l.Node("a"), l.Node("router"), l.Node("b")
	sw := l.Bridge("switch")
	l.Link(a, "eth0", router, "r0")
	l.Link(router, "r1", sw, "")
	l.Link(b, "eth0", sw, "")
	a.Addr("eth0", "192.0.2.2/24", "2001:db8:1::2/64").Route("default", "192.0.2.1").Route("default", "2001:db8:1::1")
	router.Addr("r0", "192.0.2.1/24", "2001:db8:1::1/64").Addr("r1", "198.51.100.1/24", "2001:db8:2::1/64").Forward(true, true)
	b.Addr("eth0", "198.51.100.2/24", "2001:db8:2::2/64").Route("192.0.2.0/24", "198.51.100.1").Route("2001:db8:1::/64", "2001:db8:2::1")
	mustDraw(t, l)

	for _, network := range []struct{ kind, to string }{{"udp4", "198.51.100.2:7"}, {"udp6", "[2001:db8:2::2]:7"}} {
		t.Run(network.kind, func(t *testing.T) {
			var server, client net.PacketConn
			addr, err := net.ResolveUDPAddr(network.kind, network.to)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Do(func() (err error) { server, err = net.ListenUDP(network.kind, addr); return err }); err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			if err := a.Do(func() (err error) { client, err = net.ListenUDP(network.kind, nil); return err }); err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.WriteTo([]byte("hello"), addr); err != nil {
				t.Fatal(err)
			}
			deadline, _ := ctx.Deadline()
			_ = server.SetReadDeadline(deadline)
			buf := make([]byte, 16)
			n, _, err := server.ReadFrom(buf)
			if err != nil || string(buf[:n]) != "hello" {
				t.Fatalf("got %q, %v", buf[:n], err)
			}
		})
	}
}

func TestDrawingKeepsFirstError(t *testing.T) {
	l, ctx := newLab(t)
	a := l.Node("a")
	a.Addr("eth9", "192.0.2.1/24").Route("default", "192.0.2.9")
	err := l.Err()
	if err == nil || !strings.Contains(err.Error(), "eth9") {
		t.Fatalf("error is %v, want one about eth9", err)
	}
	if _, got := a.Run(ctx, "true"); got != err {
		t.Errorf("Run gives %v, want %v", got, err)
	}
	if got := a.Do(func() error { return nil }); got != err {
		t.Errorf("Do gives %v, want %v", got, err)
	}
}

func TestCloseRemovesEverythingAndTwoRunsCoexist(t *testing.T) {
	first, ctx := newLab(t)
	second, _ := newLab(t)
	if first.Name() == second.Name() {
		t.Fatalf("both runs are named %s", first.Name())
	}
	n := second.Node("a")
	first.Node("a")
	mustDraw(t, first)
	p, err := n.Start(ctx, Process{Path: "sh", Args: []string{"-c", "sleep 1000 & echo child $!; setsid sleep 1000 & wait"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WaitFor(ctx, "^child [0-9]+$"); err != nil {
		t.Fatal(err)
	}
	members := membersOf(second.dir)
	if len(members) < 2 {
		t.Fatalf("found %d members of the run, want the shell and its children", len(members))
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range members {
		if id.alive() {
			t.Errorf("process %d outlives the lab", id.PID)
		}
	}
	if _, err := os.Stat(second.dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", second.dir, err)
	}
	if _, err := os.Stat(filepath.Join(first.dir, stateFile)); err != nil {
		t.Errorf("the other run lost its state: %v", err)
	}
}

func TestProcessFailureShowsItsLog(t *testing.T) {
	l, ctx := newLab(t)
	n := l.Node("a")
	p, err := n.Start(ctx, Process{Name: "failing", Path: "sh", Args: []string{"-c", "echo the reason >&2; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WaitFor(ctx, "never written"); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("WaitFor gives %v, want the log in it", err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("Wait gives %v, want the log in it", err)
	}
}

func TestContextEndsLab(t *testing.T) {
	testutil.NeedRoot(t)
	ctx, cancel := context.WithCancel(context.Background())
	l, err := New(ctx, Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := l.Node("a").Start(ctx, Process{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.Done()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", l.dir, err)
	}
}
