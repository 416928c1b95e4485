// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// claimant is an instance with what it has of the host.
type claimant struct {
	role, name, path string
	claims           []Claim
}

// by names the instance, or the section of the process, for people.
func (c claimant) by() string {
	if c.name == "" {
		return "[" + c.path + "]"
	}
	return fmt.Sprintf("%s %q", c.role, c.name)
}

// sections are those of the process with what they have of the host.
func (c *Config) sections() []claimant {
	metrics := claimant{path: "metrics", claims: []Claim{Socket{Key: "listen", Protocol: "TCP", At: c.Metrics.Listen}}}
	speaker := claimant{path: announceSection}
	for _, s := range c.SpeakerSockets() {
		speaker.claims = append(speaker.claims, s)
	}
	return []claimant{metrics, speaker}
}

// claimants are all instances, in the order of the roles.
func (c *Config) claimants() []claimant {
	all := make([]claimant, len(c.Instances))
	for n, i := range c.Instances {
		all[n] = claimant{i.Section.Name, i.Name, i.path, i.Claims()}
	}
	return all
}

// conflicts finds instances that cannot run together: of the same name, or with claims
// against one another.
func (c *checker) conflicts(config *Config) {
	all := config.claimants()
	names := map[string]string{}
	others := config.sections()
	for i, section := range others {
		for _, claim := range section.claims {
			c.against(others[:i], section, claim)
		}
	}
	for _, one := range all {
		if other, taken := names[one.name]; taken && !c.failed[one.path+".name"] {
			c.fail(one.path+".name", fmt.Sprintf("%q is also the name of a %s", one.name, other), `give each instance a name = "…" of its own`)
		} else {
			names[one.name] = one.role
		}
		for _, claim := range one.claims {
			c.against(others, one, claim)
		}
		others = append(others, one)
	}
	c.groups(all)
}

// against reports what first stands against a claim.
func (c *checker) against(others []claimant, one claimant, claim Claim) {
	path := strings.TrimSuffix(one.path+"."+claim.key(), ".")
	if c.failed[path] {
		return
	}
	for _, other := range others {
		for _, theirs := range other.claims {
			if other.by() == one.by() || c.failed[other.path+"."+theirs.key()] {
				continue
			}
			if f := claim.against(theirs, other.by()); f != nil {
				c.fail(path, f.Problem, f.Remedy)
				return
			}
		}
	}
}

// groups finds sockets that take what is to be heard from neighbours.
func (c *checker) groups(all []claimant) {
	each[Group](all, func(one claimant, group Group) {
		each[Socket](all, func(other claimant, socket Socket) {
			if path := one.path + "." + group.Key; socket.Protocol == "UDP" && socket.overlaps(&Socket{At: group.At}) && !c.failed[path] {
				c.fail(path, fmt.Sprintf("neighbours are heard on UDP %s, which %s binds as %s", group.At, other.by(), socket.At),
					"choose another port there, or name an address to bind")
			}
		})
	})
}

// each calls f with all claims of a kind.
func each[T Claim](all []claimant, f func(claimant, T)) {
	for _, one := range all {
		for _, claim := range one.claims {
			if claim, ok := claim.(T); ok {
				f(one, claim)
			}
		}
	}
}
