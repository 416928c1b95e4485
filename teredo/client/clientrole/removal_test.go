// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The client has its address and routes again after someone removes them.
func TestClientIsRestored(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	stop := roletest.Start(t, r.a, c).Stop
	before := await(t, c, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(before.Address)...)
	works := func(t *testing.T) {
		s := await(t, c, "qualified", qualified)
		if s.Address != before.Address {
			t.Errorf("another address: %s, before %s", s.Address, before.Address)
		}
		r.a.Do(t, func() error {
			testutil.AwaitLocal(t, s.Address)
			return nil
		})
	}
	r.a.Removes(t, "teredo", works)
	r.a.RemovesDevice(t, "teredo", works)
	if err := stop(); err != nil {
		t.Error(err)
	}
	awaitDevice(t, r.a, "no device")
}

// The fast path of two clients carries again after the device was deleted.
func TestClientFastPathIsRestored(t *testing.T) {
	r := newRig(t)
	p := startFastPair(t, r, []func(*Settings){onTC}, []func(*Settings){onTC, inAll})
	p.open(t)
	p.fetch(t, 1<<20)
	r.a.Do(t, func() error {
		l, err := netlink.LinkByName("teredo")
		return errors.Join(err, netlink.LinkDel(l))
	})
	awaitDevice(t, r.a, deviceWith(p.ca.Status().(Status).Address)...)
	sent := p.ca.Status().(Status).FastPath.sent()
	await(t, p.ca, "on the fast path again", func(s Status) bool {
		p.fetch(t, 1<<16)
		return s.State == "qualified" && s.FastPath.sent() > 0 && s.FastPath.sent() != sent
	})
}

// A client with two paths has both addresses again, one of them preferred.
func TestHandoverIsRestored(t *testing.T) {
	r := newRig(t)
	r.secondLink(t)
	h, _ := newHandover(t)
	roletest.Start(t, r.a, h)
	s := awaitPaths(t, h, "a in_use", "w standing_by")
	want := []string{s.Paths[0].Address.String()}
	awaitPreferred(t, r.a, want)
	works := func(t *testing.T) {
		awaitPaths(t, h, "a in_use", "w standing_by")
		awaitPreferred(t, r.a, want)
	}
	r.a.Removes(t, "teredo", works)
	r.a.RemovesDevice(t, "teredo", works)
}

// awaitPreferred waits until the preferred addresses of the device are these.
func awaitPreferred(t *testing.T, ns *testutil.Netns, want []string) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		got := preferred(t, ns)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("preferred are %v, want %v", got, want)
		}
	}
}
