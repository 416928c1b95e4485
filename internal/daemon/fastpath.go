// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"

	"github.com/isthmus-net/isthmus/internal/config"
	fast "github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/teredo/run"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// ExamineFastPaths says which fast path each instance would get on this machine,
// and what packets would then not meet. It changes nothing.
func ExamineFastPaths(c *config.Config) []Finding {
	var found []Finding
	for _, r := range c.Relays {
		found = append(found, foreseen(run.PlanFastPath(r))...)
	}
	for _, n := range c.NAT64s {
		found = append(found, foreseen(translator.PlanNAT64(n))...)
	}
	for _, s := range c.SIITs {
		found = append(found, foreseen(translator.PlanSIIT(s))...)
	}
	return found
}

func foreseen(plan fast.Forecast) (found []Finding) {
	for _, text := range plan.Notes {
		found = append(found, Finding{Text: text, Note: true})
	}
	for _, text := range plan.Warnings {
		found = append(found, Finding{Text: text, Warning: true})
	}
	return found
}

// Clean removes what processes that did not come back have left in this network namespace;
// with a configuration, also the files of its own that it names.
func Clean(c *config.Config) (removed, inUse []string, err error) {
	var relays, translators []string
	if c != nil {
		for _, r := range c.Relays {
			relays = appendNamed(relays, r.StateFile)
		}
		for _, n := range c.NAT64s {
			translators = appendNamed(translators, n.StateFile)
		}
	}
	cleaned, err := run.Clean(relays...)
	moreRemoved, moreInUse, stateErr := translator.Clean(translators...)
	return append(cleaned.Removed, moreRemoved...), append(cleaned.InUse, moreInUse...), errors.Join(err, stateErr)
}

// appendNamed appends a file, if the configuration names it.
func appendNamed(files []string, name string) []string {
	if name == "" {
		return files
	}
	return append(files, name)
}
