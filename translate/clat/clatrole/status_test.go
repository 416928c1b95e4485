// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// counted are the sums of what an instance counts.
func (w *world) counted() map[string]float64 {
	found := map[string]float64{}
	w.clat.Collect(func(m role.Metric) { found[m.Name] += m.Value })
	return found
}

// TestCountersStay looks at the counters while a session is being stopped, and behind its end:
// none falls.
func TestCountersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	w.transfer(t, 1<<10)
	w.clat.mu.Lock()
	s := w.clat.current
	w.clat.mu.Unlock()
	hold := make(chan struct{})
	s.readers.Go(func() { <-hold })
	before := w.counted()
	w.host.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		return errors.Join(err, netlink.LinkSetDown(up0))
	})
	w.await(t, starting)
	during := w.counted()
	close(hold)
	w.await(t, "waiting_for_ipv6")
	after := w.counted()
	if before["to_ipv6_total"] == 0 {
		t.Error("nothing is counted")
	}
	for name, n := range before {
		if during[name] < n || after[name] < during[name] {
			t.Errorf("%s falls: %v, %v, %v", name, n, during[name], after[name])
		}
	}
}

// TestBlind has a link on which no prefix can be looked for: the status says why.
func TestBlind(t *testing.T) {
	c, err := New(defaults(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := &finder{cfg: &c.cfg, log: c.log}
	defer f.stop()
	now := time.Unix(1_800_000_000, 0)
	if err := c.find(t.Context(), f, port.Uplink6{Name: "none0", Index: 1 << 30}, now); err == nil {
		t.Fatal("no error")
	}
	c.wait(waitPrefix)
	if st := c.Status().(Status); st.State != retrying || !strings.Contains(st.Error, "none0") {
		t.Errorf("status %+v", st)
	}
	c.sought(nil)
	if st := c.Status().(Status); st.State != waitPrefix || st.Error != "" {
		t.Errorf("when it is looked for, status %+v", st)
	}
}

// TestSingleAddress has a host whose only address is without a network, as by DHCPv6: the status
// says what it lacks, until there is one.
func TestSingleAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	addresses(t, w.host, "2001:db8:1::4/128", "2001:db8:1::2/64")
	w.host.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("::/0")
		return netlink.RouteReplace(&netlink.Route{Dst: all, LinkIndex: up0.Attrs().Index})
	})
	w.startCLAT(t)
	if st := w.await(t, waitSubnet); st.Uplink != "up0" || !strings.HasPrefix(st.Error, "up0 has no network of 64 bits") {
		t.Errorf("status %+v", st)
	}
	addresses(t, w.host, "2001:db8:1::3/64", "")
	if st := w.await(t, "serving"); st.Error != "" {
		t.Errorf("status %+v", st)
	}
}
