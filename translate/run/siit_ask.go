// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
)

var (
	_ role.Asked   = (*SIIT)(nil)
	_ role.Ordered = (*SIIT)(nil)
)

// SIITMappings are the mappings in effect.
type SIITMappings struct {
	Mappings []SIITMapping `json:"mappings"`
}

// SIITMapping is one explicit mapping.
type SIITMapping struct {
	IPv4 string `json:"ipv4"`
	IPv6 string `json:"ipv6"`
}

// Ask implements [role.Asked]: "mappings" lists them.
func (s *SIIT) Ask(question string, _ map[string]string) (any, error) {
	if question != "mappings" {
		return nil, fmt.Errorf("a stateless translator has no answer to %q: ask for mappings", question)
	}
	list := SIITMappings{Mappings: []SIITMapping{}}
	for _, m := range s.Mappings() {
		list.Mappings = append(list.Mappings, SIITMapping{m.IPv4.String(), m.IPv6.String()})
	}
	return list, nil
}

// Order implements [role.Ordered]: "map_add" and "map_remove" with the argument
// "mapping", as it stands in the configuration.
func (s *SIIT) Order(order string, arguments map[string]string) (any, error) {
	m, err := ParseMapping(arguments["mapping"])
	work, known := map[string]func(translate.Mapping) error{"map_add": s.AddMapping, "map_remove": s.RemoveMapping}[order]
	switch {
	case !known:
		return nil, fmt.Errorf("a stateless translator cannot do %q: it knows map_add and map_remove", order)
	case err != nil:
		return nil, err
	}
	return SIITMapping{m.IPv4.String(), m.IPv6.String()}, work(m)
}
