// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// FilterHelp is the filter language, for people.
const FilterHelp = `A filter is made of these, joined by "and", "or", "not" and parentheses:

  host A, src A, dst A   an address or prefix, of the outer or the inner packet
  port N                 a TCP or UDP port, of the outer or the inner packet
  proto P, or P alone    tcp, udp, icmp, icmp6, sctp, none (a bubble), or a number
  forward punt keep drop what became of the packet
  reason WORD            why, as the counters call it
  fast, engine           who handled it
  hook WORD              where: xdp, tc, udp (a socket), tun
  device NAME            the interface
  instance NAME          the instance of the configuration

Example: drop and not reason no_peer and host 2001:db8::/32`

// Filter chooses samples. The zero value chooses all; make others with
// [ParseFilter].
type Filter struct{ match func(*Sample, []layer) bool }

// Match reports whether the filter chooses s.
func (f Filter) Match(s *Sample) bool { return f.match == nil || f.match(s, s.layers()) }

// maxWords bounds a filter.
const maxWords = 200

// ParseFilter reads a filter; an empty text chooses all samples.
func ParseFilter(text string) (Filter, error) {
	p := filterParser{words: split(text)}
	if len(p.words) == 0 {
		return Filter{}, nil
	}
	if len(p.words) > maxWords {
		return Filter{}, fmt.Errorf("the filter has %d words: write at most %d", len(p.words), maxWords)
	}
	match, err := p.either()
	if err != nil {
		return Filter{}, err
	}
	if word, ok := p.peek(); ok {
		return Filter{}, fmt.Errorf("%q stands where the filter might end: write and, or or before it", word)
	}
	return Filter{match}, nil
}

// split cuts a text into words and parentheses.
func split(text string) []string {
	return strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text))
}

type matcher = func(*Sample, []layer) bool

type filterParser struct {
	words []string
	next  int
}

func (p *filterParser) peek() (string, bool) {
	if p.next == len(p.words) {
		return "", false
	}
	return p.words[p.next], true
}

// take returns true, and goes on, when the next word is this one.
func (p *filterParser) take(word string) bool {
	if next, ok := p.peek(); !ok || next != word {
		return false
	}
	p.next++
	return true
}

// either = both { "or" both }
func (p *filterParser) either() (matcher, error) {
	first, err := p.both()
	for err == nil && p.take("or") {
		var second matcher
		if second, err = p.both(); err == nil {
			a := first
			first = func(s *Sample, l []layer) bool { return a(s, l) || second(s, l) }
		}
	}
	return first, err
}

// both = one { "and" one }
func (p *filterParser) both() (matcher, error) {
	first, err := p.one()
	for err == nil && p.take("and") {
		var second matcher
		if second, err = p.one(); err == nil {
			a := first
			first = func(s *Sample, l []layer) bool { return a(s, l) && second(s, l) }
		}
	}
	return first, err
}

// one = "not" one | "(" either ")" | primitive
func (p *filterParser) one() (matcher, error) {
	if p.take("not") {
		m, err := p.one()
		return func(s *Sample, l []layer) bool { return !m(s, l) }, err
	}
	if p.take("(") {
		m, err := p.either()
		if err == nil && !p.take(")") {
			err = fmt.Errorf("a parenthesis of the filter is not closed: write )")
		}
		return m, err
	}
	word, ok := p.peek()
	if !ok {
		return nil, fmt.Errorf("the filter ends where something is missing: isthmus trace --help shows the words")
	}
	p.next++
	return p.primitive(word)
}

// valued are the primitives with a value behind them.
var valued = map[string]func(value string) (matcher, error){
	"host": func(v string) (matcher, error) { return addresses(v, true, true) },
	"src":  func(v string) (matcher, error) { return addresses(v, true, false) },
	"dst":  func(v string) (matcher, error) { return addresses(v, false, true) },
	"port": ports, "proto": protocol,
	"reason": func(v string) (matcher, error) {
		return func(s *Sample, _ []layer) bool { return s.Reason == v }, nil
	},
	"hook": func(v string) (matcher, error) {
		return func(s *Sample, _ []layer) bool { return s.Hook == v }, nil
	},
	"device": func(v string) (matcher, error) {
		return func(s *Sample, _ []layer) bool { return s.Device == v }, nil
	},
	"instance": func(v string) (matcher, error) {
		return func(s *Sample, _ []layer) bool { return s.Instance == v }, nil
	},
}

func (p *filterParser) primitive(word string) (matcher, error) {
	if make, ok := valued[word]; ok {
		value, ok := p.peek()
		if !ok || value == "(" || value == ")" {
			return nil, fmt.Errorf("%q needs a value behind it", word)
		}
		p.next++
		return make(value)
	}
	switch word {
	case string(Forward), string(Punt), string(Keep), string(Drop):
		return func(s *Sample, _ []layer) bool { return s.Verdict == Verdict(word) }, nil
	case string(Fast), string(Engine):
		return func(s *Sample, _ []layer) bool { return s.Path == Path(word) }, nil
	}
	if m, err := protocol(word); err == nil {
		return m, nil
	}
	return nil, fmt.Errorf("%q is no word of a filter: isthmus trace --help shows those that are", word)
}

func addresses(value string, src, dst bool) (matcher, error) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		a, err := netip.ParseAddr(value)
		if err != nil {
			return nil, fmt.Errorf("%q is no address and no prefix: write one as 192.0.2.1 or 2001:db8::/32", value)
		}
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	return func(_ *Sample, layers []layer) bool {
		return slices.ContainsFunc(layers, func(l layer) bool {
			return src && prefix.Contains(l.src) || dst && prefix.Contains(l.dst)
		})
	}, nil
}

func ports(value string) (matcher, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no port: write a number from 0 to 65535", value)
	}
	return func(_ *Sample, layers []layer) bool {
		return slices.ContainsFunc(layers, func(l layer) bool {
			return l.ports && (l.sport == uint16(n) || l.dport == uint16(n))
		})
	}, nil
}

func protocol(value string) (matcher, error) {
	number := -1
	for n, name := range protocolNames {
		if name == value {
			number = int(n)
		}
	}
	if number < 0 {
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is no protocol: write tcp, udp, icmp, icmp6, sctp, none or a number up to 255", value)
		}
		number = int(n)
	}
	return func(_ *Sample, layers []layer) bool {
		return slices.ContainsFunc(layers, func(l layer) bool { return int(l.proto) == number })
	}, nil
}
