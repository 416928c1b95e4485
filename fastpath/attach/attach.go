// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// Config says what is attached where.
type Config struct {
	// Name is the instance's: filters in a clsact qdisc are known by it.
	Name string
	// Whose is what people know the instance by.
	Whose string
	Mode  fastpath.Mode
	// Devices are names of Ethernet devices. If there are none, every Ethernet
	// device that is up is taken, but for members of bridges, bonds and teams.
	Devices []string
	// Exclude are indices of interfaces that are never attached to, such as the
	// instance's own tunnel.
	Exclude []int
	// Host reports that packets start and end on this host: the program HostIngress
	// is attached where packets come in by the devices, and Egress where they
	// leave by the interface with the index Tunnel. Otherwise packets are
	// forwarded, by XDP or Ingress.
	Host   bool
	Tunnel int
	// Pins keep links across a restart; nil if they end with the process.
	Pins *pinned.Folder
	// Kin are programs that the instance has attached beside these, and that are no
	// others'.
	Kin []ebpf.ProgramID
	// Expected are programs of others that will have been attached before these: [Plan] counts
	// them with those that are there.
	Expected []Expected
	// Classic takes clsact and its filters where links of tcx could be had.
	Classic bool
}

// Expected is a program that another instance will have attached to a device.
type Expected struct {
	Device string
	Hook   Hook
	Whose  string // the instance
}

// DeviceReport says what became of a device.
type DeviceReport struct {
	Device string
	Index  int
	// Hook is where the program runs; HookNone if the device was left out.
	Hook Hook
	// Egress reports that the program sees what leaves by the device.
	Egress bool
	// MTU is the device's, as it was at the last look.
	MTU int
	// Target reports that redirected packets may be sent into the device. Packets
	// to another one belong to the engine.
	Target bool
	// Why gives the reason for the hook, in words.
	Why string
	// Warnings say what costs speed or loses packets, and what to do about it.
	Warnings []string
}

// Attachment is one instance's programs on its devices. It is safe for concurrent
// use. Calls other than Report must come from a thread in the network namespace
// that it was made in.
type Attachment struct {
	programs fastpath.Programs
	config   Config
	classic  bool // decided by what the kernel has

	mu       sync.Mutex
	regime   *regime // nil until there is a device
	placed   map[pinned.Spot]*placed
	left     []DeviceReport // devices that were left out
	losses   *losses        // nil unless XDP redirects
	refuses  map[int]error  // devices that say that they transmit, and do not
	old      map[pinned.Spot]*linkHook
	finished bool
}

// placed is a program in its spot.
type placed struct {
	hook   hook
	report DeviceReport
}

// hook holds a program in its place.
type hook interface {
	// detach takes the program away.
	detach() error
	// leave keeps it for a successor.
	leave() error
	// there reports whether the program still is in its place, as far as can be seen.
	there() bool
	// forget tidies up where somebody else has taken it away.
	forget() error
}

// Attach attaches the programs to all devices, or to none: if one fails, what was
// attached is taken away again. Links that a predecessor left in the same pins
// get the new programs in place, without a gap; those of devices that are no
// longer wanted are detached, and so are all if Attach fails. A device that does
// not exist or that has another's XDP program is refused. With no device named
// and none there yet, nothing is attached until [Attachment.Sync] finds one.
func Attach(p fastpath.Programs, o Config) (*Attachment, error) {
	a := &Attachment{programs: p, config: o, placed: make(map[pinned.Spot]*placed)}
	var err error
	if a.old, err = inherit(o.Pins); err != nil {
		return nil, err
	}
	a.register(o.Whose)
	if err := a.attachAll(); err != nil {
		return nil, errors.Join(err, a.detachAll())
	}
	err = errors.Join(a.dropInherited(), a.dropFilters())
	if err != nil {
		return nil, errors.Join(err, a.detachAll())
	}
	a.judge()
	a.watch()
	return a, nil
}

