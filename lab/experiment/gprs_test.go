// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// What a UE does in each cell of the matrix.
const (
	gprsPings    = 100
	gprsInterval = 10 * time.Millisecond
	gprsBytes    = 1 << 20
)

// TestInteropOfGSNs attaches a UE for each GGSN, each emulator of an SGSN, both versions of GTP
// and both families. It pings and is served, and serves, without a loss and byte for byte. Theirs
// with theirs shows that the bench is whole.
func TestInteropOfGSNs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ggsn, sgsn maker }{
		{osmocom, osmocom},
		{osmocom, isthmus},
		{isthmus, osmocom},
		{isthmus, isthmus},
	} {
		for _, version := range []int{0, 1} {
			for _, v6 := range []bool{false, true} {
				a := attachment{version, v6}
				t.Run(fmt.Sprintf("%s GGSN, %s SGSN, %v", c.ggsn.title(), c.sgsn.title(), a), func(t *testing.T) {
					t.Parallel()
					ctx, e := testEnv(t)
					n, err := drawCore(ctx, e, "core")
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := n.Close(); err != nil {
							t.Error(err)
						}
					})
					if err := n.startGGSN(ctx, c.ggsn); err != nil {
						t.Fatal(err)
					}
					m, err := n.attach(ctx, c.sgsn, a)
					if err != nil {
						t.Fatal(err)
					}
					mustCarry(t, ctx, m, a)
					if err := m.detach(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// mustCarry pings from the UE, and transfers both ways.
func mustCarry(t *testing.T, ctx context.Context, m *mobile, a attachment) {
	t.Helper()
	n := m.core
	r, err := n.sgsn.Ping(ctx, lab.Ping{To: a.server(), From: m.addr, Count: gprsPings, Interval: gprsInterval, Timeout: answerWait})
	if err != nil {
		t.Error(err)
	} else if r.Lost() > 0 {
		t.Errorf("%d of %d pings were lost", r.Lost(), r.Sent())
	}
	for _, way := range []struct {
		name     string
		transfer lab.TransferConfig
	}{
		{"to the UE", lab.TransferConfig{Server: n.srv, Addr: a.server(), Client: n.sgsn, Bytes: gprsBytes}},
		{"from the UE", lab.TransferConfig{Server: n.sgsn, Addr: m.addr, Client: n.srv, Bytes: gprsBytes}},
	} {
		if r, err := lab.Transfer(ctx, way.transfer); err != nil {
			t.Errorf("%s: %v", way.name, err)
		} else if !r.Intact {
			t.Errorf("%s: what came is not what was sent", way.name)
		}
	}
}
