// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
)

// Addr is `isthmus teredo addr`: it takes Teredo addresses apart for people.
type Addr struct {
	Address []string       `arg:"" help:"Teredo IPv6 addresses, e.g. 2001:0:cb00:7101:2c41:e148:34ff:8ef5."`
	Prefix  []netip.Prefix `help:"Further service prefixes (/32) beside 2001::/32 and the old 3ffe:831f::/32." placeholder:"PREFIX"`
	JSON    bool           `help:"Print JSON."`
}

// oldPrefix was the service prefix of the drafts before RFC 4380.
var oldPrefix = netip.MustParsePrefix("3ffe:831f::/32")

// anatomy is what a Teredo address says (RFC 4380 section 4, RFC 5991 section 3).
type anatomy struct {
	Address      netip.Addr   `json:"address"`
	Prefix       netip.Prefix `json:"prefix"`
	Server       netip.Addr   `json:"server"`
	ServerGlobal bool         `json:"server_global"`
	Flags        string       `json:"flags"`
	Cone         bool         `json:"cone"`
	Random       string       `json:"random"`
	Mapped       netip.Addr   `json:"mapped_address"`
	MappedPort   uint16       `json:"mapped_port"`
	MappedGlobal bool         `json:"mapped_global"`
}

// Run prints the parts of each address.
func (c *Addr) Run(w io.Writer) error {
	for _, p := range c.Prefix {
		if !p.Addr().Is6() || p.Bits() != 32 {
			return role.UsageError{Err: fmt.Errorf("%s is no Teredo service prefix; give an IPv6 prefix of 32 bits such as 2001::/32", p)}
		}
	}
	prefixes := append([]netip.Prefix{teredo.Prefix, oldPrefix}, c.Prefix...)
	found := make([]anatomy, 0, len(c.Address))
	for _, text := range c.Address {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return role.UsageError{Err: fmt.Errorf("%q is not an IPv6 address: write it like 2001:0:cb00:7101:2c41:e148:34ff:8ef5", text)}
		}
		parts, err := teredo.ParseAddr(a, prefixes...)
		if err != nil {
			return fmt.Errorf("%s is no Teredo address: it is below none of %v; give another service prefix with --prefix", a, prefixes)
		}
		found = append(found, dissect(a, parts))
	}
	if c.JSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(found)
	}
	for i, a := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := a.write(w); err != nil {
			return err
		}
	}
	return nil
}

func dissect(ip netip.Addr, a teredo.Addr) anatomy {
	var check teredo.GlobalCheck
	return anatomy{
		Address:      ip,
		Prefix:       a.Prefix,
		Server:       a.Server,
		ServerGlobal: check.OK(a.Server),
		Flags:        fmt.Sprintf("0x%04x", uint16(a.Flags)),
		Cone:         a.Flags.Cone(),
		Random:       fmt.Sprintf("0x%03x", a.Flags.Random()),
		Mapped:       a.Mapped.Addr(),
		MappedPort:   a.Mapped.Port(),
		MappedGlobal: check.OK(a.Mapped.Addr()),
	}
}

func (a anatomy) write(w io.Writer) error {
	prefix := "the Teredo service"
	if a.Prefix == oldPrefix {
		prefix = "the service prefix before RFC 4380"
	} else if a.Prefix != teredo.Prefix {
		prefix = "a service prefix of its own"
	}
	nat := "not claimed (clear in every client since RFC 5991)"
	if a.Cone {
		nat = "the client claims a full cone NAT"
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, a.Address)
	fmt.Fprintf(tw, "  prefix\t%s\t%s\n", a.Prefix, prefix)
	fmt.Fprintf(tw, "  server\t%s\t%s\n", a.Server, globalWord(a.ServerGlobal))
	fmt.Fprintf(tw, "  flags\t%s\trandom bits %s\n", a.Flags, a.Random)
	fmt.Fprintf(tw, "  cone bit\t%s\t%s\n", yesNo(a.Cone), nat)
	fmt.Fprintf(tw, "  mapped address\t%s\tthe client as the IPv4 Internet sees it; %s\n", a.Mapped, globalWord(a.MappedGlobal))
	fmt.Fprintf(tw, "  mapped port\t%d\tUDP\n", a.MappedPort)
	return tw.Flush()
}

func globalWord(global bool) string {
	if global {
		return "global unicast"
	}
	return "not global: servers and relays drop packets for it (RFC 4380 section 5.2.4)"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
