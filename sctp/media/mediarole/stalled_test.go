// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestStalledShutdown: a client that shuts the association down, and takes nothing of what it has asked for, is counted until
// the association has ended, and that is after idle_timeout.
func TestStalledShutdown(t *testing.T) {
	w := newWorld(t)
	w.file("film", 10)
	const limit = "sessions_per_peer = 1\nmax_sessions = 2\n[[sctp_media.source]]\nname = \"noise\"\nrate = 0\nsize = 50000\n"
	i := w.serve(limit)
	small := quickClient()
	small.Parameters.ReceiveBuffer = 16 << 10
	small.Parameters.RTOMax = time.Minute // its own end of the shutdown has patience
	c := w.mustDial(small, both).Conn()
	if err := c.WriteMessage((&transfer.Request{Transfer: 1, Name: "noise"}).Append(nil), control); err != nil {
		t.Fatal(err)
	}
	s := w.session(i)
	w.until(func() bool { st := s.conn.Status(); return st.Queued > 900_000 && st.PeerWindow == 0 })
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return dropped(i, "association_ended") == 1 })
	if other, err := w.dial(quickClient(), both); err == nil {
		if _, err := other.List(t.Context()); err == nil {
			t.Error("a second client of the address is served")
		}
	}
	w.until(func() bool { return dropped(i, "peer_full") == 1 })
	if n := i.listener.Endpoint().Stats().Associations; n != 1 {
		t.Errorf("%d associations are left", n)
	}
	roletest.MustReload(t, Role, i, i.now(), *w.settings("idle_timeout = \"1s\"\n" + limit))
	w.until(func() bool { return i.Status().(Status).Sessions == 0 })
	if n := i.listener.Endpoint().Stats().Associations; n != 0 || dropped(i, "stalled") != 1 {
		t.Errorf("%d associations are left, and %v have stalled", n, dropped(i, "stalled"))
	}
	w.mustGet(w.mustDial(quickClient(), both), transfer.Request{Name: "film"})
}

// TestShutdownUnfinished: a client that shuts the association down in good order, and does not hear the answer, holds no
// session.
func TestShutdownUnfinished(t *testing.T) {
	w := newWorld(t)
	i := w.serve("")
	c := w.mustDial(quickClient(), both).Conn()
	w.session(i)
	w.server.Do(t, func() error { // from now on nothing comes to the client
		var errs []error
		for n, link := range []string{"sa", "sb"} {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			errs = append(errs, netlink.NeighSet(&netlink.Neigh{
				LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.ParseIP(fmt.Sprintf("2001:db8:%d::a", n+1)), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
			}))
		}
		return errors.Join(errs...)
	})
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return i.Status().(Status).Sessions == 0 })
	if n := i.listener.Endpoint().Stats().Associations; n != 1 {
		t.Errorf("%d associations wait for the end of the shutdown", n)
	}
}
