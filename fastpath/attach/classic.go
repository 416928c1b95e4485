// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// filterHook holds a program by a filter in a clsact qdisc.
type filterHook struct{ *pinned.Filter }

func (h filterHook) detach() error { return h.Detach() }

func (h filterHook) leave() error { return nil }

// there looks for the filter: whoever deletes the qdisc takes it away with it.
func (h filterHook) there() bool {
	want := h.Describe()
	filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: h.Spot.Index}}, want.Parent)
	return err != nil || slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		bpf, ok := f.(*netlink.BpfFilter)
		return ok && bpf.Name == want.Name
	})
}

// forget leaves alone what may be another's qdisc by now.
func (h filterHook) forget() error {
	h.OwnsQdisc = false
	return h.Detach()
}

// attachFilter attaches the program by a filter, or replaces in one step the one
// that we or a predecessor have there.
func attachFilter(o Config, s pinned.Spot, d *device, p *ebpf.Program) (hook, error) {
	h := filterHook{&pinned.Filter{Spot: s, Name: o.filterName(), Folder: o.Pins}}
	made, err := makeQdisc(s, d)
	if err != nil {
		return nil, err
	}
	h.OwnsQdisc = made || o.Pins != nil && o.Pins.MadeQdisc(s)
	f := h.Describe()
	f.Fd = p.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return nil, errors.Join(explain(s, d, err), h.DropQdisc())
	}
	if err := h.Keep(); err != nil {
		return nil, errors.Join(err, h.detach())
	}
	return h, nil
}

// filterPrefix is how the names of all our filters begin.
const filterPrefix = "isthmus-"

// filterName names an instance's filters. One that forwards and one of a host may have the same
// name. The hyphens keep it apart from any program's own name.
func (o *Config) filterName() string {
	if o.Host {
		return filterPrefix + "host-" + o.Name
	}
	return filterPrefix + "forward-" + o.Name
}

// makeQdisc sees to a qdisc that takes filters in the spot, and reports whether it
// was made for it.
func makeQdisc(s pinned.Spot, d *device) (made bool, err error) {
	err = netlink.QdiscAdd(pinned.Clsact(s.Index))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, explain(s, d, err)
	}
	kind := qdiscKind(s.Index)
	if kind == "clsact" || kind == "ingress" && s.Place == pinned.PlaceIngress {
		return false, nil
	}
	return false, fmt.Errorf("%s has a qdisc of the kind %s where clsact must be: remove it with: tc qdisc del dev %s %s", d.name, kind, d.name, kind)
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
