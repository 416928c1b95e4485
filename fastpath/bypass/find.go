// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// Finding is one thing that redirected packets do not meet, in words for people.
type Finding struct {
	// What is named, such as "connection tracking".
	What string
	// Detail says where it is, and how much of it: a sentence without its full stop.
	Detail string
	// Remedy is a sentence that says what to do.
	Remedy string
}

// String returns all of it.
func (f Finding) String() string { return f.What + ": " + f.Detail + ". " + f.Remedy }

// Query says whose packets are to be redirected.
type Query struct {
	// Devices are the names of the network interfaces to attach to.
	Devices []string
	// Tunnel is the name of the role's own TUN device. It need not exist yet.
	Tunnel string
	// Prefixes are those whose packets a relay encapsulates, or a translator takes.
	Prefixes []netip.Prefix
	// Host says that packets start or end on this host, so that nothing is
	// forwarded.
	Host bool
	// Forward4 says that IPv4 packets are forwarded, as a translator's are, and do not
	// start and end on this host, as a relay's datagrams do.
	Forward4 bool
	// Local4 says that IPv4 datagrams start and end on this host beside what it forwards, as those
	// of a tunnel do.
	Local4 bool
	// XDP says that XDP redirects, which skips also what a device does with
	// packets on their way out of it.
	XDP bool
	// Own tells the caller's own programs; nil: it has none. Others of Isthmus are known by
	// their names, if the process may read those. It is asked before and behind each look,
	// since another instance of the process may attach or detach its own meanwhile.
	Own func() []ebpf.ProgramID
}

// Find looks at everything that redirecting would skip in the calling thread's
// network namespace. The error joins what could not be read, one sentence for
// each; the findings are still true then, but there may be more. Two calls of
// which nothing happened in between return equal findings, so that callers can
// compare them.
func Find(q Query) ([]Finding, error) {
	var found []Finding
	var errs []error
	for _, find := range []func(Query) ([]Finding, error){
		findRulesets, findLegacy, findHooks, findRules, findForwarding, findReverse,
		findMasters, findFilters, findPolicies, findRoutes,
	} {
		f, err := find(q)
		errs = append(errs, err)
		for _, finding := range f {
			if !slices.Contains(found, finding) {
				found = append(found, finding)
			}
		}
	}
	return found, errors.Join(errs...)
}
