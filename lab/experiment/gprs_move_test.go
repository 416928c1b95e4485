// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Addresses of a core in which UEs move: another SGSN, and another GGSN, with a pool of its own.
var (
	otherSGSN = netip.MustParseAddr("10.9.1.4")
	otherGGSN = netip.MustParseAddr("10.9.1.3")
	otherPool = netip.MustParsePrefix("10.46.0.0/20")
)

// TestMovesOfGSNs moves a UE that is pinged between SGSNs of one GGSN, to the other version of GTP
// where the GGSN takes that, and between GGSNs of two makers, of which each gives it an address.
func TestMovesOfGSNs(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	n, err := drawCore(ctx, e, "moves", core4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	n.sgsn.Addr("gn", otherSGSN.String()+"/24")
	n.ggsn.Addr("gn", otherGGSN.String()+"/24")
	if err := n.startGGSN(ctx, osmocom); err != nil {
		t.Fatal(err)
	}
	ggsn := n.daemons.isthmus(n.ggsn, "ggsn")
	section := fmt.Sprintf("[[ggsn]]\ngsn_address4 = %q\npeers = [\"10.9.1.0/24\"]\nstate_file = %q\n[[ggsn.apn]]\nname = %q\npool4 = [%q]\n",
		otherGGSN, filepath.Join(n.dir, "other.state"), coreAPN(false), otherPool)
	if err := ggsn.configure(section); err != nil {
		t.Fatal(err)
	}
	p, err := n.daemons.keep(ggsn.launch(ctx, "isthmus-ggsn"))
	if err != nil {
		t.Fatal(err)
	}
	if err := running(ctx, p); err != nil {
		t.Fatal(err)
	}
	m, err := n.attach(ctx, isthmus, attachment{version: 1}, "--also", otherSGSN.String())
	if err != nil {
		t.Fatal(err)
	}
	emulator := n.daemons.isthmus(n.sgsn, "sgsn")
	order := func(args ...string) (is moved) {
		t.Helper()
		args = append([]string{emulator.binary, "sgsn", "move", testIMSI, "--json", "--socket", emulator.socket()}, args...)
		text, err := n.sgsn.Run(ctx, args...)
		if err == nil {
			err = json.Unmarshal(text, &is)
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		return is
	}
	// Each move is under pings. The GGSN of another maker may drop what the update overtakes on its way
	// from the old SGSN.
	pinged := func(addr netip.Addr, moves ...func()) {
		t.Helper()
		err := poll(ctx, daemonStart, gprsInterval, func(ctx context.Context) (bool, error) { // a GGSN may need a while to open a context
			r, err := n.srv.Ping(ctx, lab.Ping{To: addr, From: coreSrv4, Timeout: answerWait})
			return err == nil && r.Received() > 0, err
		})
		if err != nil {
			t.Fatal(err)
		}
		var sent, lost int
		done, ended := make(chan struct{}), make(chan struct{})
		finish := sync.OnceFunc(func() { close(done); <-ended })
		defer finish() // also when a move has failed
		go func() {
			defer close(ended)
			for over := false; !over; {
				select {
				case <-done:
					over = true // with those that are sent when all is done
				default:
				}
				r, err := n.srv.Ping(ctx, lab.Ping{To: addr, From: coreSrv4, Count: 20, Interval: gprsInterval, Timeout: answerWait})
				if err != nil {
					t.Error(err)
					return
				}
				sent, lost = sent+r.Sent(), lost+r.Lost()
			}
		}()
		for _, move := range moves {
			n.busy(t, ctx)
			move()
		}
		if finish(); lost > len(moves) {
			t.Errorf("%d of %d pings were lost by %d moves", lost, sent, len(moves))
		}
	}
	to := func(want netip.Addr, version int, args ...string) func() {
		return func() {
			t.Helper()
			if is := order(args...); is.Context.SGSN != want || is.Context.GTP != version {
				t.Errorf("%v: %+v", args, is)
			}
		}
	}
	pinged(m.addr, to(otherSGSN, 1, "--to", otherSGSN.String()), to(core4.sgsn, 1, "--to", core4.sgsn.String()))
	is := order("--ggsn", otherGGSN.String())
	if !otherPool.Contains(is.Context.IPv4) {
		t.Fatalf("%+v", is)
	}
	pinged(is.Context.IPv4, to(otherSGSN, 1, "--to", otherSGSN.String()), to(otherSGSN, 0, "--gtp", "0"), to(core4.sgsn, 1, "--gtp", "1", "--to", core4.sgsn.String()))
	if is = order("--ggsn", core4.ggsn.String()); !corePool4.Contains(is.Context.IPv4) {
		t.Fatalf("%+v", is)
	}
	pinged(is.Context.IPv4)
	if err := m.detach(ctx); err != nil {
		t.Error(err)
	}
}

// busy waits until the UE gets packets.
func (n *coreNet) busy(t *testing.T, ctx context.Context) {
	t.Helper()
	var first, now uint64
	seen := false
	err := poll(ctx, daemonStart, time.Millisecond, func(context.Context) (bool, error) {
		link, err := n.sgsn.Kernel().LinkByName(ueDevice)
		if err != nil {
			return false, nil // it is not there yet
		}
		if now = link.Attrs().Statistics.RxPackets; !seen {
			first, seen = now, true
		}
		return now > first+2, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// moved is what an order to move answers.
type moved struct {
	Context struct {
		IPv4 netip.Addr `json:"ipv4"`
		SGSN netip.Addr `json:"sgsn"`
		GTP  int        `json:"gtp"`
	} `json:"context"`
}
