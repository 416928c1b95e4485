// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links lists all links of the namespace, also if some changed meanwhile.
func links() ([]netlink.Link, error) {
	var list []netlink.Link
	var err error
	for range dumpAttempts {
		if list, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, unread("the network interfaces", err)
	}
	return list, nil
}

// findMasters looks for devices that belong to a VRF.
func findMasters(q Query) ([]Finding, error) {
	list, err := links()
	return vrfs(list, q.Devices), err
}

// vrfs finds the VRF of each device, be it the master or a master's master.
func vrfs(list []netlink.Link, devices []string) []Finding {
	byIndex := make(map[int]netlink.Link, len(list))
	for _, l := range list {
		byIndex[l.Attrs().Index] = l
	}
	var found []Finding
	for _, l := range list {
		if !slices.Contains(devices, l.Attrs().Name) {
			continue
		}
		// Masters make no circle, but a list may be torn.
		at := l
		for range 8 {
			if at == nil || at.Type() == "vrf" {
				break
			}
			at = byIndex[at.Attrs().MasterIndex]
		}
		if at != nil && at.Type() == "vrf" {
			found = append(found, Finding{
				What:   fmt.Sprintf("the VRF %s of %s", at.Attrs().Name, l.Attrs().Name),
				Detail: "it routes by a table of its own, apart from this instance's",
				Remedy: fmt.Sprintf("Take it out of the VRF (ip link set %s nomaster), leave it out of fast_path_devices, %s.", l.Attrs().Name, choose),
			})
		}
	}
	return found
}

// findForwarding looks whether the kernel would forward IPv6 at all. The IPv4
// datagrams of Teredo start and end here, so IPv4 forwarding has no say; and the
// setting of a single device does not keep the kernel from forwarding IPv6, but
// for the one that forces it.
func findForwarding(q Query) ([]Finding, error) {
	if q.Host {
		return nil, nil
	}
	if found, err := findForwarding4(q); len(found) > 0 || err != nil {
		return found, err
	}
	on, err := enabled("/proc/sys/net/ipv6/conf/all/forwarding")
	if err != nil || on {
		return nil, err
	}
	for _, device := range append(slices.Clone(q.Devices), q.Tunnel) {
		forced, err := enabled("/proc/sys/net/ipv6/conf/" + device + "/force_forwarding")
		if err != nil {
			return nil, err
		}
		if !forced {
			return []Finding{{
				What:   "the switch of IPv6 forwarding, which is off",
				Detail: "the kernel would forward nothing between the devices and " + q.Tunnel + " (net.ipv6.conf.all.forwarding is 0)",
				Remedy: "Switch it on (sysctl -w net.ipv6.conf.all.forwarding=1): this host is a router then.",
			}}, nil
		}
	}
	return nil, nil
}

// findForwarding4 does the same for IPv4, which each device has a switch for.
func findForwarding4(q Query) ([]Finding, error) {
	if !q.Forward4 {
		return nil, nil
	}
	for _, device := range q.Devices {
		path := "/proc/sys/net/ipv4/conf/" + device
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // who names a device that is not there hears of that
		}
		on, err := enabled(path + "/forwarding")
		if err != nil {
			return nil, err
		}
		if !on {
			return []Finding{{
				What:   "the switch of IPv4 forwarding, which is off",
				Detail: fmt.Sprintf("the kernel would forward nothing from %s to %s (net.ipv4.conf.%s.forwarding is 0)", device, q.Tunnel, device),
				Remedy: "Switch it on (sysctl -w net.ipv4.ip_forward=1): this host is a router then.",
			}}, nil
		}
	}
	return nil, nil
}

// enabled reads a switch of the kernel; one that is not there is off.
func enabled(path string) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unread(path, err)
	}
	value := strings.TrimSpace(string(b))
	return value != "" && value != "0", nil
}

// ours is how the names of Isthmus's own filters and programs begin.
const ours = "isthmus"

// findFilters looks for traffic control on the devices that looks at packets.
func findFilters(q Query) ([]Finding, error) {
	list, err := links()
	if err != nil {
		return nil, err
	}
	var found []Finding
	var errs []error
	for _, l := range list {
		if !slices.Contains(q.Devices, l.Attrs().Name) {
			continue
		}
		for _, place := range filterPlaces {
			if place.out && !q.XDP {
				continue
			}
			what, err := place.others(l, q.Own)
			if err != nil {
				errs = append(errs, unread(fmt.Sprintf("the tc filters of %s", l.Attrs().Name), err))
			}
			if what == "" {
				continue
			}
			found = append(found, Finding{
				What:   fmt.Sprintf("traffic control at %s of %s", place.name, l.Attrs().Name),
				Detail: fmt.Sprintf("there is %s of somebody else", what),
				Remedy: fmt.Sprintf("Remove it (tc filter show dev %s %s; bpftool net), %s.", l.Attrs().Name, place.name, choose),
			})
		}
	}
	return found, errors.Join(errs...)
}

// filterPlace is where tc looks at packets of a device.
type filterPlace struct {
	name   string
	parent uint32
	attach ebpf.AttachType
	out    bool
}

var filterPlaces = []filterPlace{
	{"ingress", netlink.HANDLE_MIN_INGRESS, ebpf.AttachTCXIngress, false},
	{"egress", netlink.HANDLE_MIN_EGRESS, ebpf.AttachTCXEgress, true},
}

// others names the first filter or program of someone else, if there is one.
func (p filterPlace) others(l netlink.Link, own func() []ebpf.ProgramID) (string, error) {
	filters, err := netlink.FilterList(l, p.parent)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return "", err
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); !ok || !strings.HasPrefix(b.Name, ours) {
			return fmt.Sprintf("a %s filter of preference %d", f.Type(), f.Attrs().Priority), nil
		}
	}
	if own == nil {
		own = func() []ebpf.ProgramID { return nil }
	}
	known := own()
	programs, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: p.attach})
	if err != nil {
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
			return "", nil // before tcx
		}
		return "", err
	}
	known = append(known, own()...)
	for _, program := range programs.Programs {
		if slices.Contains(known, program.ID) {
			continue
		}
		name, err := programName(program.ID)
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(name, ours) {
			return "a BPF program named " + name, nil
		}
	}
	return "", nil
}

// programName reads a BPF program's name.
func programName(id ebpf.ProgramID) (string, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return ours, nil // it has gone meanwhile
	}
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}
