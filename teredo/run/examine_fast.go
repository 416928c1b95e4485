// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/config"
)

// FastPathPlan is what the fast path of a relay would be on this machine.
type FastPathPlan struct {
	// Notes say, in a sentence each, what would be chosen and why.
	Notes []string
	// Warnings are what the operator would not expect of what he has configured.
	Warnings []string
}

// PlanFastPath finds out what the fast path of a relay would be, and changes nothing.
func PlanFastPath(cfg config.Relay) FastPathPlan {
	p := FastPathPlan{}
	if cfg.Mode == config.ModeHost || cfg.FastPath == config.FastPathOff {
		return p
	}
	explicit := cfg.FastPath != config.FastPathAuto
	say := func(warn bool, format string, args ...any) {
		text := fmt.Sprintf("relay %q: %s", cfg.Name, fmt.Sprintf(format, args...))
		if warn {
			p.Warnings = append(p.Warnings, text)
		} else {
			p.Notes = append(p.Notes, text)
		}
	}
	features := fastpath.Probe()
	if !features.Programs || !features.MappedArrays {
		say(explicit, "the engine would carry all packets. %s", strings.Join(features.Missing, " "))
		return p
	}
	as := fastpath.AttachConfig{Name: pinName(cfg.Name), Mode: fastpath.Mode(cfg.FastPath), Devices: cfg.FastPathDevices}
	plan, err := fastpath.Plan(as)
	if err != nil {
		say(explicit, "the engine would carry all packets: %v", err)
		return p
	}
	found, unsure := bypass.Find(bypass.Query{Devices: plannedNames(plan), Tunnel: cfg.Interface, Prefixes: cfg.Prefixes})
	for _, s := range found {
		say(explicit, "redirected packets would not meet this: %s (%s). %s", s.What, s.Detail, s.Remedy)
	}
	if unsure != nil {
		say(explicit, "what redirected packets would not meet cannot be told: %v", unsure)
	}
	if !explicit && (len(found) > 0 || unsure != nil) {
		say(false, "so the engine would carry all packets")
		return p
	}
	sayDevices(plan, say)
	for _, missing := range features.Missing {
		say(false, "%s", missing)
	}
	return p
}

// sayDevices says what would be attached to which device.
func sayDevices(plan []fastpath.DeviceReport, say func(warn bool, format string, args ...any)) {
	attached := 0
	for _, d := range plan {
		if d.Hook == fastpath.HookNone {
			say(false, "%s would be left out: %s", d.Device, d.Why)
			continue
		}
		attached++
		say(false, "%s would have the fast path at %s: %s", d.Device, d.Hook, d.Why)
		for _, w := range d.Warnings {
			say(true, "%s", w)
		}
	}
	if attached == 0 {
		say(false, "there is no device to attach a fast path to, so the engine would carry all packets until one comes up")
	}
}

// plannedNames are those of the devices that would be attached to.
func plannedNames(plan []fastpath.DeviceReport) []string {
	var names []string
	for _, d := range plan {
		if d.Hook != fastpath.HookNone {
			names = append(names, d.Device)
		}
	}
	return names
}
