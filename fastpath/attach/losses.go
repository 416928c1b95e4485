// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// losses tell which devices refuse to send what XDP redirects into them. Statistics of
// theirs do not: some drivers count nothing of XDP, and each names it otherwise.
type losses struct {
	objects lossesObjects
	links   []link.Link
	netns   uint32
	seen    map[int]uint64 // frames, by device
}

// watchLosses begins to watch devices of the calling thread's network namespace. It wants
// a kernel that tells where its records lie (CONFIG_DEBUG_INFO_BTF).
func watchLosses() (*losses, error) {
	var here unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return nil, fmt.Errorf("cannot tell the network namespace: %w", err)
	}
	r := &losses{netns: uint32(here.Ino), seen: map[int]uint64{}}
	err := loadLossesObjects(&r.objects, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot watch what devices refuse: %w", err)
	}
	for _, p := range []*ebpf.Program{r.objects.IsthmusSent, r.objects.IsthmusUnsent} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.links = append(r.links, l)
	}
	return r, nil
}

// follow counts what these devices refuse, and no others.
func (r *losses) follow(devices []int) error {
	var errs []error
	wanted := make(map[int]bool, len(devices))
	for _, index := range devices {
		wanted[index] = true
		if _, ok := r.seen[index]; !ok {
			r.seen[index] = 0
			errs = append(errs, r.objects.Losses.Put(r.key(index), lossesLoss{}))
		}
	}
	for index := range r.seen {
		if !wanted[index] {
			delete(r.seen, index)
			errs = append(errs, r.objects.Losses.Delete(r.key(index)))
		}
	}
	return errors.Join(errs...)
}

// fresh returns the devices that have refused frames since the last call, and why.
func (r *losses) fresh() map[int]error {
	var found map[int]error
	for index, before := range r.seen {
		var now lossesLoss
		if r.objects.Losses.Lookup(r.key(index), &now) != nil || now.Frames == before {
			continue
		}
		r.seen[index] = now.Frames
		if found == nil {
			found = make(map[int]error)
		}
		found[index] = unix.Errno(-now.Error)
	}
	return found
}

func (r *losses) key(index int) lossesLosing {
	return lossesLosing{Ifindex: uint32(index), Netns: r.netns}
}

func (r *losses) close() error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, r.objects.Close())...)
}
