// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Forecast is what the fast path of an instance would be on this machine.
type Forecast struct {
	// Notes say, in a sentence each, what would be chosen and why.
	Notes []string
	// Warnings are what the operator would not expect of what he has configured.
	Warnings []string

	role, name string // of the instance
	explicit   bool   // the operator names a hook
	seats      *role.Seats
}

// Plan finds out what the fast path of an instance would be beside those that have taken their
// seats, and takes its own; it changes nothing. tunnel is the name of its own device.
func Plan(of, name, tunnel string, cfg Config, taken *role.Seats) Forecast {
	p := Forecast{role: of, name: name, explicit: cfg.Mode != fastpath.ModeAuto, seats: taken}
	if cfg.Mode == fastpath.ModeOff {
		return p
	}
	features := probe.Try()
	if !features.Programs || !features.MappedArrays {
		p.say(p.explicit, "the engine would carry all packets. %s", strings.Join(features.Missing, " "))
		return p
	}
	plan, err := attach.Plan(attach.Config{
		Name: PinName(name), Mode: cfg.Mode, Devices: cfg.Devices, Host: cfg.Host, Expected: expected(taken),
	})
	switch {
	case err != nil:
		p.say(p.explicit, "the engine would carry all packets: %v", err)
	case p.saySkipped(&cfg, tunnel, plan):
		p.sayDevices(plan)
		p.sit(plan)
		for _, missing := range features.Missing {
			p.say(false, "%s", missing)
		}
	}
	return p
}

// expected are the programs that others will have attached.
func expected(taken *role.Seats) (list []attach.Expected) {
	for _, s := range taken.Taken() {
		list = append(list, attach.Expected{Device: s.Device, Hook: attach.Hook(s.Hook), Whose: s.Instance})
	}
	return list
}

// sit takes the instance's seats.
func (p *Forecast) sit(plan []attach.DeviceReport) {
	for _, d := range plan {
		if d.Hook != attach.HookNone {
			p.seats.Take(role.Seat{Device: d.Device, Hook: string(d.Hook), Instance: p.name})
		}
	}
}

// Findings are notes and warnings as the program takes them.
func (p *Forecast) Findings() (found []role.Finding) {
	for _, text := range p.Notes {
		found = append(found, role.Finding{Text: text, Note: true})
	}
	for _, text := range p.Warnings {
		found = append(found, role.Finding{Text: text, Warning: true})
	}
	return found
}

// Block says what would keep the programs from being attached.
func (p *Forecast) Block(why string) {
	p.seats.Leave(p.name)
	p.say(p.explicit, "the engine would carry all packets: %s", why)
}

// say adds a note or a warning.
func (p *Forecast) say(warn bool, format string, args ...any) {
	text := fmt.Sprintf("%s %q: %s", p.role, p.name, fmt.Sprintf(format, args...))
	if warn {
		p.Warnings = append(p.Warnings, text)
	} else {
		p.Notes = append(p.Notes, text)
	}
}

// saySkipped names what redirected packets would not meet, and returns whether they
// would be redirected all the same.
func (p *Forecast) saySkipped(cfg *Config, tunnel string, plan []attach.DeviceReport) bool {
	q := bypass.Query{Tunnel: tunnel, Prefixes: cfg.Prefixes, Host: cfg.Host, Forward4: cfg.Forward4, Local4: cfg.Local4}
	q.Devices, q.XDP = Planned(plan)
	found, unsure := bypass.Find(q)
	for _, s := range found {
		p.say(p.explicit, "redirected packets would not meet this: %s", s)
	}
	if unsure != nil {
		p.say(p.explicit, "what redirected packets would not meet cannot be determined: %v", unsure)
	}
	if !p.explicit && (len(found) > 0 || unsure != nil) {
		p.say(false, "so the engine would carry all packets")
		return false
	}
	return true
}

// sayDevices says what would be attached to which devices.
func (p *Forecast) sayDevices(plan []attach.DeviceReport) {
	type choice struct {
		hook attach.Hook
		why  string
	}
	var order []choice
	devices := make(map[choice][]string)
	for _, d := range plan {
		c := choice{d.Hook, d.Why}
		if devices[c] == nil {
			order = append(order, c)
		}
		devices[c] = append(devices[c], d.Device)
		if d.Hook == attach.HookNone {
			continue
		}
		for _, w := range d.Warnings {
			p.say(true, "%s", w)
		}
	}
	for _, c := range order {
		names := strings.Join(devices[c], ", ")
		if c.hook == attach.HookNone {
			p.say(false, "%s would be left out: %s", names, c.why)
		} else {
			p.say(false, "the fast path would sit at %s of %s: %s", c.hook, names, c.why)
		}
	}
	names, xdp := Planned(plan)
	sends := func(d attach.DeviceReport) bool { return d.Target }
	if xdp && !slices.ContainsFunc(plan, sends) {
		p.say(true, "none of the devices sends what XDP redirects into it, so the engine would carry all packets")
	}
	if len(names) == 0 {
		p.say(false, "there is no device to attach a fast path to, so the engine would carry all packets until one comes up")
	}
}

// Planned names the devices that are or would be attached to, and reports whether XDP
// redirects.
func Planned(plan []attach.DeviceReport) (names []string, xdp bool) {
	byXDP := func(d attach.DeviceReport) bool { return d.Hook == attach.HookXDP }
	return PlannedNames(plan), slices.ContainsFunc(plan, byXDP)
}

// PlannedNames is what [Planned] returns first.
func PlannedNames(plan []attach.DeviceReport) (names []string) {
	for _, d := range plan {
		if d.Hook != attach.HookNone {
			names = append(names, d.Device)
		}
	}
	return names
}
