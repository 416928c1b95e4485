// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// bgpPort is where a speaker is called (RFC 4271, section 8).
const bgpPort = 179

// SpeakerSockets are those on which the BGP speaker of this process is called: none if nothing is
// announced, for then there is no speaker.
func (c *Config) SpeakerSockets() (sockets []Socket) {
	if c.Announce.Method != AnnounceBGP || len(c.Announce.Listen) == 0 {
		return nil
	}
	announces := false
	each(c.claimants(), func(claimant, Announced) { announces = true })
	if !announces {
		return nil
	}
	for _, a := range c.Announce.Listen {
		sockets = append(sockets, Socket{Key: "listen", Protocol: "TCP", At: netip.AddrPortFrom(a, bgpPort), Fixed: true})
	}
	return sockets
}

// checkListen finds addresses that could not be bound beside others of the list. One for all of a
// family stands for that family alone.
func (a *Announce) checkListen(c *Checker) {
	for i, one := range a.Listen {
		covered := slices.IndexFunc(a.Listen[:i], func(o netip.Addr) bool {
			return o.Is4() == one.Is4() && (o == one || o.IsUnspecified() || one.IsUnspecified())
		})
		if path := fmt.Sprintf("listen[%d]", i); covered >= 0 && c.OK("listen", path) {
			c.Fail(path, fmt.Sprintf("%s and %s cannot both be bound", one, a.Listen[covered]), "leave one of the two out")
		}
	}
}
