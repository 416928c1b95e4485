// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestWhere has a server at the addresses and ports that keys name, in UDP or in IP.
func TestWhere(t *testing.T) {
	configtest.InEffect(t, "sctp_media", "name", "listen", "port", "udp_port", "encapsulation", "hide_addresses")
	w := newWorld(t)
	want := w.file("film", 10_000)
	for _, tt := range []struct {
		what, lines, network, server string
		hosts                        int // of the server, as the client knows it
	}{
		{"other ports", "name = \"other\"\nport = 6000\nudp_port = 9900\n", "sctp6+udp", "[2001:db8:1::b]:6000/9900", 2},
		{"one address", "listen = [\"2001:db8:2::b\"]\n", "sctp6+udp", "[2001:db8:2::b]:5000", 1},
		{"in IP", "encapsulation = \"none\"\n", "sctp6", "[2001:db8:1::b]:5000", 2},
		{"hidden addresses", "hide_addresses = true\n", "sctp6+udp", "[2001:db8:1::b]:5000", 1},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w.t = t
			i, err := New(*w.settings(tt.lines), discard)
			if err != nil {
				t.Fatal(err)
			}
			running := roletest.Start(t, w.server, i)
			c := quickClient()
			c.Network = tt.network
			c.Parameters.AddressChanges = tt.what != "hidden addresses" // else they are added, one by one
			client := w.mustDial(c, tt.server)
			if got, _ := w.mustGet(client, transfer.Request{Name: "film"}); !bytes.Equal(got, want) {
				t.Error("another file has come")
			}
			w.until(func() bool { // an address whose link was not up yet is added
				hosts := map[netip.Addr]bool{}
				for _, p := range client.Conn().Status().Paths {
					hosts[p.Remote] = true
				}
				return len(hosts) == tt.hosts
			})
			if tt.what == "other ports" && i.Name() != "other" {
				t.Errorf("its name is %s", i.Name())
			}
			client.Abort()
			if err := running.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhat has a server send what keys name, as a reload changes it.
func TestWhat(t *testing.T) {
	configtest.InEffect(t, "sctp_media", "root", "source", "streams", "message_size", "max_file_size")
	configtest.InEffect(t, "sctp_media.source", "name", "rate", "size", "octets")
	w := newWorld(t)
	w.file("film", 10_000)
	const first = "streams = 2\nmessage_size = 5000\n"
	i := w.serve(first)
	c := w.mustDial(quickClient(), both)
	if _, r := w.mustGet(c, transfer.Request{Name: "film"}); r.Streams != 2 || r.Messages != 2 {
		t.Errorf("%+v", r)
	}
	w.root = t.TempDir()
	song := w.file("song", 100)
	w.file("long", 101)
	next := w.settings(first + "max_file_size = 100\n[[sctp_media.source]]\nname = \"voice\"\nrate = 100\nsize = 10\noctets = 205\n")
	old := i.now()
	roletest.MustReload(t, Role, i, old, *next)
	if got, _ := w.mustGet(c, transfer.Request{Name: "song"}); !bytes.Equal(got, song) {
		t.Error("the folder is another one")
	}
	for _, gone := range []string{"film", "long"} {
		if _, _, err := w.get(c, transfer.Request{Name: gone}); err == nil {
			t.Errorf("%s is sent", gone)
		}
	}
	if voice, r := w.mustGet(c, transfer.Request{Name: "voice"}); len(voice) != 205 || r.Messages != 21 || r.Duration < 150*time.Millisecond {
		t.Errorf("%+v", r)
	}
}

// TestLimits: sessions that are too many are aborted, and those that do nothing end.
func TestLimits(t *testing.T) {
	configtest.InEffect(t, "sctp_media", "max_sessions", "sessions_per_peer", "idle_timeout")
	w := newWorld(t)
	w.file("film", 10)
	i := w.serve("max_sessions = 2\nsessions_per_peer = 1\n")
	first := w.mustDial(quickClient(), both)
	w.mustGet(first, transfer.Request{Name: "film"})
	refused := func(why string) {
		t.Helper()
		if c, err := w.dial(quickClient(), both); err == nil {
			if _, err := c.List(t.Context()); err == nil {
				t.Errorf("it is served, and should not be: %s", why)
			}
		}
		w.until(func() bool { return dropped(i, why) == 1 })
	}
	refused("peer_full")
	old := i.now()
	next := *w.settings("max_sessions = 1\nsessions_per_peer = 1\nidle_timeout = \"1s\"\n")
	roletest.MustReload(t, Role, i, old, next)
	refused("sessions_full")
	w.until(func() bool { return dropped(i, "idle") == 1 })
	w.until(func() bool { return i.Status().(Status).Sessions == 0 })
	w.mustGet(w.mustDial(quickClient(), both), transfer.Request{Name: "film"})
}

// TestStalled ends a session that takes nothing of what it has asked for, also where the server's send buffer has room for all.
func TestStalled(t *testing.T) {
	w := newWorld(t)
	w.file("film", 200_000)
	i := w.serve("idle_timeout = \"1s\"\n[[sctp_media.source]]\nname = \"noise\"\nrate = 0\nsize = 50000\n")
	for n, source := range []string{"noise", "film"} {
		small := quickClient()
		small.Parameters.ReceiveBuffer = 16 << 10
		c := w.mustDial(small, both)
		if err := c.Conn().WriteMessage((&transfer.Request{Transfer: 1, Name: source}).Append(nil), control); err != nil {
			t.Fatal(err)
		}
		w.until(func() bool { return dropped(i, "stalled") == float64(n+1) })
	}
}

// TestSlow: who takes a little at a time is neither stalled nor idle, whether the server's send buffer has room for what it has
// asked for or not.
func TestSlow(t *testing.T) {
	for _, octets := range []int{200_000, 400_000} {
		t.Run(fmt.Sprint(octets), func(t *testing.T) {
			w := newWorld(t)
			w.file("film", octets)
			w.serve("idle_timeout = \"2s\"\nbuffer = 262144\n") // of the 3 s and more that it takes
			small := quickClient()
			small.Parameters.ReceiveBuffer = 16 << 10
			c := w.mustDial(small, both).Conn()
			if err := c.WriteMessage((&transfer.Request{Transfer: 1, Name: "film"}).Append(nil), control); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, transfer.MaxControl)
			for n, come := 0, 0; come < octets; n++ {
				if n < 60 && n%4 == 0 {
					time.Sleep(200 * time.Millisecond)
				}
				size, info, err := c.ReadMessage(b)
				switch {
				case err != nil:
					t.Fatalf("message %d: %v", n, err)
				case info.Stream == transfer.ControlStream:
					continue
				case info.First:
					come -= transfer.DataHeader
				}
				come += size
			}
		})
	}
}

// TestParameters of the section are those of associations and paths, of living ones too.
func TestParameters(t *testing.T) {
	configtest.InEffect(t, "sctp_media", "rto_initial", "rto_min", "rto_max", "path_max_retrans", "association_max_retrans", "pf_threshold",
		"heartbeat_interval", "sack_delay", "early_probe", "link_events", "spurious_timeouts", "setup_race", "buffer", "mtu", "primary")
	w := newWorld(t)
	i := w.serve("buffer = 300000\n")
	c := w.mustDial(quickClient(), "[2001:db8:1::b]:5000")
	s := w.session(i)
	old := i.now()
	next := *w.settings("buffer = 300000\nrto_initial = \"150ms\"\nrto_min = \"120ms\"\nrto_max = \"9s\"\npath_max_retrans = 3\nassociation_max_retrans = 7\npf_threshold = 1\n" +
		"heartbeat_interval = \"300ms\"\nsack_delay = \"50ms\"\nearly_probe = false\nlink_events = false\nspurious_timeouts = false\nsetup_race = false\nmtu = 1400\nprimary = \"2001:db8:2::b\"\n")
	roletest.MustReload(t, Role, i, old, next)
	par := s.conn.Parameters()
	want := next.parameters()
	want.StreamsOut = par.StreamsOut
	if par != want || par.SendBuffer != 300000 || par.RTOMin != 120*time.Millisecond || par.PotentiallyFailedMaxRetrans != 1 || par.EarlyProbe || par.LinkEvents || par.SpuriousTimeouts || par.SetupRace || par.AssociationMaxRetrans != 7 {
		t.Errorf("%+v, want %+v", par, want)
	}
	b := netip.MustParseAddr("2001:db8:2::b")
	w.until(func() bool { return s.conn.Status().Primary.Local == b })
	never := *w.settings("heartbeat_interval = \"0s\"\n")
	if got := never.parameters().HeartbeatInterval; got >= 0 {
		t.Errorf("without heartbeats the interval is %v", got)
	}
	c.Abort()
}
