// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	leases "github.com/isthmus-net/isthmus/gprs/pool"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// NamedPool is a part of the pools of an access point, with the name by which servers choose it.
type NamedPool leases.Part

// String is the part as the file has it.
func (n NamedPool) String() string { return n.Name + " " + n.Prefix.String() }

// namedPool parses a name with its prefix.
var namedPool = key.Text("gold 10.45.8.0/21", func(s string) (n NamedPool, f *key.Fault) {
	name, prefix, both := strings.Cut(s, " ")
	if !both || name == "" || len(name) > maxPoolName {
		return n, key.Wrong(`write a name and its prefix, like "gold 10.45.8.0/21"`, "%q does not say what a part of a pool is called", s)
	}
	n.Name = name
	n.Prefix, f = key.PrefixLike(prefix, "gold 10.45.8.0/21")
	return n, f
})

// maxPoolName is how long an attribute can be.
const maxPoolName = 253

// named are the parts as the engine has them.
func (a *APN) named() (list []leases.Part) {
	for _, n := range a.Named {
		list = append(list, leases.Part(n))
	}
	return list
}

// checkNamed wants parts of the pools, apart from each other.
func (a *APN) checkNamed(c *config.Checker, path string) {
	if !c.OK(path + ".named_pools") {
		return
	}
	for i, n := range a.Named {
		at := fmt.Sprintf("%s.named_pools[%d]", path, i)
		within := func(p netip.Prefix) bool { return p.Bits() <= n.Prefix.Bits() && p.Contains(n.Prefix.Addr()) }
		if !slices.ContainsFunc(slices.Concat(a.Pool4, a.Pool6), within) {
			c.Fail(at, fmt.Sprintf("%s is in no pool of the access point", n.Prefix), "name a part of pool4 or pool6")
		}
		if k := slices.IndexFunc(a.Named[:i], func(m NamedPool) bool { return m.Prefix.Overlaps(n.Prefix) }); k >= 0 {
			c.Fail(at, fmt.Sprintf("%s overlaps %s", n, a.Named[k]), "choose prefixes apart")
		}
	}
}
