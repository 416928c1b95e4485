// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// judge looks at every attached device again, now that drivers show what they can
// do with a program, and writes into its report whether it is a target and what
// to warn of. It returns a device that was a target, and that now loses what XDP
// redirects into it. Without an answer of the kernel reports stay as they are.
func (a *Attachment) judge() (lost *device) {
	if len(a.placed) == 0 {
		return nil
	}
	all, err := listDevices() // once for all: there may be hundreds
	if err != nil {
		return nil
	}
	for s, p := range a.placed {
		i := slices.IndexFunc(all, func(d *device) bool { return d.index == s.Index })
		if i < 0 {
			continue // it has just vanished; the next Sync removes it
		}
		d := all[i]
		d.look(a.isOwn)
		p.report.MTU = d.mtu
		if s.Place == pinned.PlaceEgress {
			p.report.Warnings = a.egressWarnings(d)
			continue
		}
		a.recall(d)
		was := p.report.Target
		p.report.Target = d.isTarget(a.regime.xdp)
		p.report.Warnings = d.warnings(a.regime.xdp)
		if was && !p.report.Target {
			lost = d
		}
	}
	return lost
}

// isTarget reports whether what is redirected into the device is sent. Of a device
// that would lose frames in silence the answer is no, and so it is where that
// cannot be known.
func (d *device) isTarget(xdp bool) bool {
	switch {
	case !xdp:
		return true
	case d.kind == kindVeth:
		return d.transmit == yes
	default:
		return d.transmit != no
	}
}

// warnings says what is wrong with a device, and what to do about it.
func (d *device) warnings(xdp bool) []string {
	var words []string
	warn := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if !d.up {
		warn("%s is down: bring it up with: ip link set %s up", d.name, d.name)
	}
	if !xdp {
		if d.xdp != nil {
			warn("the XDP program %s on %s comes first: what it redirects or drops never reaches the fast path", d.xdp, d.name)
		}
		// Other instances' pass on what is not theirs, as ours do.
		others := slices.DeleteFunc(slices.Clone(d.ingress), program.ours)
		if len(others) > 0 {
			warn("other tc programs are on %s: %s; redirected packets do not reach those that come after ours", d.name, inWords(others))
		}
		return words
	}
	if len(d.ingress) > 0 {
		warn("redirected packets go round the tc programs on %s: %s", d.name, inWords(d.ingress))
	}
	if d.mtu > maxNativeMTU && d.fragments == no {
		warn("%s has an MTU of %d, and with XDP %s takes up to %d: lower it, or set fast_path to tc", d.name, d.mtu, d.driverInWords(), maxNativeMTU)
	}
	if w := d.noTransmit(); w != "" {
		words = append(words, w)
	}
	if d.far != nil {
		words = append(words, d.farWarnings()...)
	}
	return words
}

// noTransmit warns of a device that does not send what XDP redirects into it.
func (d *device) noTransmit() string {
	const engine = "until then packets that leave by it take the engine"
	switch {
	case d.isTarget(true):
		return ""
	case d.loses != nil:
		return fmt.Sprintf("%s, so packets that leave by it take the engine: set fast_path to tc", d.transmitsNothing())
	case d.kind != kindVeth:
		return fmt.Sprintf("%s, so packets that leave by it take the engine: set fast_path to tc", d.transmitsNothing())
	case d.transmit == no && d.far.name != "":
		return fmt.Sprintf("%s receives by no NAPI and would lose redirected frames, the far end of %s: switch it on with: ethtool -K %s gro on; %s", d.far, d.name, d.far.name, engine)
	case d.transmit == no:
		return fmt.Sprintf("%s of %s receives by no NAPI and would lose redirected frames: switch it on where that end is, with: ethtool -K DEVICE gro on; %s", d.far, d.name, engine)
	default:
		return fmt.Sprintf("if %s of %s receives by no NAPI, redirected frames would be lost, and from here that cannot be seen: set fast_path to tc; %s", d.far, d.name, engine)
	}
}

// transmitsNothing says that the device does not send what XDP redirects into it.
func (d *device) transmitsNothing() error {
	if d.loses != nil {
		return fmt.Errorf("%s has refused to send what XDP redirected into it (%w)", d.name, d.loses)
	}
	return fmt.Errorf("%s cannot send what XDP redirects into it", d.name)
}

// farWarnings warns of what the far end of a veth does to XDP.
func (d *device) farWarnings() []string {
	var words []string
	const cost = "XDP completes those of TCP, UDP and ICMPv6 at a cost, but not those of SCTP: set fast_path to tc"
	switch {
	case !d.far.known:
		words = append(words, fmt.Sprintf("if the far end of %s, in another namespace, leaves checksums to its device, %s", d.name, cost))
	case d.far.checksum:
		words = append(words, fmt.Sprintf("%s, of %s, leaves checksums to its device; %s, or switch that off with: ethtool -K %s tx off", d.far, d.name, cost, d.far.name))
	}
	return words
}

// egressWarnings names programs of others where packets leave.
func (a *Attachment) egressWarnings(d *device) []string {
	var others []program
	for _, p := range tcPrograms(d.index, ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS) {
		if !a.isOwn(p) {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("other tc programs are on %s: %s; packets of the fast path do not reach those that come after ours", d.name, inWords(others))}
}
