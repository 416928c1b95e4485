// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/internal/retry"
)

// How long attaching waits after it has failed, where neither configuration nor devices have
// changed: many drivers stop their link for each program, so what one device refuses must not
// disturb the others at each look. What else a refusal hangs on, as the far end of a cable, is not
// seen, so the longest wait is how long a remedy takes.
const (
	firstRefusal = 10 * time.Second
	lastRefusal  = time.Minute
)

// refusal is the last failure to attach; without error there is none.
type refusal struct {
	err     error
	as      attach.Config
	devices []deviceState
	trouble retry.Trouble
}

// note notes what has come of attaching to devices that were as they are given. A refusal that
// a plan foretells has touched none, and may be met again at each look.
func (r *refusal) note(as attach.Config, devices []deviceState, err error, now time.Time) {
	if !sameAttachment(as, r.as) || !slices.Equal(devices, r.devices) {
		r.trouble = retry.Trouble{}
	}
	if err != nil {
		if _, foretold := attach.Plan(as); foretold != nil {
			*r = refusal{}
			return
		}
	}
	if r.as, r.devices, r.err = as, devices, err; err == nil {
		r.trouble.Works(now)
		return
	}
	r.trouble.First, r.trouble.Last = firstRefusal, lastRefusal
	r.trouble.Failed(err.Error(), now)
}

// stands reports that to attach again would be of no use yet.
func (r *refusal) stands(as attach.Config, now time.Time) bool {
	return r.err != nil && r.trouble.Wait(now) > 0 && sameAttachment(as, r.as) && slices.Equal(r.devices, devicesOf(as))
}

// deviceState is what decides of a device whether it takes programs.
type deviceState struct {
	index, mtu, master int
	up                 bool
	xdp                uint32 // the program there
}

// devicesOf lists the devices that a configuration names, or else all that programs might be
// attached to.
func devicesOf(as attach.Config) (list []deviceState) {
	links, _ := netlink.LinkList() // what came before an error is right
	for _, l := range links {
		a := l.Attrs()
		d := deviceState{index: a.Index, mtu: a.MTU, master: a.MasterIndex, up: a.RawFlags&unix.IFF_UP != 0}
		if a.Xdp != nil {
			d.xdp = a.Xdp.ProgId
		}
		if slices.Contains(as.Devices, a.Name) || len(as.Devices) == 0 && d.up && d.master == 0 {
			list = append(list, d)
		}
	}
	return list
}
