// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
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

// filterHook holds a program by a filter in a clsact qdisc. It stays until it is
// removed, whatever becomes of the process.
type filterHook struct {
	spot   spot
	name   string // of the filter
	ownsUp bool   // we made the qdisc
	pins   *Pins
}

// attachFilter attaches the program by a filter, or replaces in one step the one
// that we or a predecessor have there.
func attachFilter(o AttachConfig, s spot, d *device, p *ebpf.Program) (*filterHook, error) {
	h := &filterHook{spot: s, name: o.filterName(), pins: o.Pins}
	made, err := makeQdisc(s, d)
	if err != nil {
		return nil, err
	}
	h.ownsUp = made || o.Pins != nil && strings.HasPrefix(o.Pins.Note(noteOf(s)), madeQdisc)
	f := filterFor(s, h.name)
	f.Fd = p.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return nil, errors.Join(explain(s, d, err), h.dropQdisc())
	}
	if err := h.note(); err != nil {
		return nil, errors.Join(err, h.detach())
	}
	return h, nil
}

// filterFor describes a filter. Its handle, made of the name, tells those of
// several instances on one device apart.
func filterFor(s spot, name string) *netlink.BpfFilter {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: s.index,
			Parent:    s.parent(),
			Handle:    sum.Sum32() | 1, // 0 would stand for every filter
			Protocol:  unix.ETH_P_ALL,
			Priority:  filterPriority,
		},
		Fd:           -1,
		Name:         name,
		DirectAction: true,
	}
}

// filterName names an instance's filters. A relay and a client may have the same
// name. The hyphens keep it apart from any program's own name.
func (o *AttachConfig) filterName() string {
	if o.Host {
		return "isthmus-host-" + o.Name
	}
	return "isthmus-forward-" + o.Name
}

// parent is the side of the clsact qdisc.
func (s spot) parent() uint32 {
	if s.place == placeEgress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

// makeQdisc sees to a qdisc that takes filters in the spot, and tells whether it
// was made for it.
func makeQdisc(s spot, d *device) (made bool, err error) {
	err = netlink.QdiscAdd(clsact(s.index))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, explain(s, d, err)
	}
	kind := qdiscKind(s.index)
	if kind == "clsact" || kind == "ingress" && s.place == placeIngress {
		return false, nil
	}
	return false, fmt.Errorf("%s has a qdisc of the kind %s where clsact must be: remove it with: tc qdisc del dev %s %s", d.name, kind, d.name, kind)
}

func clsact(index int) *netlink.GenericQdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
}

// qdiscKind returns the kind of the qdisc that holds ingress filters.
func qdiscKind(index int) string {
	qdiscs, err := netlink.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if err != nil {
		return ""
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			return q.Type()
		}
	}
	return ""
}

func noteOf(s spot) string { return filterNote + s.pin() }

func (h *filterHook) note() error {
	if h.pins == nil {
		return nil
	}
	if h.ownsUp {
		return h.pins.SetNote(noteOf(h.spot), madeQdisc+h.name)
	}
	return h.pins.SetNote(noteOf(h.spot), foundQdisc+h.name)
}

func (h *filterHook) detach() error {
	err := gone(netlink.FilterDel(filterFor(h.spot, h.name)))
	if err != nil {
		err = fmt.Errorf("cannot remove a tc filter: %w", err)
	}
	err = errors.Join(err, h.dropQdisc())
	if h.pins != nil {
		err = errors.Join(err, h.pins.SetNote(noteOf(h.spot), ""))
	}
	return err
}

// dropQdisc removes the qdisc if we made it and nobody else has put filters there
// since.
func (h *filterHook) dropQdisc() error {
	if !h.ownsUp {
		return nil
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: h.spot.index}}, parent)
		if err != nil || len(filters) > 0 {
			return gone(err)
		}
	}
	if err := gone(netlink.QdiscDel(clsact(h.spot.index))); err != nil {
		return fmt.Errorf("cannot remove the clsact qdisc: %w", err)
	}
	return nil
}

func (h *filterHook) leave() error { return nil }

// gone takes it as done that what is to be removed, or its device, is not there.
func gone(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ENODEV, unix.EINVAL} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// inheritedFilters lists the filters that a predecessor left, by the notes about
// them.
func inheritedFilters(pins *Pins) []*filterHook {
	names, err := pins.Names()
	if err != nil {
		return nil
	}
	var found []*filterHook
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, filterNote)
		place, index, _ := strings.Cut(rest, "_")
		i, err := strconv.Atoi(index)
		if !ok || err != nil {
			continue
		}
		kind, name, _ := strings.Cut(pins.Note(n), " ")
		found = append(found, &filterHook{spot: spot{place, i}, name: name, ownsUp: kind+" " == madeQdisc, pins: pins})
	}
	return found
}
