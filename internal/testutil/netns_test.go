// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil_test

import (
	"net"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestNetnsIsEmptyAndApart(t *testing.T) {
	n := testutil.NewNetns(t)
	n.Do(t, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			if link.Flags&net.FlagUp != 0 && link.Flags&net.FlagLoopback == 0 {
				t.Errorf("a fresh namespace has the link %s up", link.Name)
			}
		}
		// Nothing else listens here, so a fixed port is free.
		c, err := net.ListenPacket("udp4", "127.0.0.1:3544")
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func TestNetnsLeavesOtherThreadsAlone(t *testing.T) {
	testutil.NeedRoot(t)
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	testutil.NewNetns(t)
	for range 64 {
		after := make(chan string)
		go func() {
			h, err := netns.Get()
			if err != nil {
				after <- err.Error()
				return
			}
			defer h.Close()
			after <- h.UniqueId()
		}()
		if got := <-after; got != before.UniqueId() {
			t.Fatalf("a goroutine runs in %s, want %s", got, before.UniqueId())
		}
	}
}