// attachAll chooses the regime and attaches to every device.
func (a *Attachment) attachAll() error {
	view, err := survey(a.config)
	if err != nil {
		return err
	}
	for _, d := range view.chosen {
		d.look(a.isOwn)
	}
	a.classic = a.config.Classic || probe.LacksTCX()
	a.left = view.left
	if len(view.chosen) == 0 && len(a.config.Devices) == 0 {
		return a.placeTunnel()
	}
	r, err := choose(a.config.Mode, a.config.Host, view.chosen)
	if err != nil {
		return err
	}
	if err := a.attachBy(r, view.chosen); err != nil {
		return err
	}
	return a.placeTunnel()
}

// attachBy attaches to the devices as the regime says. If auto chose XDP and a
// driver refuses it after all, tc is tried instead.
func (a *Attachment) attachBy(r regime, devices []*device) error {
	a.regime = &r
	err := a.placeEach(devices)
	if a.config.Mode != fastpath.ModeAuto || !r.xdp {
		return err
	}
	if err == nil {
		err = cannotTransmit(devices)
	}
	if err == nil {
		return nil
	}
	return a.leaveXDP(err, devices)
}

// leaveXDP attaches by tc instead.
func (a *Attachment) leaveXDP(why error, devices []*device) error {
	undone := a.takeAway()
	a.regime = &regime{why: fmt.Sprintf("XDP does not serve: %v", why)}
	return errors.Join(undone, a.placeEach(devices))
}

// cannotTransmit names a device that does not send what XDP redirects into it.
// Many drivers begin to do so with the first program, so it can be asked only now.
func cannotTransmit(devices []*device) error {
	for _, d := range devices {
		d.lookAtXDP()
		if d.transmit == no {
			return d.transmitsNothing()
		}
	}
	return nil
}

func (a *Attachment) placeEach(devices []*device) error {
	for _, d := range devices {
		if err := a.place(d); err != nil {
			return err
		}
	}
	return nil
}

// place attaches to a device what the regime says.
func (a *Attachment) place(d *device) error {
	switch {
	case a.regime.xdp:
		return a.put(pinned.Spot{Place: pinned.PlaceXDP, Index: d.index}, d, a.programs.XDP)
	case a.config.Host:
		return a.put(pinned.Spot{Place: pinned.PlaceIngress, Index: d.index}, d, a.programs.HostIngress)
	default:
		return a.put(pinned.Spot{Place: pinned.PlaceIngress, Index: d.index}, d, a.programs.Ingress)
	}
}

// placeTunnel attaches a host's program for what leaves by the tunnel.
func (a *Attachment) placeTunnel() error {
	if !a.config.Host || a.config.Tunnel == 0 {
		return nil
	}
	d, err := deviceAt(a.config.Tunnel)
	if err != nil {
		return err
	}
	s := pinned.Spot{Place: pinned.PlaceEgress, Index: d.index}
	if err := a.put(s, d, a.programs.Egress); err != nil {
		return err
	}
	report := &a.placed[s].report
	report.Egress = true
	report.Why = "what this host sends into the tunnel is encapsulated before it leaves the kernel"
	return nil
}

// put attaches one program, or puts it into the link that a predecessor left.
func (a *Attachment) put(s pinned.Spot, d *device, p *ebpf.Program) error {
	if p == nil {
		return fmt.Errorf("there is no program for %s of %s", s.Place, d.name)
	}
	h, kind, err := a.fasten(s, d, p)
	if err != nil {
		return err
	}
	why := ""
	if a.regime != nil {
		why = a.regime.why
	}
	a.placed[s] = &placed{hook: h, report: DeviceReport{Device: d.name, Index: d.index, Hook: kind, Why: why}}
	return nil
}

func (a *Attachment) fasten(s pinned.Spot, d *device, p *ebpf.Program) (hook, Hook, error) {
	kind := HookTCX
	switch {
	case s.Place == pinned.PlaceXDP:
		kind = HookXDP
	case a.classic:
		h, err := attachFilter(a.config, s, d, p)
		return h, HookClassic, err
	}
	if l := a.old[s]; l != nil {
		delete(a.old, s)
		if l.renew(p) == nil {
			return l, kind, nil
		}
		// A link that does not take the program is of no use, and stands in the way.
		if err := l.detach(); err != nil {
			return nil, kind, err
		}
	}
	l, err := attachLink(s, d, p)
	if err != nil {
		return nil, kind, err
	}
	if a.config.Pins != nil {
		if err := l.pin(a.config.Pins.LinkPath(s)); err != nil {
			return nil, kind, errors.Join(err, l.detach())
		}
	}
	return l, kind, nil
}

