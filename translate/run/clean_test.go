// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestMemorySizes clears a state of other sizes, and keeps one of the same with its note.
func TestMemorySizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	z := state.Sizes{Sessions: 64, Subscribers: 4, Addresses: 1, BlockWords: 1, SubscriberLength: 64}
	for _, tt := range []struct {
		name     string
		sessions int
		adopted  bool
	}{
		{"fresh", 64, false},
		{"the same", 64, true},
		{"larger", 128, false},
		{"the larger again", 128, true},
	} {
		z.Sessions = tt.sessions
		m, err := fileMemory(path, z, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.note() == "2001:db8:64::/96"; got != tt.adopted {
			t.Errorf("%s: note %q", tt.name, m.note())
		}
		_, adopted, err := openTable(z, m)
		if err != nil || adopted != tt.adopted {
			t.Errorf("%s: adopted %t, error %v", tt.name, adopted, err)
		}
		if err := m.setNote("2001:db8:64::/96"); err != nil {
			t.Error(err)
		}
		if err := m.free(); err != nil {
			t.Error(err)
		}
	}
}

// answers lists the addresses that the gateway answers for.
func (w *world) answers(t *testing.T) (list []string) {
	t.Helper()
	w.gateway.Do(t, func() error {
		proxies, err := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
		for _, p := range proxies {
			list = append(list, p.IP.String())
		}
		return err
	})
	slices.Sort(list)
	return list
}

// leaveAnswer answers for an address, like a process that is killed then.
func (w *world) leaveAnswer(t *testing.T, addr string) {
	t.Helper()
	w.gateway.Do(t, func() error {
		host, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer host.Abandon()
		return host.AddProxy("v4", netip.MustParseAddr(addr))
	})
}

// TestLeftAnswers ends the answers for a pool whose translator was killed, at the next
// start with another pool and by a cleaning, which leaves those of the living.
func TestLeftAnswers(t *testing.T) {
	w := newWorld(t)
	w.leaveAnswer(t, "192.0.2.70")
	n := startNAT64(t, w, nat64Config(t))
	if got := w.answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a start it answers for %v", got)
	}
	w.leaveAnswer(t, "192.0.2.71")
	var cleaned role.Cleaned
	w.gateway.Do(t, func() (err error) {
		cleaned, err = cleanProxies()
		return err
	})
	if !slices.Equal(cleaned.Removed, []string{"answers for 192.0.2.71 on v4"}) {
		t.Errorf("removed %v", cleaned.Removed)
	}
	if got := w.answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a cleaning it answers for %v", got)
	}
	// A device that is down has no routes, and takes up again what was cleaned meanwhile.
	change := func(f func(netlink.Link) error) {
		t.Helper()
		w.gateway.Do(t, func() error {
			tun, err := netlink.LinkByName(n.device.name)
			return errors.Join(err, f(tun))
		})
	}
	change(netlink.LinkSetDown)
	await(t, n, "device_down")
	w.gateway.Do(t, func() error {
		_, err := cleanProxies()
		return err
	})
	change(netlink.LinkSetUp)
	await(t, n, "serving")
	if got := w.answers(t); !slices.Equal(got, []string{poolAddr.String()}) {
		t.Errorf("after a device that was down it answers for %v", got)
	}
}
