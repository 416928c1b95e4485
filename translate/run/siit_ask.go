// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"io"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
)

// siitCommands are the command line of a stateless translator.
type siitCommands struct {
	Map struct {
		List   role.Ask[struct{}, SIITMappings]          `cmd:"" help:"List the mappings in effect."`
		Add    role.Order[mappingArguments, siitMapped]  `cmd:"" help:"Add a mapping, until isthmus ends; the configuration makes it last."`
		Remove role.Order[mappingArguments, siitRemoved] `cmd:"" help:"Remove a mapping, until isthmus ends."`
	} `cmd:"" help:"Explicit address mappings (RFC 7757)."`
	Stats role.Stats `cmd:"" help:"Show what was translated and dropped."`
}

var siitQuestions = []role.Question{
	role.Answer("map list", func(s *SIIT, _ struct{}) (SIITMappings, error) {
		list := SIITMappings{Mappings: []SIITMapping{}}
		for _, m := range s.Mappings() {
			list.Mappings = append(list.Mappings, shownMapping(m))
		}
		return list, nil
	}),
	role.Follow("map add", func(s *SIIT, a mappingArguments) (done siitMapped, err error) {
		m, err := a.mapping()
		if err == nil {
			err = s.AddMapping(m)
		}
		return siitMapped{shownMapping(m)}, err
	}),
	role.Follow("map remove", func(s *SIIT, a mappingArguments) (done siitRemoved, err error) {
		m, err := a.mapping()
		if err == nil {
			err = s.RemoveMapping(m)
		}
		return siitRemoved{shownMapping(m)}, err
	}),
}

// mappingArguments name one mapping.
type mappingArguments struct {
	IPv4 string `arg:"" name:"ipv4" json:"ipv4" help:"An IPv4 address or prefix."`
	IPv6 string `arg:"" name:"ipv6" json:"ipv6" help:"The IPv6 address or prefix that it stands for."`
}

func (a mappingArguments) mapping() (translate.Mapping, error) {
	return ParseMapping(a.IPv4 + " " + a.IPv6)
}

// Validate has kong refuse what is no mapping.
func (a mappingArguments) Validate() error {
	_, err := a.mapping()
	return err
}

// SIITMappings are the mappings in effect.
type SIITMappings struct {
	Mappings []SIITMapping `json:"mappings"`
}

// SIITMapping is one explicit mapping.
type SIITMapping struct {
	IPv4 string `json:"ipv4"`
	IPv6 string `json:"ipv6"`
}

func shownMapping(m translate.Mapping) SIITMapping {
	return SIITMapping{m.IPv4.String(), m.IPv6.String()}
}

// Write implements [role.Table].
func (l SIITMappings) Write(w io.Writer) {
	fmt.Fprintln(w, "IPV4\tIPV6")
	for _, m := range l.Mappings {
		fmt.Fprintf(w, "%s\t%s\n", m.IPv4, m.IPv6)
	}
}

// siitMapped and siitRemoved are what orders have done.
type (
	siitMapped  struct{ SIITMapping }
	siitRemoved struct{ SIITMapping }
)

// Write implements [role.Table].
func (m siitMapped) Write(w io.Writer) { fmt.Fprintf(w, "mapped %s = %s\n", m.IPv4, m.IPv6) }

// Write implements [role.Table].
func (m siitRemoved) Write(w io.Writer) { fmt.Fprintf(w, "removed %s = %s\n", m.IPv4, m.IPv6) }
