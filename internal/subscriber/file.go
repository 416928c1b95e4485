// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
)

// Read reads a file of subscribers: a [[subscriber]] section for each. The file holds secrets,
// so strangers may not read it.
func Read(path string) (*File, error) {
	f := new(File)
	all, err := config.ReadTables(path, section, f.index)
	if err != nil {
		return nil, err
	}
	f.All = all
	return f, nil
}

// File are the subscribers of a file.
type File struct {
	All []*Subscriber

	imsi, private, public map[string]*Subscriber
}

// ByIMSI finds a subscriber; nil: there is none.
func (f *File) ByIMSI(imsi string) *Subscriber { return f.imsi[imsi] }

// ByPrivateID finds a subscriber by the name in digests; nil: there is none.
func (f *File) ByPrivateID(id string) *Subscriber { return f.private[id] }

// ByPublicID finds a subscriber by an address of record; nil: there is none.
func (f *File) ByPublicID(id string) *Subscriber { return f.public[canonical(id)] }

// Reference is a section in full with every default, commented.
func Reference() string { return section.Section().Reference() }

// canonical is an address of record as it is compared: scheme and host in small letters (RFC
// 3261 section 19.1.4).
func canonical(id string) string {
	user, host, found := strings.Cut(id, "@")
	if !found {
		return strings.ToLower(id)
	}
	scheme, user, _ := strings.Cut(user, ":")
	return strings.ToLower(scheme) + ":" + user + "@" + strings.ToLower(host)
}

// check makes the checks of one subscriber that take more than one key.
func (s *Subscriber) check(c *config.Checker) {
	if s.IMSI == "" && s.PrivateID == "" && c.OK("imsi", "private_id") {
		c.Fail("", "nothing tells this subscriber from others", `add imsi = "001010123456789", or private_id = "alice@ims.example"`)
	}
	s.checkAKA(c)
	if s.Password != "" && (s.HA1 != "" || s.HA1SHA256 != "") {
		c.Fail("password", "the password is there, and a digest of it, too", "keep one of the two")
	}
	if s.PrivateID != "" && !s.HasAKA() && !s.HasPassword() && c.OK("k", "password", "ha1", "ha1_sha256") {
		c.Fail("private_id", "this subscriber has nothing to prove who it is", "add a password, or k and opc")
	}
	if s.PrivateID == "" && len(s.PublicIDs) > 0 && c.OK("private_id", "public_ids") {
		c.Fail("public_ids", "no one can register these, because the subscriber has no private_id", `add private_id = "alice@ims.example"`)
	}
	for i, a := range s.APNs {
		at := fmt.Sprintf("apn[%d]", i)
		switch {
		case len(a.Types) > 0 && a.Address4.IsValid() && !slices.Contains(a.Types, IPv4) && !slices.Contains(a.Types, IPv4v6):
			c.Fail(at+".address4", "contexts there have no IPv4 by types", "leave the address out, or add ipv4 or ipv4v6 to types")
		case len(a.Types) > 0 && a.Prefix6.IsValid() && !slices.Contains(a.Types, IPv6) && !slices.Contains(a.Types, IPv4v6):
			c.Fail(at+".prefix6", "contexts there have no IPv6 by types", "leave the prefix out, or add ipv6 or ipv4v6 to types")
		case a.Name == "" && !c.Failed(at+".name"):
			c.Fail(at, "this access point has no name", `add name = "internet"`)
		case a.Name != "" && slices.ContainsFunc(s.APNs[:i], func(b APN) bool { return strings.EqualFold(a.Name, b.Name) }):
			c.Fail(at+".name", fmt.Sprintf("%s is there twice", a.Name), "keep one of the two")
		}
	}
}

// checkAKA wants all keys of AKA or none.
func (s *Subscriber) checkAKA(c *config.Checker) {
	switch operator := s.OP != nil || s.OPc != nil; {
	case !c.OK("k", "op", "opc"):
	case s.OP != nil && s.OPc != nil:
		c.Fail("op", "OP and OPc are both there", "keep opc")
	case s.K != nil && !operator:
		c.Fail("k", "AKA takes OPc beside K", "add opc, or op")
	case s.K == nil && operator:
		c.Fail("", "AKA takes K beside OPc", "add k")
	}
}

// index finds subscribers by their names, and wants each name, and at an access point each address, to be that of
// one of them.
func (f *File) index(all []*Subscriber, c *config.Checker) {
	f.imsi, f.private, f.public = make(map[string]*Subscriber, len(all)), map[string]*Subscriber{}, map[string]*Subscriber{}
	msisdn, owned := map[string]*Subscriber{}, ownedAt(all)
	twice := func(value any, path string, at ...any) {
		if path = fmt.Sprintf(path, at...); !c.Failed(path) {
			c.Fail(path, fmt.Sprintf("%s is there twice", value), "keep it with one subscriber")
		}
	}
	for i, s := range all {
		if s.IMSI != "" && !first(f.imsi, s.IMSI, s) {
			twice(s.IMSI, "subscriber[%d].imsi", i)
		}
		if s.MSISDN != "" && !first(msisdn, s.MSISDN, s) {
			twice(s.MSISDN, "subscriber[%d].msisdn", i)
		}
		if s.PrivateID != "" && !first(f.private, s.PrivateID, s) {
			twice(s.PrivateID, "subscriber[%d].private_id", i)
		}
		for j, id := range s.PublicIDs {
			if id = canonical(id); !first(f.public, id, s) {
				twice(id, "subscriber[%d].public_ids[%d]", i, j)
			}
		}
		for j := range s.APNs {
			a := &s.APNs[j]
			at := owned[strings.ToLower(a.Name)]
			if a.Address4.IsValid() && !first(at, a.Address4, s) {
				twice(a.Address4, "subscriber[%d].apn[%d].address4", i, j)
			}
			if a.Prefix6.IsValid() && !first(at, a.Prefix6.Addr(), s) {
				twice(a.Prefix6, "subscriber[%d].apn[%d].prefix6", i, j)
			}
		}
	}
}

// ownedAt makes tables of the addresses that are somebody's, a prefix by its first one, by access points in small
// letters; each has the room that it takes.
func ownedAt(all []*Subscriber) map[string]map[netip.Addr]*Subscriber {
	sizes := map[string]int{}
	for _, s := range all {
		for i := range s.APNs {
			n := 0
			if s.APNs[i].Address4.IsValid() {
				n++
			}
			if s.APNs[i].Prefix6.IsValid() {
				n++
			}
			sizes[strings.ToLower(s.APNs[i].Name)] += n
		}
	}
	tables := make(map[string]map[netip.Addr]*Subscriber, len(sizes))
	for apn, n := range sizes {
		tables[apn] = make(map[netip.Addr]*Subscriber, n)
	}
	return tables
}

// first gives something to a subscriber, if it is nobody's yet.
func first[K comparable](of map[K]*Subscriber, what K, s *Subscriber) bool {
	if of[what] != nil {
		return false
	}
	of[what] = s
	return true
}
