// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
)

// Wake has Run look at configuration and host again.
func (f *Driver) Wake() {
	select {
	case f.woken <- struct{}{}:
	default: // it is about to
	}
}

// Nudge has Run call [Role.Round] soon.
func (f *Driver) Nudge() {
	select {
	case f.nudged <- struct{}{}:
	default: // it is about to
	}
}

// Fail ends the fast path for as long as the process lives. It locks.
func (f *Driver) Fail(err error) {
	f.mu.Lock()
	f.failed = err
	f.mu.Unlock()
	f.Wake()
}

// LinksChanged reports devices that came, went or changed. It locks.
func (f *Driver) LinksChanged() {
	f.mu.Lock()
	f.moved = true
	f.mu.Unlock()
	f.Wake()
}

// DeviceReplaced reports that the instance's own device was deleted and made again, with what
// was attached to it. It locks.
func (f *Driver) DeviceReplaced() {
	f.mu.Lock()
	f.replaced = true
	f.mu.Unlock()
	f.LinksChanged()
}

// Configure takes a new configuration, and tells the programs what the role knows again, so
// that it holds for the next packet. It locks.
func (f *Driver) Configure(cfg Config) {
	f.mu.Lock()
	f.cfg = cfg
	f.mu.Unlock()
	f.apply()
	f.Wake()
}

// settle attaches the programs or takes them away, as configuration and host want
// it now.
func (f *Driver) settle() {
	f.mu.Lock()
	cfg, moved, failed := f.cfg, f.moved, f.failed
	again := f.replaced && cfg.Host // others are attached to other devices alone
	f.moved, f.replaced = false, false
	f.mu.Unlock()

	if cfg.Mode != fastpath.ModeOff && f.forward != nil {
		f.keepForwarding()
	}
	attachBlocked := f.role.AttachBlocked()
	as := f.attachConfig(&cfg)
	found, unsure := f.skipped(&cfg, as)
	f.Note(func(v *Status) { v.Bypassed = words(found) })
	switch {
	case failed != nil:
		f.Detach(failed.Error())
	case cfg.Mode == fastpath.ModeOff:
		f.Detach(switchedOff)
	case attachBlocked != "":
		f.Detach(attachBlocked)
	case cfg.Mode == fastpath.ModeAuto && len(found) > 0:
		f.Detach(found[0].What + ", which " + f.role.Packets + " would not meet. " + found[0].Remedy)
	case cfg.Mode == fastpath.ModeAuto && unsure != nil:
		f.Detach("what " + f.role.Packets + " would not meet cannot be determined: " + unsure.Error())
	case f.attachment != nil && !again && sameAttachment(as, f.attachedAs):
		if missing := f.isMissing(f.attachment); missing || moved {
			f.sync(missing)
		}
	case f.attachment == nil && !again && f.refusal.stands(as, time.Now()):
		f.cannotAttach(f.refusal.err)
	default:
		f.Detach("")
		// The steering goes only when the others are there, and only where it must come
		// behind them: without either the host itself resets its clients' connections.
		f.attach(as)
		if f.steering != nil && f.inTC() {
			f.unsteer()
		}
	}
	f.steer(&cfg, moved)
	if cfg.Mode != fastpath.ModeAuto {
		f.warnSkipped(found, unsure)
	}
}

// isMissing reports, also to the log, whether somebody else has taken programs from devices.
func (f *Driver) isMissing(a *attach.Attachment) bool {
	if !a.Missing() {
		return false
	}
	f.log.Warn("somebody has taken programs of Isthmus from a device, perhaps with its clsact qdisc: they are attached again")
	return true
}

// keepForwarding has the kernel go on telling next hops by the instance's device. Who
// switches the forwarding of IPv4 off for the host switches it off there, too.
func (f *Driver) keepForwarding() {
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + f.tunnel.name + "/forwarding")
	if err != nil {
		return
	}
	if strings.TrimSpace(string(text)) == "0" {
		err = f.host.ForwardIPv4(f.tunnel.name)
	}
	f.warnWhile(aboutForwarding, "packets go to the engine", err)
}

// attachConfig says what is to be attached where.
func (f *Driver) attachConfig(cfg *Config) attach.Config {
	return attach.Config{
		Name: PinName(f.role.Name), Whose: f.role.Name, Mode: cfg.Mode, Devices: cfg.Devices,
		Exclude: []int{f.tunnel.index}, Pins: f.pins,
		Host: cfg.Host, Tunnel: f.tunnel.index, Kin: f.kin(),
	}
}

