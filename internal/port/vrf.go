// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VRF tells whether a VRF is there: a device whose members route by a table of its own. An
// error says what is wrong.
func (h *Host) VRF(name string) error {
	v, err := h.vrf(name)
	if err != nil {
		return err
	}
	if v.RawFlags&unix.IFF_UP == 0 {
		err = fmt.Errorf("the VRF %s is down: run ip link set %s up", name, name)
	}
	links, listErr := h.linkList()
	return errors.Join(err, listErr, ownTable(v, links))
}

// ownTable returns who else routes by the table of a VRF, which is then no network apart.
func ownTable(v *netlink.Vrf, links []netlink.Link) error {
	const remedy = "make it again with a table that nothing else has"
	switch v.Table {
	case unix.RT_TABLE_MAIN, unix.RT_TABLE_LOCAL, unix.RT_TABLE_DEFAULT:
		return fmt.Errorf("the VRF %s has table %d, by which this host routes outside of VRFs: %s", v.Name, v.Table, remedy)
	}
	for _, l := range links {
		if other, ok := l.(*netlink.Vrf); ok && other.Index != v.Index && other.Table == v.Table {
			return fmt.Errorf("the VRF %s has table %d, as %s does, so that each has the routes of the other: %s", v.Name, v.Table, other.Name, remedy)
		}
	}
	return nil
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
// another network. One that somebody else has put there stays there in the end.
func (h *Host) Enslave(link, vrf string) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	index, mark := l.Attrs().Index, placement(link, vrf)
	ours := slices.Contains(l.Attrs().AltNames, mark)
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
		if err == nil && !inside() {
			if err = h.handle.LinkSetMaster(l, v); err != nil {
				err = h.problem("put into the VRF "+vrf, link, err)
			} else {
				ours = true
				_ = h.handle.LinkAddAltName(l, mark) // it may be there; before Linux 5.5 there are none
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
			if !ours {
				return nil
			}
			_ = h.handle.LinkDelAltName(l, mark)
			if !inside() {
				return nil
			}
			return h.handle.LinkSetNoMaster(l)
		},
		there: func(*seen) bool { return inside() },
	})
	return nil
}

// placement is a further name of a link that we have put into a VRF: who comes after a process that was killed, or that
// has left the link to it, knows by that whose doing it was.
func placement(link, vrf string) string { return "isthmus-" + link + "-in-" + vrf }

// LeaveVRF takes a link out of the VRF that it is in, if an earlier process has put it there.
func (h *Host) LeaveVRF(link string) error {
	l, err := h.link(link)
	if err != nil {
		return err
	}
	master, err := h.handle.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return nil // it is in nothing
	}
	vrf := master.Attrs().Name
	mark := placement(link, vrf)
	if !slices.Contains(l.Attrs().AltNames, mark) {
		return nil
	}
	if err := h.handle.LinkSetNoMaster(l); err != nil {
		return h.problem("take out of the VRF "+vrf, link, err)
	}
	_ = h.handle.LinkDelAltName(l, mark) // it says nothing any more
	return nil
}

// inVRFs are the names of the VRFs and of the links in them.
func (h *Host) inVRFs() (map[string]bool, error) {
	links, err := h.linkList()
	vrfs, in := map[int]bool{}, map[string]bool{}
	for _, l := range links {
		_, vrfs[l.Attrs().Index] = l.(*netlink.Vrf)
	}
	for _, l := range links {
		in[l.Attrs().Name] = vrfs[l.Attrs().Index] || vrfs[l.Attrs().MasterIndex]
	}
	return in, err
}

// GlobalOfVRF returns the lowest global address of each family that the members of a VRF have,
// but for the one named, and those of the VRF itself; not valid if there is none.
func (h *Host) GlobalOfVRF(vrf, without string) (v4, v6 netip.Addr, err error) {
	links, err := h.linkList()
	if err != nil {
		return v4, v6, err
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
