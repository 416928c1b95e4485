// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/translate"
)

// RoleSIIT is the role of a [SIIT].
const RoleSIIT = "siit"

// SIIT is one stateless translator (RFC 7915, 7757).
type SIIT struct {
	Translation
	// Pool4 are the IPv4 addresses of IPv6 hosts whose addresses are made by pool6;
	// they are routed to the translator, as those of the mappings are.
	Pool4 []netip.Prefix `key:"pool4"`
	// EAM are explicit mappings. Those of EAMFile are not among them; see
	// [ReadMappings].
	EAM     []translate.Mapping `key:"eam"`
	EAMFile string              `key:"eam_file"`
	// EAMOverlap allows mappings that overlap.
	EAMOverlap bool `key:"eam_overlap"`
	// Hairpin is how packets between two mapped IPv6 hosts are turned round.
	Hairpin Hairpin `key:"hairpin"`

	// FastPath is what carries plain packets, on FastPathDevices.
	FastPath        FastPath `key:"fast_path"`
	FastPathDevices []string `key:"fast_path_devices"`
}

// Hairpin is a mode of RFC 7757, section 4.2.
type Hairpin string

// The modes.
const (
	HairpinIntrinsic Hairpin = "intrinsic"
	HairpinSimple    Hairpin = "simple"
	HairpinOff       Hairpin = "off"
)

type rawSIIT struct {
	rawTranslation
	Pool4           any `toml:"pool4"`
	EAM             any `toml:"eam"`
	EAMFile         any `toml:"eam_file"`
	EAMOverlap      any `toml:"eam_overlap"`
	Hairpin         any `toml:"hairpin"`
	FastPath        any `toml:"fast_path"`
	FastPathDevices any `toml:"fast_path_devices"`
}

// DefaultSIIT returns a stateless translator as it is where the file says nothing;
// it needs a prefix or a mapping.
func DefaultSIIT() SIIT {
	return SIIT{Translation: defaultTranslation(RoleSIIT), Hairpin: HairpinIntrinsic, FastPath: FastPathAuto}
}

func (c *checker) siit(at string, raw rawSIIT) SIIT {
	s := DefaultSIIT()
	c.translation(at, raw.rawTranslation, &s.Translation, ErrorUnreachable, ErrorTooBig, ErrorHopLimit, ErrorParameter)
	set(c, at, "pool4", raw.Pool4, &s.Pool4, listOf(translated4))
	set(c, at, "eam", raw.EAM, &s.EAM, listOf(mapping))
	set(c, at, "eam_file", raw.EAMFile, &s.EAMFile, optional(filePath))
	set(c, at, "eam_overlap", raw.EAMOverlap, &s.EAMOverlap, boolean)
	set(c, at, "hairpin", raw.Hairpin, &s.Hairpin, oneOf(HairpinIntrinsic, HairpinSimple, HairpinOff))
	set(c, at, "fast_path", raw.FastPath, &s.FastPath, oneOf(FastPathAuto, FastPathXDP, FastPathTC, FastPathOff))
	set(c, at, "fast_path_devices", raw.FastPathDevices, &s.FastPathDevices, listOf(interfaceName))
	c.devices(at, s.FastPathDevices, s.Interface)
	c.distinct(at+".pool4", s.Pool4)
	if len(s.Pool6)+len(s.EAM) == 0 && s.EAMFile == "" && !c.failed[at+".pool6"] && !c.failed[at+".eam"] && !c.failed[at+".eam_file"] {
		c.fail(at, "this translator has neither a prefix nor a mapping", `add pool6 = ["2001:db8:64::/96"] with a prefix of your own, or eam = ["192.0.2.1 2001:db8::1"]`)
	}
	if !c.failed[at+".eam"] {
		if a, b, found := translate.Overlap(s.EAM); found && (!s.EAMOverlap || a == b) {
			c.fail(at+".eam", fmt.Sprintf("%s overlaps %s, so the two directions might not mirror each other (RFC 7757, section 5)", a, b), "keep one of the two, or set eam_overlap = true")
		}
	}
	return s
}

// mapping parses the two sides of a mapping.
var mapping = text("192.0.2.1 2001:db8::1", func(s string) (translate.Mapping, *fault) {
	const example = "write it like 192.0.2.0/28 2001:db8:46::/124"
	words := strings.Fields(s)
	if len(words) != 2 {
		return translate.Mapping{}, wrong(example, "%q is not an IPv4 prefix and an IPv6 prefix", s)
	}
	m, err := translate.ParseMapping(words[0], words[1])
	if err != nil {
		return m, wrong(example, "%v", err)
	}
	if !forwarded4(m.IPv4) {
		return m, wrong(example, "no packet is forwarded to %s", m.IPv4)
	}
	return m, nil
})

// translated4 parses IPv4 addresses that are routed to a translator.
func translated4(raw any) (netip.Prefix, *fault) {
	p, f := prefix4(raw)
	if f == nil && !forwarded4(p) {
		return p, wrong("name the addresses of your hosts, like 192.0.2.0/28", "no packet is forwarded to %s", p)
	}
	return p, f
}

// ParseMapping reads a mapping as it stands in eam, for the command line.
func ParseMapping(s string) (translate.Mapping, error) {
	m, f := mapping(s)
	return m, f.Err()
}

// SIIT returns the stateless translator of that name.
func (c *Config) SIIT(name string) (SIIT, bool) {
	return find(c.SIITs, func(s SIIT) bool { return s.Name == name })
}

// Announced are the prefixes by which routers find the translator.
func (s *SIIT) Announced() []netip.Prefix { return s.Routes() }

// Routes are the destinations that the translator translates, without those of the
// mapping file.
func (s *SIIT) Routes() []netip.Prefix {
	list := append(append([]netip.Prefix(nil), s.Pool6...), s.Pool4...)
	for _, m := range s.EAM {
		list = append(list, m.IPv4)
	}
	return list
}
