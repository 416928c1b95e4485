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
	for _, s := range c.SIITs {
		warnings = append(warnings, advice("siit", s.Name, translator.AdviseSIIT(s))...)
	}
	for _, n := range c.NAT64s {
		warnings = append(warnings, advice("nat64", n.Name, translator.AdviseNAT64(n, c.Beside(n.Name)))...)
	}
	return warnings
}

// passages looks whether packets pass through this host to and from translators. None of
// it is taken by those that run.
func (m machine) passages(c *config.Config) (found []Finding) {
	add := func(role, name string, p translator.Passage) {
		for _, text := range advice(role, name, p.Closed) {
			found = append(found, Finding{Text: text + " (until then it will not work)"})
		}
		for _, text := range advice(role, name, p.Narrow) {
			found = append(found, Finding{Warning: true, Text: text})
		}
	}
	for _, s := range c.SIITs {
		add("siit", s.Name, m.passageSIIT(s))
	}
	for _, n := range c.NAT64s {
		add("nat64", n.Name, m.passageNAT64(n))
	}
	return found
}
