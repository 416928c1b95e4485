// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"net/netip"
	"os"
	"strings"
)

const resolverFile = "/etc/resolv.conf"

// hostResolvers are the name servers of the host that a link leads to: one on the host
// itself cannot be asked by way of a link.
func hostResolvers() []netip.AddrPort {
	text, err := os.ReadFile(resolverFile)
	if err != nil {
		return nil // routers may name some
	}
	return readResolvers(string(text))
}

func readResolvers(text string) (list []netip.AddrPort) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil && a.Is6() && !a.IsLoopback() {
			list = append(list, netip.AddrPortFrom(a, 53))
		}
	}
	return list
}
