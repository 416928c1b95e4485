// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// filterPriority is below what tc gives to filters without one (49152 and up,
	// counting down), so that filters of others come first, as with tcx.
	filterPriority = 0xfffe
	// filterNote starts the name of the note that a filter is in a spot. The text
	// is one of the following and the filter's name.
	filterNote = "filter_"
	madeQdisc  = "qdisc " // we made the qdisc too
	foundQdisc = "filter "
)

// Filter holds a program by a filter in a clsact qdisc. It stays until it is removed,
// whatever becomes of the process, so the folder has a note of it.
type Filter struct {
	Spot Spot
	Name string
	// OwnsQdisc reports that the qdisc was made for it.
	OwnsQdisc bool
	Folder    *Folder // nil: there is no note
}

// Describe describes the filter to the kernel, without its program. Its handle, made of the
// name, tells those of several instances on one device apart.
func (h *Filter) Describe() *netlink.BpfFilter {
	sum := fnv.New32a()
	sum.Write([]byte(h.Name))
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: h.Spot.Index,
			Parent:    h.Spot.parent(),
			Handle:    sum.Sum32() | 1, // 0 would stand for every filter
			Protocol:  unix.ETH_P_ALL,
			Priority:  filterPriority,
		},
		Fd:           -1,
		Name:         h.Name,
		DirectAction: true,
	}
}

// parent is the side of the clsact qdisc.
func (s Spot) parent() uint32 {
	if s.Place == PlaceEgress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// Clsact is the qdisc that takes filters on a device.
func Clsact(index int) *netlink.GenericQdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
}

func noteOf(s Spot) string { return filterNote + s.Name() }

// MadeQdisc reports whether a predecessor has made the qdisc of a filter in the spot.
func (p *Folder) MadeQdisc(s Spot) bool { return strings.HasPrefix(p.Note(noteOf(s)), madeQdisc) }

// Keep notes the filter for a successor.
func (h *Filter) Keep() error {
	if h.Folder == nil {
		return nil
	}
	if h.OwnsQdisc {
		return h.Folder.SetNote(noteOf(h.Spot), madeQdisc+h.Name)
	}
	return h.Folder.SetNote(noteOf(h.Spot), foundQdisc+h.Name)
}

// Detach removes the filter.
func (h *Filter) Detach() error {
	err := gone(netlink.FilterDel(h.Describe()))
	if err != nil {
		err = fmt.Errorf("cannot remove a tc filter: %w", err)
	}
	err = errors.Join(err, h.DropQdisc())
	if h.Folder != nil {
		err = errors.Join(err, h.Folder.SetNote(noteOf(h.Spot), ""))
	}
	return err
}

// DropQdisc removes the qdisc if we made it and no one else has put filters there
// since.
func (h *Filter) DropQdisc() error {
	if !h.OwnsQdisc {
		return nil
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: h.Spot.Index}}, parent)
		if err != nil || len(filters) > 0 {
			return gone(err)
		}
	}
	if err := gone(netlink.QdiscDel(Clsact(h.Spot.Index))); err != nil {
		return fmt.Errorf("cannot remove the clsact qdisc: %w", err)
	}
	return nil
}

// gone takes it as done that what is to be removed, or its device, is not there.
func gone(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ENODEV, unix.EINVAL} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// Filters lists the filters that a predecessor left, by the notes about them.
func (p *Folder) Filters() []*Filter {
	names, err := p.Names()
	if err != nil {
		return nil
	}
	var found []*Filter
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, filterNote)
		place, index, _ := strings.Cut(rest, "_")
		i, err := strconv.Atoi(index)
		if !ok || err != nil {
			continue
		}
		kind, name, _ := strings.Cut(p.Note(n), " ")
		found = append(found, &Filter{Spot: Spot{place, i}, Name: name, OwnsQdisc: kind+" " == madeQdisc, Folder: p})
	}
	return found
}