// Report reports every device, attached ones first, in the order of their
// interface indices.
func (a *Attachment) Report() []DeviceReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reports()
}

func (a *Attachment) reports() []DeviceReport {
	var reports []DeviceReport
	for _, s := range a.spots() {
		r := a.placed[s].report
		r.Warnings = slices.Clone(r.Warnings)
		reports = append(reports, r)
	}
	return append(reports, a.left...)
}

// XDP reports whether packets are redirected by XDP; otherwise by tc.
func (a *Attachment) XDP() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.regime != nil && a.regime.xdp
}

// Close detaches everything and unpins the links.
func (a *Attachment) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.detachAll()
}

// Leave lets go of everything and keeps it attached for a successor that opens
// the same pins. Without pins no one could take over, so then it is Close.
func (a *Attachment) Leave() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.config.Pins == nil {
		return a.detachAll()
	}
	a.finished = true
	a.unwatch()
	a.unregister()
	var errs []error
	for _, s := range a.spots() {
		errs = append(errs, a.placed[s].hook.leave())
	}
	clear(a.placed)
	return errors.Join(errs...)
}

func (a *Attachment) detachAll() error {
	a.finished = true
	a.unwatch()
	a.unregister()
	return errors.Join(a.takeAway(), a.dropInherited(), a.dropFilters())
}

// takeAway detaches what was placed.
func (a *Attachment) takeAway() error {
	var errs []error
	for _, s := range a.spots() {
		errs = append(errs, a.placed[s].hook.detach())
		delete(a.placed, s)
	}
	return errors.Join(errs...)
}

// DetachLeft detaches what a predecessor left in the pins of o, for a successor
// that attaches nothing itself: programs that no one looks after would go on
// redirecting, whatever the successor's reason to keep to the engine is.
func DetachLeft(o Config) error {
	if o.Pins == nil {
		return nil
	}
	old, err := inherit(o.Pins)
	if err != nil {
		return err
	}
	a := &Attachment{config: o, old: old}
	return a.detachAll()
}

// dropInherited detaches links of a predecessor that no one wants any more.
func (a *Attachment) dropInherited() error {
	var errs []error
	for s, l := range a.old {
		errs = append(errs, l.detach())
		delete(a.old, s)
	}
	return errors.Join(errs...)
}

// dropFilters removes filters of a predecessor from devices that are no longer
// wanted, and from all if links have taken their place.
func (a *Attachment) dropFilters() error {
	if a.config.Pins == nil {
		return nil
	}
	var errs []error
	for _, h := range a.config.Pins.Filters() {
		if p := a.placed[h.Spot]; p == nil || p.report.Hook != HookClassic {
			errs = append(errs, h.Detach())
		}
	}
	return errors.Join(errs...)
}

func (a *Attachment) spots() []pinned.Spot {
	return slices.SortedFunc(maps.Keys(a.placed), func(x, y pinned.Spot) int {
		if x.Index != y.Index {
			return x.Index - y.Index
		}
		return slices.Index([]string{pinned.PlaceXDP, pinned.PlaceIngress, pinned.PlaceEgress}, x.Place) -
			slices.Index([]string{pinned.PlaceXDP, pinned.PlaceIngress, pinned.PlaceEgress}, y.Place)
	})
}

// isOwn reports whether a program is ours or our predecessor's.
func (a *Attachment) isOwn(other program) bool {
	if other.name == a.config.filterName() || slices.Contains(a.config.Kin, ebpf.ProgramID(other.id)) {
		return true
	}
	for _, l := range a.old {
		if l.program == other.id {
			return true
		}
	}
	for _, p := range a.placed {
		if l, ok := p.hook.(*linkHook); ok && l.program == other.id {
			return true
		}
	}
	return false
}
