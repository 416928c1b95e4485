// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// listAttempts is how often a list of links is asked for while links come and
// go, which spoils the kernel's answer.
const listAttempts = 5

// listDevices returns every interface of the calling thread's namespace, the
// cheap facts only.
func listDevices() ([]*device, error) {
	links, err := listLinks()
	if err != nil {
		return nil, fmt.Errorf("cannot list the network devices: %w", err)
	}
	masters := make(map[int]string)
	for _, l := range links {
		if slices.Contains(mastersOfFrames, l.Type()) {
			masters[l.Attrs().Index] = l.Attrs().Name
		}
	}
	devices := make([]*device, 0, len(links))
	for _, l := range links {
		devices = append(devices, newDevice(l, masters))
	}
	return devices, nil
}

// askLinks dumps all links; a test counts how often.
var askLinks = netlink.LinkList

func listLinks() (links []netlink.Link, err error) {
	for range listAttempts {
		if links, err = askLinks(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return links, err
		}
	}
	return links, err
}

func newDevice(l netlink.Link, masters map[int]string) *device {
	a := l.Attrs()
	d := &device{
		name:     a.Name,
		index:    a.Index,
		kind:     l.Type(),
		ethernet: a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0,
		up:       a.Flags&net.FlagUp != 0,
		mtu:      a.MTU,
		rxQueues: a.NumRxQueues,
		master:   masters[a.MasterIndex],
	}
	if x := a.Xdp; x != nil && x.Attached {
		d.xdp = &program{id: x.ProgId, name: programName(x.ProgId), mode: xdpMode(x.AttachMode)}
	}
	if d.kind == kindVeth {
		d.farIndex, d.farNamespace = a.ParentIndex, a.NetNsID
	}
	return d
}

// xdpMode names a value of IFLA_XDP_ATTACHED (uapi/linux/if_link.h).
func xdpMode(attached uint32) string {
	switch attached {
	case 1:
		return "native"
	case 2:
		return "generic"
	case 3:
		return "offloaded"
	default:
		return "several"
	}
}

// look asks for what costs more: drivers, features and programs, but for our own.
func (d *device) look(own func(program) bool) {
	d.driver = driverOf(d.name)
	if d.kind == kindVeth {
		d.far = findFarEnd(d.farIndex, d.farNamespace)
	}
	d.lookAtXDP()
	switch {
	case d.xdp == nil:
	case own(*d.xdp):
		d.xdp = nil
	default:
		d.xdp.recognize()
	}
	d.ingress = d.ingress[:0]
	for _, p := range tcPrograms(d.index, ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS) {
		if !own(p) {
			p.recognize()
			d.ingress = append(d.ingress, p)
		}
	}
}

// lookAtXDP asks what the driver can do.
func (d *device) lookAtXDP() { d.learnXDP(xdpFeatures(d.index)) }

// learnXDP fills in what the driver can do. Kernels before 6.3 do not tell: of
// veth it can be worked out, other software but bonds has no XDP, and of hardware
// an attempt shows it.
func (d *device) learnXDP(features uint64, known bool) {
	d.native, d.transmit, d.fragments = unknown, unknown, unknown
	switch {
	case known:
		d.native = answered(features&xdpNeeded == xdpNeeded)
		d.transmit = answered(features&xdpTransmit != 0)
		d.fragments = answered(features&xdpFragments != 0)
	case d.kind == kindVeth:
		if d.far == nil || !d.far.known {
			d.native = yes
			return
		}
		d.transmit = answered(d.far.gro || d.far.xdp)
		// Queues beyond the receiving ones may be switched off.
		if d.far.txQueues <= d.rxQueues {
			d.native = yes
		}
	case d.kind != "device" && d.kind != "bond":
		d.native, d.transmit = no, no
	}
}

// tcPrograms lists the programs and filters of a device in one direction, those
// of tcx first, as they run. What may not be asked is left out.
func tcPrograms(index int, tcx ebpf.AttachType, parent uint32) []program {
	var found []program
	if r, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: tcx}); err == nil {
		for _, p := range r.Programs {
			found = append(found, program{id: uint32(p.ID), name: programName(uint32(p.ID))})
		}
	}
	filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, parent)
	if err != nil {
		return found
	}
	for _, f := range filters {
		if bpf, ok := f.(*netlink.BpfFilter); ok {
			found = append(found, program{id: uint32(bpf.Id), name: bpf.Name})
			continue
		}
		found = append(found, program{name: "a " + f.Type() + " filter"})
	}
	return found
}

// programName asks for the name of a loaded program; it is empty for who may not
// ask.
func programName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
