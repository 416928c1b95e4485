// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Whoever interrupts a lab while its topology is drawn finds nothing of it left.
func TestInterruptedDrawing(t *testing.T) {
	testutil.NeedRoot(t)
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 90 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l, err := New(ctx, Options{Name: "interrupted"})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(after, cancel)
			for i := 0; l.Err() == nil; i++ {
				a, b := l.Node(fmt.Sprintf("a%d", i)), l.Bridge(fmt.Sprintf("b%d", i))
				l.Link(a, "eth0", b, "")
				a.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64").Forward(true, true).Route("default", "192.0.2.254")
				_ = a.Meet("eth0", netip.MustParseAddr("192.0.2.9"), a)
				_, _ = a.Start(ctx, Process{Path: "sleep", Args: []string{"100"}})
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", l.dir, err)
			}
			if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), l.dir+"/") {
				t.Errorf("namespaces are still mounted (%v)", err)
			}
			if left := membersOf(l.dir); len(left) > 0 {
				t.Errorf("%d processes are left", len(left))
			}
		})
	}
}

// Nothing that is asked of a node of a closed lab is done in the namespace of whoever asks.
func TestClosedLabAsksNobody(t *testing.T) {
	l, _ := newLab(t)
	n := l.Node("a")
	kernel := n.Kernel()
	lo, err := kernel.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := kernel.AddrList(lo, netlink.FAMILY_ALL); err == nil {
		t.Errorf("a node of a closed lab has the addresses %v", list)
	}
	if _, err := n.Kernel().LinkByName("lo"); err == nil {
		t.Error("a node of a closed lab has an interface")
	}
	if err := n.Know("lo", netip.MustParseAddr("192.0.2.9"), nil); err == nil {
		t.Error("a node of a closed lab knows a neighbour")
	}
	if err := n.Do(func() error { return nil }); err == nil {
		t.Error("something was done in a node of a closed lab")
	}
}
