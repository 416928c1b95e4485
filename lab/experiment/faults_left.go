// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/lab"
)

// traces are what a host holds that a process may have made, in words.
func (s *subject) traces() (list []string, err error) {
	handle := s.node.Kernel()
	links, err := handle.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		a := l.Attrs()
		list = append(list, fmt.Sprintf("device %s of type %s, alias %q, XDP %v", a.Name, l.Type(), a.Alias, a.Xdp != nil && a.Xdp.Attached))
		disciplines, err := handle.QdiscList(l)
		if err != nil {
			return nil, err
		}
		for _, q := range disciplines {
			list = append(list, fmt.Sprintf("%s at device %s", q.Type(), a.Name))
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		more, err := routing(handle, family)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	kept, err := s.kept()
	return append(list, kept...), err
}

// routing are the addresses, routes, rules and answers for others of a family.
func routing(handle *lab.Kernel, family int) (list []string, err error) {
	addresses, err := handle.AddrList(nil, family)
	for _, a := range addresses {
		list = append(list, fmt.Sprintf("address %s on device %d", a.IPNet, a.LinkIndex))
	}
	routes, routesErr := handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	for _, r := range routes {
		list = append(list, fmt.Sprintf("route to %v by %v, device %d, table %d, metric %d", r.Dst, r.Gw, r.LinkIndex, r.Table, r.Priority))
	}
	rules, rulesErr := handle.RuleList(family)
	for _, r := range rules {
		list = append(list, "rule "+r.String())
	}
	answers, answersErr := handle.NeighProxyList(0, family)
	for _, n := range answers {
		list = append(list, fmt.Sprintf("answers for %v", n.IP))
	}
	return list, errors.Join(err, routesErr, rulesErr, answersErr)
}

// kept is what lies in file systems for a successor. A counter, which stays, is not looked at.
func (s *subject) kept() (list []string, err error) {
	for _, pattern := range []string{filepath.Join(kept.Folder, s.name+".*"), s.stateFile("nat64", 1), s.stateFile("teredo_relay", 1), s.socket()} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			list = append(list, "file "+file)
		}
	}
	pins, err := pinned.Leftovers()
	for _, p := range pins {
		if p.Instance == driver.PinName(s.name) {
			list = append(list, "pins in "+p.Dir)
		}
	}
	return list, err
}

// left is what has come between two looks.
func left(before, after []string) (more []string) {
	before = slices.Clone(before)
	for _, trace := range after {
		if i := slices.Index(before, trace); i >= 0 {
			before = slices.Delete(before, i, i+1)
			continue
		}
		more = append(more, trace)
	}
	return more
}

// clean stops the process, has isthmus clean remove what is kept, and finds what of a run is
// left all the same.
func (s *subject) clean(ctx context.Context, before []string) (more []string, err error) {
	if err := s.end(unix.SIGTERM); err != nil {
		more = append(more, err.Error())
	}
	if text, err := s.node.Run(ctx, s.binary, "clean", "-c", s.file()); err != nil {
		more = append(more, strings.TrimSpace(string(text)), err.Error())
	}
	after, err := s.traces()
	return append(more, left(before, after)...), err
}

// holds is what a process holds.
type holds struct{ files, routines, memory int }

// String is for people.
func (h holds) String() string {
	return fmt.Sprintf("%d files, %d goroutines and %.1f MB", h.files, h.routines, float64(h.memory)/1e6)
}

// Goroutines come and go with what a process does: the fewest of some looks count.
const (
	holdsLooks = 5
	holdsGap   = 30 * time.Millisecond
)

func (s *subject) holds(ctx context.Context) (h holds, err error) {
	if h.files, err = s.descriptors(); err != nil {
		return h, err
	}
	for range holdsLooks {
		values, err := s.scrape(ctx)
		if err != nil {
			return h, err
		}
		if n := int(values["go_goroutines"]); h.routines == 0 || n < h.routines {
			h.routines = n
		}
		time.Sleep(holdsGap)
	}
	h.memory, err = processMemory(s.process.PID())
	return h, err
}
