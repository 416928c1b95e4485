// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// Plan reports what Attach would do, and does nothing. It fails where Attach would
// refuse. A driver that does not say whether it takes XDP is believed to, until
// Attach tries. The pins in o are not used; what an instance of the same name has
// attached counts as its own.
func Plan(o Config) ([]DeviceReport, error) {
	view, err := survey(o)
	if err != nil {
		return nil, err
	}
	own := ownPrograms(&o)
	for _, d := range view.chosen {
		d.look(own)
		d.expect(o.Expected)
	}
	if len(view.chosen) == 0 {
		return view.left, nil
	}
	r, err := choose(o.Mode, o.Host, view.chosen)
	if err != nil {
		return nil, err
	}
	var reports []DeviceReport
	for _, d := range view.chosen {
		warnings := d.warnings(r.xdp)
		if r.xdp && d.native == unknown {
			warnings = append(warnings, fmt.Sprintf("this kernel does not report whether %s of %s takes native XDP; attaching shows it", d.driverInWords(), d.name))
		}
		reports = append(reports, DeviceReport{
			Device: d.name, Index: d.index, Hook: plannedHook(r, o), Why: r.why,
			MTU: d.mtu, Target: d.isTarget(r.xdp), Warnings: warnings,
		})
	}
	return append(reports, view.left...), nil
}

// expect counts programs of others with those that are at the device.
func (d *device) expect(list []Expected) {
	for _, e := range list {
		p := program{whose: e.Whose}
		switch {
		case e.Device != d.name:
		case e.Hook != HookXDP:
			d.ingress = append(d.ingress, p)
		case d.xdp == nil:
			d.xdp = &p
		}
	}
}

func plannedHook(r regime, o Config) Hook {
	switch {
	case r.xdp:
		return HookXDP
	case o.Classic || probe.LacksTCX():
		return HookClassic
	default:
		return HookTCX
	}
}

// ownPrograms recognizes what an instance has attached, by its pins, which may be
// held by a live process.
func ownPrograms(o *Config) func(program) bool {
	ids := make(map[uint32]bool)
	for _, path := range pinned.LinksOf(o.Name) {
		if h, _, err := openLink(path); err == nil {
			ids[h.program] = true
			h.link.Close()
		}
	}
	return func(p program) bool { return ids[p.id] || p.name == o.filterName() }
}
