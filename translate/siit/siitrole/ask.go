// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"io"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
)

// commands are the command line of a stateless translator.
type commands struct {
	Map struct {
		List   role.Ask[struct{}, Mappings]          `cmd:"" help:"List the mappings in effect."`
		Add    role.Order[mappingArguments, mapped]  `cmd:"" help:"Add a mapping, until isthmus ends; the configuration makes it last."`
		Remove role.Order[mappingArguments, removed] `cmd:"" help:"Remove a mapping, until isthmus ends."`
	} `cmd:"" help:"Explicit address mappings (RFC 7757)."`
	Stats role.Stats `cmd:"" help:"Show what was translated and dropped."`
}

var questions = []role.Question{
	role.Answer("map list", func(s *SIIT, _ struct{}) (Mappings, error) {
		list := Mappings{Mappings: []Mapping{}}
		for _, m := range s.Mappings() {
			list.Mappings = append(list.Mappings, shownMapping(m))
		}
		return list, nil
	}),
	role.Follow("map add", func(s *SIIT, a mappingArguments) (done mapped, err error) {
		m, err := a.mapping()
		if err == nil {
			err = s.AddMapping(m)
		}
		return mapped{shownMapping(m)}, err
	}),
	role.Follow("map remove", func(s *SIIT, a mappingArguments) (done removed, err error) {
		m, err := a.mapping()
		if err == nil {
			err = s.RemoveMapping(m)
		}
		return removed{shownMapping(m)}, err
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

// Mappings are the mappings in effect.
type Mappings struct {
	Mappings []Mapping `json:"mappings"`
}

// Mapping is one explicit mapping.
type Mapping struct {
	IPv4 string `json:"ipv4"`
	IPv6 string `json:"ipv6"`
}

func shownMapping(m translate.Mapping) Mapping {
	return Mapping{m.IPv4.String(), m.IPv6.String()}
}

// Write implements [role.Table].
func (l Mappings) Write(w io.Writer) {
	fmt.Fprintln(w, "IPV4\tIPV6")
	for _, m := range l.Mappings {
		fmt.Fprintf(w, "%s\t%s\n", m.IPv4, m.IPv6)
	}
}

// mapped and removed are what orders have done.
type (
	mapped  struct{ Mapping }
	removed struct{ Mapping }
)

// Write implements [role.Table].
func (m mapped) Write(w io.Writer) { fmt.Fprintf(w, "mapped %s = %s\n", m.IPv4, m.IPv6) }

// Write implements [role.Table].
func (m removed) Write(w io.Writer) { fmt.Fprintf(w, "removed %s = %s\n", m.IPv4, m.IPv6) }
