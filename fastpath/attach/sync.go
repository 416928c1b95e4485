// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// Sync brings the attachment in step with the devices that there are now. It
// attaches to those that appeared, a device that vanished and came back included,
// lets go of those that vanished or became members of a bridge, bond or team, and
// judges all again. Programs that somebody else has taken away are put back. Call it when links
// change, and when [Attachment.Missing] says so. A device that cannot be attached to
// is left out, the report says why, and the others stay as they are. The result
// reports whether the report changed.
func (a *Attachment) Sync() (changed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finished {
		return false, nil
	}
	all, err := listDevices()
	if err != nil {
		return false, err
	}
	before := a.reports()
	lost, err := a.dropUnwanted(all)
	if len(lost) == 0 {
		a.chooseAgain()
	}
	a.left = nil
	err = errors.Join(err, a.placeNew(all))
	if a.placed[pinned.Spot{Place: pinned.PlaceEgress, Index: a.config.Tunnel}] == nil && hasIndex(all, a.config.Tunnel) {
		err = errors.Join(err, a.placeTunnel())
	}
	if silent := a.judge(); silent != nil && a.config.Mode == fastpath.ModeAuto {
		placed := slices.DeleteFunc(all, func(d *device) bool { return !a.has(d.index) })
		err = errors.Join(err, a.leaveXDP(silent.transmitsNothing(), placed))
		a.judge()
	}
	a.watch()
	return len(lost) > 0 || !slices.EqualFunc(before, a.reports(), sameReport), err
}

// Missing reports whether somebody else has taken programs away that are still wanted, of which
// no link event tells: then call [Attachment.Sync].
func (a *Attachment) Missing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finished {
		return false
	}
	var all []*device // a program goes with its device, too
	for s, p := range a.placed {
		if p.hook.there() {
			continue
		}
		if all == nil {
			var err error
			if all, err = listDevices(); err != nil {
				return false
			}
		}
		if hasIndex(all, s.Index) {
			return true
		}
	}
	return false
}

func hasIndex(all []*device, index int) bool {
	return slices.ContainsFunc(all, func(d *device) bool { return d.index == index })
}

func sameReport(x, y DeviceReport) bool {
	xs, ys := x.Warnings, y.Warnings
	x.Warnings, y.Warnings = nil, nil
	return slices.Equal(xs, ys) && x.Device == y.Device && x.Index == y.Index && x.Hook == y.Hook &&
		x.Egress == y.Egress && x.Target == y.Target && x.Why == y.Why
}

// dropUnwanted lets go of devices that are gone or must not be attached to any
// more. One that is merely down stays. It returns the spots of those that are wanted, and have
// lost their programs.
func (a *Attachment) dropUnwanted(all []*device) (lost []pinned.Spot, err error) {
	var errs []error
	for _, s := range a.spots() {
		p := a.placed[s]
		i := slices.IndexFunc(all, func(d *device) bool { return d.index == s.Index })
		switch wanted := i >= 0 && (s.Place == pinned.PlaceEgress || all[i].refuses() == nil); {
		case !wanted:
			errs = append(errs, p.hook.detach())
			delete(a.refuses, s.Index)
		case !p.hook.there():
			errs = append(errs, p.hook.forget())
			lost = append(lost, s)
		default:
			p.report.Device = all[i].name
			continue
		}
		delete(a.placed, s)
	}
	return lost, errors.Join(errs...)
}

// chooseAgain forgets what was chosen for devices that have all gone: with auto it was chosen
// by what they could do, and those that come may be others.
func (a *Attachment) chooseAgain() {
	for s := range a.placed {
		if s.Place != pinned.PlaceEgress {
			return
		}
	}
	if a.config.Mode == fastpath.ModeAuto {
		a.regime = nil
	}
}

// placeNew attaches to devices that are wanted and have no program yet.
func (a *Attachment) placeNew(all []*device) error {
	var fresh []*device
	for _, d := range a.wanted(all) {
		if a.has(d.index) {
			continue
		}
		d.look(a.isOwn)
		fresh = append(fresh, d)
	}
	if len(fresh) == 0 {
		return nil
	}
	if a.regime == nil {
		r, err := choose(a.config.Mode, a.config.Host, fresh)
		if err != nil {
			return err
		}
		a.regime = &r
		// Which takes tc where a driver refuses XDP after all, and may stop at one that refuses both.
		if r.xdp && a.config.Mode == fastpath.ModeAuto && a.attachBy(r, fresh) == nil {
			return nil
		}
		fresh = slices.DeleteFunc(fresh, func(d *device) bool { return a.has(d.index) })
	}
	var errs []error
	for _, d := range fresh {
		if err := a.join(d); err != nil {
			a.left = append(a.left, DeviceReport{Device: d.name, Index: d.index, Hook: HookNone, Why: err.Error()})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// join attaches to a device that came later. It does not change the regime of
// those that were there.
func (a *Attachment) join(d *device) error {
	if !a.regime.xdp {
		return a.place(d)
	}
	err := d.refusesXDP()
	if err == nil {
		err = a.place(d)
	}
	if err != nil {
		return fmt.Errorf("the other devices use XDP, so this one is left out: %w", err)
	}
	return nil
}

// wanted lists the devices that suit, or those that are named and there.
func (a *Attachment) wanted(all []*device) []*device {
	if len(a.config.Devices) == 0 {
		v := fitting(all, a.config)
		for _, r := range v.left {
			if !a.has(r.Index) {
				a.left = append(a.left, r)
			}
		}
		return v.chosen
	}
	var found []*device
	for _, d := range all {
		if slices.Contains(a.config.Devices, d.name) && d.refuses() == nil && !slices.Contains(a.config.Exclude, d.index) {
			found = append(found, d)
		}
	}
	return found
}

// has reports whether packets that come in by a device meet our program.
func (a *Attachment) has(index int) bool {
	return a.placed[pinned.Spot{Place: pinned.PlaceXDP, Index: index}] != nil || a.placed[pinned.Spot{Place: pinned.PlaceIngress, Index: index}] != nil
}
