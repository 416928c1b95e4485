// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/isthmus-net/isthmus/fastpath/pinned"

// Failing reports whether a device has begun to lose what XDP redirects into it, or no
// longer does, which no link event tells: then call [Attachment.Sync]. It costs little.
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
		features, known := xdpFeatures(s.Index)
		if known && s.Place == pinned.PlaceXDP && a.refuses[s.Index] == nil {
			failing = failing || p.report.Target != (features&xdpTransmit != 0)
		}
	}
	return failing
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
