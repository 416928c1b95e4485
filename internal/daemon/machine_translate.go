// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"

	"github.com/isthmus-net/isthmus/internal/config"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// advice says whose settings the sentences are about.
func advice(role, name string, sentences []string) []string {
	for i, s := range sentences {
		sentences[i] = fmt.Sprintf("%s %q: %s", role, name, s)
	}
	return sentences
}

// translators examines what the stateless and stateful translators need.
func (m machine) translators(c *config.Config, report func(error)) (warnings []string) {
	for _, s := range c.SIITs {
		report(m.device(s.Interface))
		report(m.siit(s))
	}
	for _, n := range c.NAT64s {
		report(m.device(n.Interface))
		report(m.nat64(n))
	}
	if len(c.SIITs)+len(c.NAT64s) == 0 {
		return nil
	}
	for _, s := range c.SIITs {
		warnings = append(warnings, advice("siit", s.Name, translator.AdviseSIIT(s))...)
	}
	for _, n := range c.NAT64s {
		warnings = append(warnings, advice("nat64", n.Name, translator.AdviseNAT64(n))...)
	}
	for _, name := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
		if m.read("net/"+name) == "0" {
			key := map[bool]string{true: "net.ipv4.ip_forward", false: "net.ipv6.conf.all.forwarding"}[name[:4] == "ipv4"]
			warnings = append(warnings, fmt.Sprintf("a translator serves other hosts only if this one forwards both families: run sysctl -w %s=1", key))
		}
	}
	if v := m.read("net/ipv4/conf/all/rp_filter"); v != "0" && v != "" {
		warnings = append(warnings, fmt.Sprintf(
			"the kernel drops ICMP errors that a translator sends from an address of this host, because net.ipv4.conf.all.rp_filter is %s: set it to 0 there, and per interface where you want it", v))
	}
	return warnings
}
