// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// peerStore keeps the peers for a successor: the tables of the fast path or a file.
type peerStore interface {
	// endpoint is where the relay was when its peers were heard, silence for how long no
	// process has led it.
	endpoint() string
	setEndpoint(text string) error
	silence() time.Duration
}

// takeMemory gives the engine the memory of its peers: that of the fast path, a file that a
// successor finds, or its own, with the peers that a process before this one has left there;
// r.mu is held.
func (r *Relay) takeMemory() error {
	// The tables of the fast path need no file but that of a process without them.
	file, err := r.openFile(r.fast.table != nil)
	if err != nil {
		r.log.Warn("peers are forgotten at the end of this process", "error", err)
	}
	switch {
	case r.fast.table != nil:
		return r.takeShared(file)
	case file != nil:
		r.file, r.freeMemory = file, file.Close
		if err := r.adopt(file.hot, &relay.Shared{Seed: file.head.Seed, Foreign: file.foreign}, file); err != nil {
			return err
		}
		file.beat() // whoever is killed before the next one leaves its peers, too
		return nil
	}
	memory, free, err := port.Memory(peer.HotBytes(r.cfg.MaxPeers))
	if err != nil {
		return fmt.Errorf("%w: lower max_peers", err)
	}
	r.freeMemory = func() error { free(); return nil }
	return r.moveTable(memory, nil)
}

// openFile opens the file of peers, or only one that exists; nil without one. r.mu is held.
func (r *Relay) openFile(existing bool) (*peersFile, error) {
	if !r.cfg.KeepState {
		return nil, nil
	}
	file, err := openPeers(&r.cfg, existing)
	if existing && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return file, err
}

// takeShared gives the engine the tables of the fast path. What a process without them has
// left goes on in them, unless they hold something newer; r.mu is held.
func (r *Relay) takeShared(file *peersFile) error {
	var before peerStore = r.fast
	if file != nil {
		r.spare = file
		if !r.fast.adopted() && file.adopted {
			r.fast.copyFrom(file)
			before = file
		}
	}
	err := r.adopt(r.fast.table.Peers(), r.fast.shared(), before)
	r.store = r.fast
	r.noteEndpoint()
	return err
}

// adopt gives the engine memory with the peers of an earlier process in it, of which those
// are forgotten whose NATs do not know this relay: it is at another place, or was away for
// too long. r.mu is held.
func (r *Relay) adopt(table []byte, shared *relay.Shared, k peerStore) error {
	if err := r.moveTable(table, shared); err != nil {
		return err
	}
	engine := engineConfig(&r.cfg, &r.local)
	_, memory := engine.Ages()
	if !sameEndpoint(k.endpoint(), r.endpoint()) || k.silence() > memory {
		r.loop.Do(func(time.Time, *packet.Batch) { r.engine.Forget() })
	}
	r.store = k
	r.noteEndpoint()
	return nil
}

// review ends an adoption, when the host's addresses are known.
func (r *Relay) review() {
	var left int
	r.loop.Do(func(now time.Time, _ *packet.Batch) { left = r.engine.Review(now) })
	if left > 0 {
		r.fast.Note(func(v *driver.Status) { v.Adopted = left })
		r.log.Info("peers of an earlier process are taken over", "peers", left)
	}
}

// dropSpare ends the file of a process without a fast path, when the programs know the peers
// that were in it.
func (r *Relay) dropSpare() {
	if r.spare == nil {
		return
	}
	if err := r.spare.Drop(); err != nil {
		r.log.Warn("the file of peers of an earlier process stays behind", "error", err)
	}
	r.spare = nil
}

// savePeers keeps so many peers of the fast path's tables, which are about to go, in the file.
func (r *Relay) savePeers(n int) (err error) {
	if r.spare != nil { // the start has failed
		err = r.spare.Close()
		r.spare = nil
	}
	if r.store != r.fast || !r.cfg.KeepState || n == 0 {
		return err
	}
	r.mu.Lock()
	at := r.endpoint()
	r.mu.Unlock()
	file, openErr := r.openFile(false)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(err, file.copyFrom(r.fast, at), file.Close())
}

// aliveInterval is how often a relay says that it lives.
const aliveInterval = time.Second

// sayAlive says so in the file.
func (r *Relay) sayAlive(ctx context.Context) error {
	if r.file == nil {
		return nil // the fast path has its own way
	}
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for ; ; r.file.beat() {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// giveMemory gives it back, when no packet comes any more, and returns how many peers lie in
// it. Status may be asked for still.
func (r *Relay) giveMemory() (peers int, err error) {
	peers = r.sizes().Trusted
	if err := r.moveTable(make([]byte, peer.BucketBytes), nil); err != nil || r.freeMemory == nil {
		return peers, err
	}
	if r.file != nil && peers == 0 {
		return 0, r.file.Drop() // nothing is left for a successor
	}
	return peers, r.freeMemory()
}

func (r *Relay) moveTable(memory []byte, shared *relay.Shared) (err error) {
	r.loop.Do(func(now time.Time, _ *packet.Batch) { err = r.engine.Move(memory, shared, now) })
	return err
}
