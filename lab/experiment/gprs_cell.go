// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// What a UE does in each cell of the matrix.
const (
	gprsPings    = 100
	gprsInterval = 10 * time.Millisecond
	gprsBytes    = 1 << 20
)

// coreCell is one of the matrix: whose GGSN, whose emulator of an SGSN, and how a UE is
// attached.
type coreCell struct {
	ggsn, sgsn maker
	attachment
	at gsns
}

// coreCells are all. Theirs with theirs shows that the bench is whole.
func coreCells() (cells []coreCell) {
	for _, ggsn := range []maker{osmocom, isthmus} {
		for _, sgsn := range []maker{osmocom, isthmus} {
			for _, a := range attachments {
				cells = append(cells, coreCell{ggsn, sgsn, a, core4})
			}
		}
	}
	return cells
}

// String names the cell for people.
func (c coreCell) String() string {
	return fmt.Sprintf("%s GGSN, %s SGSN, %v", c.ggsn.title(), c.sgsn.title(), c.attachment)
}

// coreResult is what became of a UE.
type coreResult struct {
	pings, pinged    lab.PingResult // by the UE, and of it
	toUE, fromUE     bool           // the transfer was intact
	toTime, fromTime time.Duration  // of its data
}

// faults are what a UE lacked.
func (r *coreResult) faults() (faults []string) {
	if r.pings.Lost() > 0 {
		faults = append(faults, fmt.Sprintf("%d of %d pings were lost", r.pings.Lost(), r.pings.Sent()))
	}
	if r.pinged.Lost() > 0 {
		faults = append(faults, fmt.Sprintf("%d of %d pings of the UE were lost", r.pinged.Lost(), r.pinged.Sent()))
	}
	if !r.toUE {
		faults = append(faults, "what came to the UE is not what was sent")
	}
	if !r.fromUE {
		faults = append(faults, "what came from the UE is not what was sent")
	}
	return faults
}

// run attaches the UE in a core of its own. It pings, is pinged, and transfers both ways.
func (c coreCell) run(ctx context.Context, e *lab.Env, pings int) (r coreResult, err error) {
	n, err := drawCore(ctx, e, "core", c.at)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.startGGSN(ctx, c.ggsn); err != nil {
		return r, err
	}
	m, err := n.attach(ctx, c.sgsn, c.attachment)
	if err != nil {
		return r, err
	}
	if r.pings, err = n.sgsn.Ping(ctx, lab.Ping{To: c.server(), From: m.addr, Count: pings, Interval: gprsInterval, Timeout: answerWait}); err != nil {
		return r, err
	}
	if r.pinged, err = n.srv.Ping(ctx, lab.Ping{To: m.addr, From: c.server(), Count: pings, Interval: gprsInterval, Timeout: answerWait}); err != nil {
		return r, err
	}
	to, err := lab.Transfer(ctx, lab.TransferConfig{Server: n.srv, Addr: c.server(), Client: n.sgsn, Bytes: gprsBytes})
	if err != nil {
		return r, fmt.Errorf("to the UE: %w", err)
	}
	from, err := lab.Transfer(ctx, lab.TransferConfig{Server: n.sgsn, Addr: m.addr, Client: n.srv, Bytes: gprsBytes})
	if err != nil {
		return r, fmt.Errorf("from the UE: %w", err)
	}
	r.toUE, r.fromUE, r.toTime, r.fromTime = to.Intact, from.Intact, to.Duration, from.Duration
	return r, m.detach(ctx)
}
