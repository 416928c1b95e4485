// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTour(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	e.PcapDir, e.Dir, e.Runs = t.TempDir(), t.TempDir(), 1
	var out strings.Builder
	e.Out = &out
	if err := teredoTour(ctx, e); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	mustSay(t, out.String(), "router solicitation", "seen from outside as 203.0.113.10:3551", "endpoint-independent mapping", "the checksum is right")
	if _, err := os.Stat(filepath.Join(e.Dir, "teredo.json")); err != nil {
		t.Error(err)
	}
	checkCaptures(t, ctx, e, "*.pcap")
}

// A faster matrix than the one that is shown: bubbles still have the time to
// be repeated once.
func TestNATMatrix(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	e.PcapDir = t.TempDir()
	ours, peer, done, err := measureMatrices(ctx, e, matrixPlan{Pings: 9, Interval: 300 * time.Millisecond, Patience: answerWait})
	if err := errors.Join(err, done()); err != nil {
		t.Fatal(err)
	}
	r := matrixReport(ours, peer, "")
	if err := r.WriteText(t.Output()); err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(true); err != nil { // counts alone, no times
		t.Error(err)
	}
	// Miredo's score is known: another one means that the boxes changed.
	if got := peer.score(fiveKinds); got != 13 {
		t.Errorf("Miredo connects %d of 25 pairs, want 13", got)
	}
	// The server passes all indirect bubbles on, and the fourth client calls
	// from behind a symmetric NAT: both see trailers.
	checkCaptures(t, ctx, e, "matrix-isthmus*-server-v4.pcap")
	checkCaptures(t, ctx, e, "matrix-isthmus*-client4-eth0.pcap")
}

func TestStart(t *testing.T) {
	ctx, e := testEnv(t)
	ours, peer, err := measureStarts(ctx, e, startPlan{Runs: 2, First: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := startReport(ours, peer, "")
	mustBeMeasured(t, r)
}

// Once each. Miredo's half minute decides how long it takes.
func TestTeredoHandoff(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	ours, peer, err := measureTeredoHandoffs(ctx, e, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := teredoHandoffReport(ours, peer, "")
	mustBeMeasured(t, r)
	// Losses do not depend on a busy machine, milliseconds do. Seconds get longer, but
	// not as long as what does not see the change.
	for _, f := range r.Figures {
		if f.Name == figureSoft && f.Missed() {
			t.Errorf("%s is outside its must", f.Name)
		}
	}
	for _, took := range slices.Concat(ours.nat, ours.server) {
		if took > 20*time.Second {
			t.Errorf("Isthmus recovered after %v", took)
		}
	}
	// What Miredo needs is known: less means that the changes are not those meant.
	for _, took := range append(peer.lan, peer.nat...) {
		if took < 10*time.Second {
			t.Errorf("Miredo recovered after %v", took)
		}
	}
}

func TestTopologyStays(t *testing.T) {
	t.Parallel()
	for _, x := range All {
		if x.Up == nil {
			continue
		}
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			e.Runs = 1 // what is measured on the way
			l, err := x.Up(ctx, e)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			for name, far := range map[string]netip.Addr{"client1": hostAddr, "ue": testbedMedia} {
				if node := l.Lookup(name); node != nil {
					mustPing(t, ctx, name, node, far)
					return
				}
			}
			t.Fatalf("no terminal among %v", l.Nodes())
		})
	}
}
