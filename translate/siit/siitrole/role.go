// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// name is the name of the role of a [SIIT].
const name = "siit"

// Role is the stateless translator as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "Stateless translator (RFC 7915, 7757): addresses of one family stand for addresses of the other, one for one. docs/siit.md says for what.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	Examine: func(s *Settings) []role.Finding {
		return append(role.Problems(examine(*s)), role.Warnings(name, s.Name, advise(*s))...)
	},
	Files:     func(s *Settings) []role.Finding { return role.Problems(examineFile(*s)) },
	Way:       func(s *Settings) []role.Finding { return passageOf(*s).Findings(name, s.Name) },
	FastPath:  func(s *Settings, taken *role.Seats) []role.Finding { plan := plan(*s, taken); return plan.Findings() },
	New:       func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
	Clean:     func([]*Settings) (role.Cleaned, error) { return gateway.CleanProxies() },
	Questions: questions,
	Command:   role.Command{Help: "Look into a running stateless translator.", Flags: func() any { return new(commands) }},
}.Role()

// Settings are one [[siit]] section; what each means stands where its key is declared.
type Settings struct {
	keys.Translation
	Pool4           []netip.Prefix
	EAM             []translate.Mapping // without those of EAMFile
	EAMFile         string
	EAMOverlap      bool
	Hairpin         Hairpin
	FastPath        fastpath.Mode
	FastPathDevices []string
}

// Hairpin is a mode of RFC 7757, section 4.2.
type Hairpin string

// The modes.
const (
	HairpinIntrinsic Hairpin = "intrinsic"
	HairpinSimple    Hairpin = "simple"
	HairpinOff       Hairpin = "off"
)

func (s *Settings) keys() []key.Key {
	std := keys.Standard{
		Name: name, Pool6: key.Example([]string{"2001:db8:64::/96"}), UDPZeroChecksum: keys.ZeroChecksumDrop,
		Errors: []keys.ErrorClass{keys.ErrorUnreachable, keys.ErrorTooBig, keys.ErrorHopLimit, keys.ErrorParameter},
		// As the kernel's own limit in spirit: errors are a courtesy.
		ICMPRate: 100, RateHelp: "How many of them are sent a second, a quarter to one IPv6 /64 or IPv4 /24; 0 is no limit.",
	}
	return append(append(s.DeviceKeys(std), []key.Key{
		key.Of("pool4", &s.Pool4, []string{}, key.List(keys.Translated4), key.Live,
			"IPv4 addresses of IPv6 hosts whose addresses are made by pool6: they are routed to the translator, as those of the mappings are."),
		key.Of("eam", &s.EAM, []string{}, key.List(mapping), key.Live,
			`Explicit mappings (RFC 7757): ["192.0.2.1 2001:db8::1", "192.0.2.64/28 2001:db8:46::/124"].`),
		key.Of("eam_file", &s.EAMFile, "", key.Optional(key.File), key.Live,
			"A file of more, one a line."),
		key.Of("eam_overlap", &s.EAMOverlap, false, key.Bool, key.Live,
			"Let mappings overlap: the longest match counts, and the two directions may differ."),
		key.Of("hairpin", &s.Hairpin, string(HairpinIntrinsic), key.OneOf(HairpinIntrinsic, HairpinSimple, HairpinOff), key.Live,
			`Packets between two mapped IPv6 hosts: turned round here ("intrinsic"), by the IPv4 network ("simple"), or "off". RFC 7757, section 4.2.`),
		driver.ModeKey(&s.FastPath, `What carries plain packets: "xdp", "tc", "off" or "auto", as for a relay. From "off" it takes a restart. docs/siit.md says more.`),
		driver.DevicesKey(&s.FastPathDevices),
	}...), s.HeaderKeys(std)...)
}

func (s *Settings) check(c *config.Checker) {
	s.Translation.Check(c)
	driver.CheckDevices(c, s.FastPathDevices, s.Interface)
	keys.Distinct(c, "pool4", s.Pool4)
	if len(s.Pool6)+len(s.EAM) == 0 && s.EAMFile == "" && c.OK("pool6", "eam", "eam_file") {
		c.Fail("", "this translator has neither a prefix nor a mapping", `add pool6 = ["2001:db8:64::/96"] with a prefix of your own, or eam = ["192.0.2.1 2001:db8::1"]`)
	}
	if !c.OK("eam") {
		return
	}
	if a, b, found := translate.Overlap(s.EAM); found && (!s.EAMOverlap || a == b) {
		c.Fail("eam", fmt.Sprintf("%s overlaps %s, so the two directions might not mirror each other (RFC 7757, section 5)", a, b), "keep one of the two, or set eam_overlap = true")
	}
}

func (s *Settings) claims() []config.Claim {
	var mapped []netip.Prefix
	for _, m := range s.EAM {
		mapped = append(mapped, m.IPv4)
	}
	return s.Claims(
		config.Route{Key: "pool6", Prefixes: s.Pool6},
		config.Route{Key: "pool4", Prefixes: s.Pool4},
		config.Route{Key: "eam", Prefixes: mapped},
	)
}

func (s *Settings) summary() string {
	by := ""
	if len(s.Pool6) > 0 {
		by = " by " + role.Join(s.Pool6)
	}
	return fmt.Sprintf("translates one for one%s, %d mappings, device %s", by, len(s.EAM), s.Interface)
}
