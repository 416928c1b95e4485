// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// TestGracefulRestart has a speaker leave for a successor: the router keeps the
// routes until that is there. The last one leaves without a successor, and the
// routes go when the restart time is over.
func TestGracefulRestart(t *testing.T) {
	t.Parallel()
	n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Graceful: true, Passive: true})
	lines := bgpLines(router6, "next_hop4 = \"192.0.2.2\"\ngraceful_restart = \"12s\"", "")
	n.start(lines)
	n.await(teredo.Prefix, speaker6)
	n.await(anycast, speaker4)
	gone := n.watchLosses()
	leave := func() {
		if err := n.process.Signal(unix.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		<-n.process.Done()
		_ = n.daemons.stop(n.process)
	}
	leave()
	left := time.Now()
	time.Sleep(time.Second)
	if n.hop(teredo.Prefix) != speaker6 || n.hop(anycast) != speaker4 {
		t.Error("the router dropped the routes of a speaker that restarts")
	}
	n.start(lines)
	n.awaitSession("established")
	time.Sleep(time.Until(left.Add(14 * time.Second))) // beyond the restart time of the first
	if lost := gone(); lost != "" {
		t.Errorf("the router lost %s meanwhile", lost)
	}
	n.await(teredo.Prefix, speaker6)
	n.await(anycast, speaker4)
	leave()
	n.dead()
}

// watchLosses returns what gives the prefixes whose routes the router lost since.
func (n *speakerNet) watchLosses() func() string {
	n.t.Helper()
	routes, err := watchRoutes(n.router)
	if err != nil {
		n.t.Fatal(err)
	}
	return func() string {
		defer routes.close()
		var lost []string
		for {
			select {
			case u := <-routes.updates:
				if p := fmt.Sprint(u.Dst); u.Type == unix.RTM_DELROUTE && (p == teredo.Prefix.String() || p == anycast.String()) {
					lost = append(lost, p)
				}
			default:
				return strings.Join(lost, ", ")
			}
		}
	}
}

// TestAnnounceByRoutes has a routing daemon on the speaker's host export what the
// kernel's table holds.
func TestAnnounceByRoutes(t *testing.T) {
	t.Parallel()
	n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Passive: true})
	n.startBird(n.speaker, peers.Bird{Name: "local", RouterID: speaker4, AS: announceAS, Learn: 119, Sessions: []peers.BirdSession{
		{Name: "upstream", Local: speaker6, Neighbor: router6, AS: routerAS},
	}})
	n.start("method = \"route\"\n")
	n.await(teredo.Prefix, speaker6)
	n.wantStatus("announced", "")
	asked := control.NewClient(n.socket())
	if _, err := asked.Drain(n.ctx, "relay", true); err != nil {
		t.Fatal(err)
	}
	n.await(teredo.Prefix, noNextHop)
	if _, err := asked.Drain(n.ctx, "relay", false); err != nil {
		t.Fatal(err)
	}
	n.await(teredo.Prefix, speaker6)
	if err := n.process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.await(teredo.Prefix, noNextHop)
	if err := n.daemons.stop(n.process); err != nil { // a second signal
		t.Error(err)
	}
}