func sameAttachment(a, b attach.Config) bool {
	return a.Mode == b.Mode && slices.Equal(a.Devices, b.Devices)
}

// skipped looks for what redirected packets would not meet.
func (f *Driver) skipped(cfg *Config, as attach.Config) ([]bypass.Finding, error) {
	if cfg.Mode == fastpath.ModeOff {
		return nil, nil
	}
	own := slices.Concat(attach.ProgramIDs(f.table.Programs(), f.pins), as.Kin)
	q := bypass.Query{
		Devices: as.Devices, Tunnel: f.tunnel.name, Prefixes: cfg.Prefixes,
		Host: as.Host, Forward4: cfg.Forward4, Local4: cfg.Local4, XDP: as.Mode == fastpath.ModeXDP,
		Own: func() []ebpf.ProgramID { return slices.Concat(own, attach.Here()) },
	}
	if f.attachment != nil && sameAttachment(as, f.attachedAs) {
		others := slices.DeleteFunc(f.attachment.Report(), func(d attach.DeviceReport) bool { return d.Index == f.tunnel.index })
		q.Devices, q.XDP = Planned(others) // as of a plan, so that both find the same
	} else if plan, err := attach.Plan(as); err == nil {
		q.Devices, q.XDP = Planned(plan)
	}
	return bypass.Find(q)
}

// attach attaches the programs.
func (f *Driver) attach(as attach.Config) {
	tried := devicesOf(as)
	a, err := f.attachAll(f.table.Programs(), as)
	if f.refusal.note(as, tried, err, time.Now()); err != nil {
		f.cannotAttach(err)
		return
	}
	f.mu.Lock()
	f.attachment, f.attachedAs = a, as
	f.mu.Unlock()
	f.retarget()
	f.forgetTold(aboutPath, aboutDevices)
	path, why, devices := f.publish()
	f.log.Info("the fast path is attached", "path", path, "devices", devices, "why", why)
	f.warnOfDevices()
}

// cannotAttach shows why the engine is alone although it should not be.
func (f *Driver) cannotAttach(err error) {
	f.Note(func(v *Status) { v.Path, v.Why, v.Devices, v.Slow = EnginePath, err.Error(), nil, nil })
	f.warnWhile(aboutPath, "the fast path cannot be attached, so the engine carries all packets", err)
}

// inTC reports whether programs are attached where the steering is, too.
func (f *Driver) inTC() bool {
	return f.attachment != nil && slices.ContainsFunc(f.attachment.Report(), func(d attach.DeviceReport) bool {
		return d.Hook != attach.HookNone && d.Hook != attach.HookXDP
	})
}

// warnOfDevices logs what each device is warned of.
func (f *Driver) warnOfDevices() {
	for _, d := range f.attachment.Report() {
		for _, w := range d.Warnings {
			f.log.Warn("a device of the fast path", "device", d.Device, "warning", w)
		}
	}
}

// Detach takes the programs away; why is shown, if it is not empty.
func (f *Driver) Detach(why string) {
	var err error
	switch {
	case f.attachment != nil:
		err = f.attachment.Close()
	case why != "":
		// Nothing is ours, but what an earlier process has left would go on.
		err = attach.DetachLeft(attach.Config{Pins: f.pins})
	}
	if err != nil {
		f.log.Warn("the fast path is not wholly detached", "error", err)
	}
	f.mu.Lock()
	f.attachment = nil
	f.mu.Unlock()
	f.role.Carried(EnginePath)
	if why != "" {
		f.Note(func(v *Status) { v.Path, v.Why, v.Devices, v.Slow = EnginePath, why, nil, nil })
		f.tellOnce(why)
	}
}

// sync takes devices that came and lets go of those that went; missing says that it puts back
// programs that somebody has taken away.
func (f *Driver) sync(missing bool) {
	before, slow := f.inTC(), f.slow
	changed, err := f.attachment.Sync()
	f.warnWhile(aboutDevices, "the fast path cannot be brought in step with the devices", err)
	f.retarget() // a new link-layer address changes no report
	if f.inTC() && (missing || !before) {
		f.unsteer() // it comes behind the others
	}
	if f.inTC() && !before {
		f.Wake() // what packets skip is another thing by tc
	}
	if changed || !maps.Equal(f.slow, slow) {
		path, why, devices := f.publish()
		f.log.Info("the devices of the fast path have changed", "path", path, "devices", devices, "why", why)
		f.warnOfDevices()
	}
}

