// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/siit"
)

// examineFile reports what is wrong with the file of mappings, alone or with those of the section.
func examineFile(cfg Settings) error {
	file, err := mappingsOf(&cfg)
	if err != nil {
		return err
	}
	s := &SIIT{cfg: cfg}
	settings, err := s.settings(&cfg, s.mappings(&cfg, file))
	if err != nil {
		return err
	}
	return siit.Check(settings)
}

// examine reports what would keep a stateless translator from starting on this host,
// one error for each. It changes nothing and needs no privilege.
func examine(cfg Settings) error {
	file, err := mappingsOf(&cfg)
	if err != nil {
		return nil // told of the file
	}
	s := &SIIT{cfg: cfg}
	return gateway.RoutesFree(&cfg.Translation, destinations(&cfg, s.mappings(&cfg, file)))
}

// advise does the same for a stateless translator.
func advise(cfg Settings) []string {
	file, err := mappingsOf(&cfg)
	if err != nil {
		return nil // told elsewhere
	}
	s := &SIIT{cfg: cfg}
	mappings := s.mappings(&cfg, file)
	settings, err := s.settings(&cfg, mappings)
	if err != nil {
		return nil // told elsewhere
	}
	sentences := append(settings.Translate.Advice(), crossed(&cfg, mappings)...)
	host, err := port.OpenHost()
	if err != nil {
		return sentences
	}
	defer host.Close()
	hosts, err := gateway.HostAddresses(host, cfg.Interface)
	if err != nil {
		return sentences
	}
	return append(sentences, translatedOwn(destinations(&cfg, mappings), hosts)...)
}

// translatedOwn warns of addresses of this host that are to be translated: no route leads
// their packets anywhere else.
func translatedOwn(routes []netip.Prefix, hosts []netip.Addr) (sentences []string) {
	for _, a := range hosts {
		if slices.ContainsFunc(routes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			sentences = append(sentences, fmt.Sprintf("%s is an address of this host, so its packets end here and are not translated: take it out of pool4 and the mappings, or from its interface", a))
		}
	}
	return sentences
}

// passageOf does the same for a stateless one, whose pools are none of the host's own.
func passageOf(cfg Settings) gateway.Passage {
	all := func(netip.Prefix) bool { return true }
	return gateway.PassageOf(cfg.Interface, nil, all, all)
}

// passage does the same; s.mu is held.
func (s *SIIT) passage() (p gateway.Passage) {
	s.device.InNamespace(func() { p = passageOf(s.cfg) })
	return p
}
