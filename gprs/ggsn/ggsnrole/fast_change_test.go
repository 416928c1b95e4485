// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// byPrograms fails unless programs carry a packet each way.
func (r *fastRig) byPrograms(t *testing.T, what string, c *fastContext) {
	t.Helper()
	r.warm(t, c, false)
	up, down := r.forwarded()
	r.carry(t, c, false, what)
	if u, d := r.forwarded(); u != up+1 || d != down+1 {
		t.Errorf("%s: the programs have carried %d up and %d down, want one each: %+v", what, u-up, d-down, r.status())
	}
}

// byEngine fails unless the engine carries packets.
func (r *fastRig) byEngine(t *testing.T, what string, c *fastContext) {
	t.Helper()
	up, down := r.forwarded()
	for range 3 {
		r.carry(t, c, false, what)
	}
	if u, d := r.forwarded(); u != up || d != down {
		t.Errorf("%s: the programs have carried %d up and %d down, want none: %+v", what, u-up, d-down, r.status())
	}
}

// TestFastPathEndsWithContext: programs carry no packet of a context that has ended, from its end on. The engine gets
// them, which answers a SGSN that goes on by an Error Indication.
func TestFastPathEndsWithContext(t *testing.T) {
	inFastModes(t, func(t *testing.T, r *fastRig, _ string) {
		c, other := r.open(t, 1), r.open(t, 2)
		r.byPrograms(t, "before", c)
		r.byPrograms(t, "beside", other)
		var answer gtp.DeleteResponse
		r.ask(t, firstSGSN, c.TEIDControl.Value, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)}, &answer)
		if !answer.Cause.Accepted() {
			t.Fatalf("the context does not end: %v", answer.Cause)
		}
		up, down := r.forwarded()
		r.sendUp(t, c, false, "late")
		r.sendDown(t, c, false, "late")
		await(t, func() bool {
			var s ggsn.Stats
			r.g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { s = e.Stats() })
			return s.Dropped[ggsn.TEIDUnknown] == 1 && s.Dropped[ggsn.NoContext] == 1
		})
		if r.arrives(t, c, false, "late", 50*time.Millisecond) {
			t.Error("a packet of a context that has ended is carried")
		}
		if u, d := r.forwarded(); u != up || d != down {
			t.Errorf("the programs have carried %d up and %d down of a context that has ended", u-up, d-down)
		}
		r.byPrograms(t, "still beside", other)
	})
}

// TestFastPathMoves: packets go to another node, by another TEID, from the update on, and programs take them up there.
func TestFastPathMoves(t *testing.T) {
	inFastModes(t, func(t *testing.T, r *fastRig, _ string) {
		c := r.open(t, 1)
		r.byPrograms(t, "at the first", c)
		r.wantAccount(t, "at the first", c)
		for i, to := range []netip.Addr{secondSGSN, firstSGSN} {
			teid := 0x7000 + uint32(i)
			m := &gtp.UpdateRequest{
				NSAPI: 5, TEIDData: gtp.Some(teid), TEIDControl: gtp.Some(teid + 0x100), AddressControl: gtp.Some(to), AddressUser: gtp.Some(to),
				QoS: gtp.Some(gtp.Profile{Class: gtp.ClassBackground, MaxUp: 8640, MaxDown: 8640}.QoS(12)),
			}
			var answer gtp.UpdateResponse
			r.ask(t, to, c.TEIDControl.Value, m, &answer)
			if !answer.Cause.Accepted() {
				t.Fatalf("the update is refused: %v", answer.Cause)
			}
			c.sgsn, c.teid = to, teid
			r.byPrograms(t, fmt.Sprintf("at %s", to), c)
			r.wantAccount(t, "after the move", c)
		}
	})
}

// TestFastPathFollowsAccessPoint: what a reload has of an access point holds for the next packet, and what programs do
// not know of is the engine's.
func TestFastPathFollowsAccessPoint(t *testing.T) {
	inFastModes(t, func(t *testing.T, r *fastRig, mode string) {
		node := fmt.Sprintf("fast_path = %q", mode)
		c := r.open(t, 1)
		r.byPrograms(t, "plain", c)
		r.reload(t, node, "sequence_numbers = true")
		r.byEngine(t, "numbered", c)
		r.reload(t, node, "mtu = 1300")
		r.byPrograms(t, "plain again", c)
		before := r.status().Packets["punt"]["too_big"]
		r.sendDown(t, c, false, string(make([]byte, 1300)))
		await(t, func() bool { return r.status().Packets["punt"]["too_big"] > before })
	})
}

// TestFastPathByMode: a reload moves the fast path, and ends it.
func TestFastPathByMode(t *testing.T) {
	r := newFastRig(t, `fast_path = "tc"`, "")
	c := r.open(t, 1)
	for _, mode := range []string{"tc", "xdp", "off", "tc", "xdp", "auto"} {
		if restart := r.reload(t, fmt.Sprintf("fast_path = %q", mode), ""); restart != nil {
			t.Errorf("%s waits for a restart of %v", mode, restart)
		}
		path := map[string]string{"off": "engine", "auto": "tc"}[mode] // by veths packets come as packets
		if path == "" {
			path = mode
		}
		r.takes(t, path)
		if path == "engine" {
			r.byEngine(t, mode, c)
		} else {
			r.byPrograms(t, mode, c)
		}
		r.wantAccount(t, mode, c)
	}
}

// TestFastPathFromOff: without programs from the start there are none before a restart.
func TestFastPathFromOff(t *testing.T) {
	r := newFastRig(t, `fast_path = "off"`, "")
	c := r.open(t, 1)
	if restart := r.reload(t, `fast_path = "tc"`, ""); len(restart) != 1 || restart[0] != "fast_path" {
		t.Errorf("what waits for a restart is %v", restart)
	}
	r.byEngine(t, "off", c)
	r.wantAccount(t, "by the engine", c)
}

// TestFastPathOverRestart: contexts, and what they have carried, go on in the next process.
func TestFastPathOverRestart(t *testing.T) {
	inFastModes(t, func(t *testing.T, r *fastRig, mode string) {
		c := r.open(t, 1)
		for _, end := range []struct {
			name string
			by   func() error
		}{{"stop", func() error { return r.running.Stop() }}, {"leave", func() error { return r.running.Leave() }}} {
			r.byPrograms(t, "before the "+end.name, c)
			if err := end.by(); err != nil {
				t.Fatal(err)
			}
			r.ns.Do(t, func() error { return noPrograms(t, "gn", "gi") })
			r.wantAccount(t, "of the node that has ended, behind the "+end.name, c)
			if st := r.g.Status().(Status); st.FastPath.Packets["forward"]["up_forwarded"] == 0 || valuesOf(r.g)["up_packets_total"] == 0 {
				t.Errorf("behind the %s what was carried is forgotten: %+v", end.name, st.FastPath)
			}
			r.start(t, fmt.Sprintf("fast_path = %q", mode), "")
			r.takes(t, mode)
			r.wantAccount(t, "after the "+end.name, c)
		}
		r.byPrograms(t, "in the end", c)
		r.wantAccount(t, "in the end", c)
	})
}
