// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"
)

// view is which devices an attachment would take.
type view struct {
	chosen []*device
	left   []DeviceReport
}

// survey lists the devices of the calling thread's namespace that are wanted. It
// fails if one that is named is missing or unfit.
func survey(o Config) (view, error) {
	all, err := listDevices()
	if err != nil {
		return view{}, err
	}
	if len(o.Devices) == 0 {
		return fitting(all, o), nil
	}
	chosen, err := named(all, o)
	return view{chosen: chosen}, err
}

// named returns the devices that the configuration names.
func named(all []*device, o Config) ([]*device, error) {
	var chosen []*device
	for _, name := range o.Devices {
		i := slices.IndexFunc(all, func(d *device) bool { return d.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no network device %s: correct fast_path_devices, or create it first", name)
		}
		d := all[i]
		if err := d.refuses(); err != nil {
			return nil, err
		}
		if slices.Contains(o.Exclude, d.index) {
			return nil, fmt.Errorf("%s is the tunnel itself: name Ethernet devices in fast_path_devices", name)
		}
		if !slices.Contains(chosen, d) {
			chosen = append(chosen, d)
		}
	}
	return chosen, nil
}

// fitting returns every device that suits, where none is named.
func fitting(all []*device, o Config) view {
	v := view{}
	for _, d := range all {
		if slices.Contains(o.Exclude, d.index) || d.index == o.Tunnel {
			continue
		}
		why, telling := d.unfit()
		switch {
		case why == "":
			v.chosen = append(v.chosen, d)
		case telling:
			v.left = append(v.left, DeviceReport{Device: d.name, Index: d.index, Hook: HookNone, Why: why})
		}
	}
	return v
}

// deviceAt looks at one interface.
func deviceAt(index int) (*device, error) {
	all, err := listDevices()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.index == index {
			return d, nil
		}
	}
	return nil, fmt.Errorf("there is no network interface with the index %d", index)
}
