// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"slices"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
)

// steerName is the name of the steering's filters, beside those of the fast path.
func (f *Driver) steerName() string { return PinName(f.role.Name) + "+steer" }

// kin are the programs of the steering.
func (f *Driver) kin() []ebpf.ProgramID {
	s := f.role.Steer()
	if s == nil {
		return nil
	}
	return attach.ProgramIDs(s.Programs, nil)
}

// steer attaches the program that is to be there in any mode, or takes it away.
func (f *Driver) steer(cfg *Config, moved bool) {
	s := f.role.Steer()
	if s == nil {
		f.unsteer()
		f.forgetTold(aboutSteering)
		return
	}
	if f.steering != nil && slices.Equal(f.steered, cfg.Devices) {
		if !f.isMissing(f.steering) && !moved {
			return
		}
		_, err := f.steering.Sync()
		f.warnWhile(aboutSteering, "packets to the pool's addresses of this host are not led to the engine by every device", err)
		return
	}
	f.unsteer()
	a, err := attach.Attach(s.Programs, attach.Config{
		Name: f.steerName(), Whose: f.role.Name, Mode: fastpath.ModeTC, Devices: cfg.Devices, Exclude: []int{f.tunnel.index},
		Kin: attach.ProgramIDs(f.table.Programs(), f.pins),
	})
	f.warnWhile(aboutSteering, "packets to the pool's addresses of this host cannot be led to the engine", err)
	if err != nil {
		return
	}
	f.steering, f.steered = a, slices.Clone(cfg.Devices)
}

// unsteer takes it away. When a successor goes on, what needs the engine finds none until
// then.
func (f *Driver) unsteer() {
	if f.steering == nil {
		return
	}
	if err := f.steering.Close(); err != nil {
		f.log.Warn("the program that leads packets to the engine is not wholly detached", "error", err)
	}
	f.steering = nil
}
