// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/isthmus-net/isthmus/fastpath/pinned"

// Failing reports whether a device has begun to lose what XDP redirects into it, or no
// longer does, which no link event tells: then call [Attachment.Sync]. It costs little, but for
// a veth under a kernel before 6.3 a search for the namespace of its far end.
func (a *Attachment) Failing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finished || a.regime == nil || !a.regime.xdp {
		return false
	}
	failing := false
	if a.losses != nil {
		for index, why := range a.losses.fresh() {
			a.refuses[index] = why
			failing = true
		}
	}
	for s, p := range a.placed {
		if s.Place == pinned.PlaceXDP && a.refuses[s.Index] == nil {
			failing = failing || hasTurned(s.Index, p.report.Target)
		}
	}
	return failing
}

// hasTurned reports whether a device has become a target for XDP, or is one no longer.
func hasTurned(index int, target bool) bool {
	if features, known := xdpFeatures(index); known {
		return target != (features&xdpTransmit != 0)
	}
	// A kernel before 6.3 tells of a veth by its far end alone.
	d, err := deviceAt(index)
	if err != nil || d.kind != kindVeth {
		return false
	}
	d.far = findFarEnd(d.farIndex, d.farNamespace)
	d.learnXDP(0, false)
	return target != d.isTarget(true)
}

// watch has the kernel tell of frames that targets refuse. Where it cannot, what drivers
// say of themselves is believed.
func (a *Attachment) watch() {
	if a.regime == nil || !a.regime.xdp {
		a.unwatch()
		return
	}
	if a.losses == nil {
		var err error
		if a.losses, err = watchLosses(); err != nil {
			return
		}
		a.refuses = make(map[int]error)
	}
	var targets []int
	for s, p := range a.placed {
		if p.report.Target {
			targets = append(targets, s.Index)
		}
	}
	_ = a.losses.follow(targets) // one too many is believed, too
}

func (a *Attachment) unwatch() {
	if a.losses != nil {
		_ = a.losses.close()
		a.losses = nil
	}
}

// recall writes into a device that it has refused frames, unless it says so itself by now,
// or has been down since and may do better.
func (a *Attachment) recall(d *device) {
	if d.transmit == no || !d.up {
		delete(a.refuses, d.index)
	}
	if d.loses = a.refuses[d.index]; d.loses != nil {
		d.transmit = no
	}
}
