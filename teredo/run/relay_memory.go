// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// takeMemory gives the engine the memory of its peers: that of the fast path, with
// the peers that a process before this one has left in it, or its own.
func (r *Relay) takeMemory() error {
	if r.fast.table != nil {
		return r.takeShared()
	}
	memory, free, err := port.Memory(peer.HotBytes(r.cfg.MaxPeers))
	if err != nil {
		return fmt.Errorf("%w: lower max_peers", err)
	}
	r.freeMemory = free
	return r.moveTable(memory, nil)
}

// takeShared gives the engine the tables of the fast path.
func (r *Relay) takeShared() error {
	err := r.moveTable(r.fast.table.Peers(), r.fast.shared())
	if sizes := r.sizes(); err == nil && sizes.Trusted > 0 {
		r.fast.Note(func(v *FastPath) { v.Adopted = sizes.Trusted })
		r.log.Info("peers of an earlier process are taken over", "peers", sizes.Trusted)
	}
	return err
}

// giveMemory gives it back, when no packet comes any more. Status may be asked for
// still.
func (r *Relay) giveMemory() error {
	err := r.moveTable(make([]byte, peer.BucketBytes), nil)
	if r.freeMemory != nil && err == nil {
		r.freeMemory()
		r.freeMemory = nil
	}
	return err
}

func (r *Relay) moveTable(memory []byte, shared *relay.Shared) (err error) {
	r.loop.Do(func(now time.Time, _ *packet.Batch) { err = r.engine.Move(memory, shared, now) })
	return err
}
