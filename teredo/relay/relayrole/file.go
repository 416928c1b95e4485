// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// peersFile keeps a relay's trusted peers in a file: a head, the table, and the mappings
// that are not in their peers' addresses. Its note says what the table is made for, and on
// its second line where the relay is; without it the file holds nothing.
type peersFile struct {
	*kept.File
	adopted bool // peers of an earlier process may lie there
	shape   string
	head    *peersHead
	hot     []byte
	foreign *peer.ForeignTable
}

// peersHead is one cache line, so that the table begins with one.
type peersHead struct {
	Seed  peer.Seed
	Alive int64 // when a process last led the relay, by the clock that runs while the machine sleeps
	_     [2]uint64
}

const headBytes = int(unsafe.Sizeof(peersHead{}))

// fileVersion is that of what lies in the file, beside peer's own layout.
const fileVersion = 1

// openPeers opens the file of a relay, or only one that exists. What was made for another configuration, or in another
// network namespace, is replaced.
func openPeers(cfg *Settings, existing bool) (*peersFile, error) {
	namespace, _ := pinned.NamespaceCookie() // 0 where the kernel does not say
	hot := peer.HotBytes(cfg.MaxPeers)
	file, err := kept.Open(kept.Config{
		Path: relayFile(cfg), Size: headBytes + hot + peer.ForeignBytes(cfg.MaxPeers),
		Namespace: namespace, Limit: "max_peers", Existing: existing,
	})
	if err != nil {
		return nil, err
	}
	f := &peersFile{
		File: file, shape: fmt.Sprintf("version %d, %d peers, %s", fileVersion, cfg.MaxPeers, shapeOf(cfg)),
		head: (*peersHead)(unsafe.Pointer(&file.Memory[0])), hot: file.Memory[headBytes:][:hot:hot],
	}
	shape, _, _ := strings.Cut(file.Note(), "\n")
	f.adopted = file.Used && !file.Elsewhere && shape == f.shape
	if f.adopted {
		err = f.openForeign()
	} else {
		err = f.reset()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// relayFile is where a relay's peers are kept over a restart.
func relayFile(cfg *Settings) string { return kept.Path(cfg.StateFile, cfg.Name, name) }

// reset empties the file.
func (f *peersFile) reset() (err error) {
	if err := f.SetNote(""); err != nil {
		return err
	}
	if f.Used { // else all of it is zero
		clear(f.Memory)
	}
	if f.head.Seed, err = peer.NewSeed(rand.Reader); err != nil {
		return err
	}
	return f.openForeign()
}

func (f *peersFile) openForeign() (err error) {
	f.foreign, err = peer.OpenForeign(f.Memory[headBytes+len(f.hot):])
	return err
}

func (f *peersFile) endpoint() string {
	_, text, _ := strings.Cut(f.Note(), "\n")
	return text
}

func (f *peersFile) setEndpoint(text string) error { return f.SetNote(f.shape + "\n" + text) }

func (f *peersFile) silence() time.Duration { return time.Duration(sinceBoot() - f.head.Alive) }

func (f *peersFile) beat() { atomic.StoreInt64(&f.head.Alive, sinceBoot()) }

// copyFrom takes the peers of a fast path that is about to go, of a relay at this place.
func (f *peersFile) copyFrom(fast *fast, endpoint string) error {
	if err := f.reset(); err != nil {
		return err
	}
	f.head.Seed = fast.peerSeed
	copy(f.hot, fast.table.Peers())
	fast.table.Foreign().Walk(func(key [16]byte, mapped netip.AddrPort) { f.foreign.Put(key, mapped) })
	f.beat()
	return f.setEndpoint(endpoint)
}

func sinceBoot() int64 {
	var now unix.Timespec
	// It cannot fail: the clock is always there, and the address is good.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return now.Nano()
}

// clean removes files of peers that relays without a fast path have left for a
// successor, also those of their own.
func clean(configured []*Settings) (c role.Cleaned, err error) {
	var own []string
	for _, s := range configured {
		if s.StateFile != "" {
			own = append(own, s.StateFile)
		}
	}
	namespace, _ := pinned.NamespaceCookie() // 0 where the kernel does not say
	c.Removed, c.InUse, err = kept.Clean("peers", name, namespace, own...)
	return c, err
}
