// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunAlias is the alias ("ip link" shows it) of the devices that outlive us, which
// tells them from those that someone else made.
const tunAlias = "isthmus: stays while the process restarts"

// Discard makes a device of [TUNConfig].Persistent go with the last of its queues,
// as others do.
func (t *TUN) Discard() error {
	if !t.persistent {
		return nil
	}
	if !t.guard.enter() {
		return ErrClosed
	}
	defer t.guard.leave()
	// One that someone has deleted does not stay behind.
	if err := unix.IoctlSetInt(t.guard.fd, unix.TUNSETPERSIST, 0); err != nil && !errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("cannot give up the TUN device %s: %w", t.name, err)
	}
	return nil
}

// RemoveTUN removes the device of that name if a process that is gone has left it
// behind, and reports whether there was one.
func (h *Host) RemoveTUN(name string) (removed bool, err error) {
	l, err := leftTUN(h.handle, name)
	if l == nil || err != nil {
		return false, err
	}
	if err := h.handle.LinkDel(l); err != nil {
		return false, h.problem("remove", name, err)
	}
	return true, nil
}

// LeftTUNs lists the devices that processes that are gone have left behind.
func (h *Host) LeftTUNs() ([]string, error) {
	links, err := h.linkList()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if a := l.Attrs(); a.Alias == tunAlias && !isOpen(l) {
			names = append(names, a.Name)
		}
	}
	return names, nil
}

// Carrier reports whether a link has one: of a TUN device that is up, whether a program
// has it open. That it is "running" is said up to a second too late.
func (h *Host) Carrier(link string) bool {
	l, err := h.handle.LinkByName(link)
	return err == nil && l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
}

// leftTUN finds the device of that name that a process has left behind, or nil.
// One that a process has open is an error.
func leftTUN(handle *netlink.Handle, name string) (netlink.Link, error) {
	l, err := handle.LinkByName(name)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot look for the TUN device %s: %w", name, err)
	}
	switch {
	case !isTUN(l) || l.Attrs().Alias != tunAlias:
		return nil, nil
	case isOpen(l):
		return nil, tunError(name, unix.EBUSY)
	}
	return l, nil
}

func isTUN(l netlink.Link) bool { return l.Type() == "tuntap" || l.Type() == "tun" }

// isOpen reports whether a program has a TUN device open. The kernel says that it has a carrier only while it is up, and
// of one with several queues at any time how many there are.
func isOpen(l netlink.Link) bool {
	t, ok := l.(*netlink.Tuntap)
	return l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 || ok && t.Queues+t.DisabledQueues > 0
}

// owner is whose a device is that is there before it is opened.
type owner uint8

const (
	nobodys   owner = iota // there is none
	left                   // an earlier process has left it, for us to go on with
	elsewhere              // someone has made it for us
)

// lookBefore looks what has the name of the device that is to be opened, and
// removes what an earlier process has left if it is not to go on with it.
func lookBefore(cfg *TUNConfig) (owner, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nobodys, fmt.Errorf("cannot open netlink: %w", err)
	}
	defer handle.Close()
	l, err := leftTUN(handle, cfg.Name)
	switch {
	case err != nil:
		return nobodys, err
	case l == nil:
		if _, err := handle.LinkByName(cfg.Name); err != nil {
			return nobodys, nil
		}
		return elsewhere, nil
	case cfg.Persistent:
		return left, nil
	}
	if err := handle.LinkDel(l); err != nil {
		return nobodys, fmt.Errorf("cannot remove the TUN device %s that an earlier process has left: %w", cfg.Name, err)
	}
	return nobodys, nil
}

// persist makes a new device outlive its queues, and marks it as ours.
func (t *TUN) persist() error {
	if err := unix.IoctlSetInt(t.guard.fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("cannot make the TUN device %s outlive the process: %w", t.name, err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err == nil {
		defer handle.Close()
		err = handle.LinkSetAlias(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: t.name, Index: t.index}}, tunAlias)
	}
	if err != nil {
		_ = unix.IoctlSetInt(t.guard.fd, unix.TUNSETPERSIST, 0)
		return fmt.Errorf("cannot mark the TUN device %s as ours: %w", t.name, err)
	}
	return nil
}
