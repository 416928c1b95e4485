// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VRF tells whether a VRF is there: a device whose members route by a table of its own. An
// error says what is wrong.
func (h *Host) VRF(name string) error {
	v, err := h.vrf(name)
	if err == nil && v.RawFlags&unix.IFF_UP == 0 {
		err = fmt.Errorf("the VRF %s is down: run ip link set %s up", name, name)
	}
	return err
}

func (h *Host) vrf(name string) (*netlink.Vrf, error) {
	l, err := h.handle.LinkByName(name)
	if err != nil {
		return nil, &noVRFError{name, err}
	}
	v, ok := l.(*netlink.Vrf)
	if !ok {
		return nil, fmt.Errorf("%s is no VRF but of the kind %s: name one that ip link show type vrf lists", name, l.Type())
	}
	return v, nil
}

// noVRFError is the lack of a VRF.
type noVRFError struct {
	name  string
	cause error
}

// Error implements error.
func (e *noVRFError) Error() string {
	return fmt.Sprintf("there is no VRF %s: run ip link add %s type vrf table 100, with a table that nothing else has, and ip link set %s up", e.name, e.name, e.name)
}

// Unwrap returns what netlink says.
func (e *noVRFError) Unwrap() error { return e.cause }

// tableOf is the routing table of a VRF; the main one without a name.
func (h *Host) tableOf(vrf string) (uint32, error) {
	if vrf == "" {
		return unix.RT_TABLE_MAIN, nil
	}
	v, err := h.vrf(vrf)
	if err != nil {
		return 0, err
	}
	return v.Table, nil
}

// Enslave puts a link into a VRF, whose table routes what comes in by it. When it is taken out,
// or the VRF has gone, the link is down until it is back: outside, its packets would come into
// another network.
func (h *Host) Enslave(link, vrf string) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	index := l.Attrs().Index
	inside := func() bool {
		now, err := h.handle.LinkByIndex(index)
		if err != nil {
			return false
		}
		v, err := h.vrf(vrf)
		return err == nil && now.Attrs().MasterIndex == v.Index
	}
	shut := func() {
		if h.handle.LinkSetDown(l) == nil {
			h.shut[index] = true
		}
	}
	set := func() error {
		v, err := h.vrf(vrf)
		if err == nil {
			if err = h.handle.LinkSetMaster(l, v); err != nil {
				err = h.problem("put into the VRF "+vrf, link, err)
			}
		}
		if err == nil && h.shut[index] {
			err = h.handle.LinkSetUp(l)
		}
		if err != nil {
			shut()
			return err
		}
		delete(h.shut, index)
		return nil
	}
	h.mu.Lock()
	err = set()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	h.done(&Thing{
		key: "place of " + link + " in the VRF " + vrf, link: index, again: set, lost: shut,
		back: func() error {
			if !inside() {
				return nil
			}
			return h.handle.LinkSetNoMaster(l)
		},
		there: func(*seen) bool { return inside() },
	})
	return nil
}

// GlobalOfVRF returns the lowest global address of each family that the members of a VRF have,
// but for the one named, and those of the VRF itself; not valid if there is none.
func (h *Host) GlobalOfVRF(vrf, without string) (v4, v6 netip.Addr, err error) {
	links, err := h.handle.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return v4, v6, fmt.Errorf("cannot list the network interfaces: %w", err)
	}
	v, err := h.vrf(vrf)
	if err != nil {
		return v4, v6, err
	}
	in := make(map[int]bool)
	for _, l := range links {
		a := l.Attrs()
		in[a.Index] = a.Name != without && (a.Index == v.Index || a.MasterIndex == v.Index)
	}
	addrs, err := h.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return v4, v6, fmt.Errorf("cannot list the host's addresses: %w", err)
	}
	for _, one := range addrs {
		p, ok := prefix(one.IPNet)
		if !ok || !in[one.LinkIndex] {
			continue
		}
		best := &v4
		if p.Addr().Is6() {
			best = &v6
		}
		if (p.Addr().Is4() && p.Addr().IsGlobalUnicast() || usable(one, nil)) && (!best.IsValid() || p.Addr().Less(*best)) {
			*best = p.Addr()
		}
	}
	return v4, v6, nil
}