// retarget tells the programs which devices they may send by.
func (f *Driver) retarget() {
	if f.forward != nil {
		f.retargetTo(slices.DeleteFunc(f.attachment.Report(), func(d attach.DeviceReport) bool {
			return d.Hook == attach.HookNone || d.Index == f.tunnel.index
		}))
	}
}

// retargetTo tells them of these devices. First others leave, whose places these may need.
func (f *Driver) retargetTo(devices []attach.DeviceReport) {
	for _, index := range f.forward.Devices() {
		if !slices.ContainsFunc(devices, func(d attach.DeviceReport) bool { return d.Index == index }) {
			f.forward.RemoveDevice(index)
		}
	}
	slow := make(map[string]string)
	for i := range devices {
		d := &devices[i]
		why, err := f.target(d)
		if err != nil {
			f.forward.RemoveDevice(d.Index)
		}
		if err = errors.Join(why, err); err != nil {
			slow[d.Device] = err.Error()
		}
	}
	f.warnSlow(slow)
}

// warnSlow logs why packets that leave by some devices go to the engine, when it changes.
func (f *Driver) warnSlow(slow map[string]string) {
	if !maps.Equal(f.slow, slow) {
		for _, name := range slices.Sorted(maps.Keys(slow)) {
			f.log.Warn("packets that leave by a device go to the engine: " + slow[name])
		}
	}
	f.slow = slow
}

// target tells the programs of one device; slow is why packets that leave by it go to the
// engine all the same.
func (f *Driver) target(d *attach.DeviceReport) (slow, err error) {
	mac, veth, err := f.host.Ethernet(d.Index)
	if err != nil {
		return nil, err
	}
	xdp := d.Hook == attach.HookXDP
	if f.attachedAs.Host && f.attachedAs.Mode == fastpath.ModeAuto {
		wire, err := f.host.WireAt(d.Index)
		if err == nil {
			err = Finishes(d.Device, wire)
		}
		if err != nil {
			d.Target, slow = false, err
		}
	}
	return slow, f.forward.SetDevice(fastpath.Device{
		Index: d.Index, MAC: mac, Frames: xdp && d.Target, Packets: !xdp && d.Target, Whole: veth, Partial: veth,
		MTU: d.MTU,
	})
}

// warnSkipped names what an explicit mode makes packets skip.
func (f *Driver) warnSkipped(found []bypass.Finding, unsure error) {
	var words []string
	for _, s := range found {
		words = append(words, s.What)
	}
	if unsure != nil {
		words = append(words, unsure.Error())
	}
	text := strings.Join(words, "; ")
	if text == f.skips {
		return
	}
	f.skips = text
	if text != "" {
		f.log.Warn(f.role.Packets+" do not meet what others here would, as fast_path demands", "skipped", text)
	} else {
		f.log.Info("there is nothing any more that " + f.role.Packets + " do not meet")
	}
}

// publish shows what is attached where, and returns it in a few words. Programs that may
// send by no device carry nothing.
func (f *Driver) publish() (path, why string, names []string) {
	path, why = "tc", "there is no device yet to attach to"
	if f.attachment.XDP() {
		path = "xdp"
	}
	var devices []Device
	var slow []string
	for _, d := range f.attachment.Report() {
		if why, ok := f.slow[d.Device]; ok {
			d.Target, d.Warnings = false, append(d.Warnings, why)
		}
		devices = append(devices, Device{
			Device: d.Device, Hook: string(d.Hook), Target: d.Target, Why: d.Why, Warnings: d.Warnings,
		})
		if d.Hook != attach.HookNone {
			names, why = append(names, d.Device), d.Why
			if !d.Target && d.Index != f.tunnel.index {
				slow = append(slow, d.Device)
			}
		}
	}
	switch {
	case len(names) == 0:
		path = EnginePath
	case len(slow) == len(names):
		path, why = EnginePath, "none of the devices sends what "+path+" redirects into it"
	}
	f.role.Carried(path)
	f.Note(func(v *Status) { v.Path, v.Why, v.Devices, v.Slow = path, why, devices, slow })
	return path, why, names
}

// Note changes what status shows.
func (f *Driver) Note(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.view)
}
