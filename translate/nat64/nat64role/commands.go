// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
)

// commands are the command line of a NAT64.
type commands struct {
	Sessions role.Listing[sessionArguments, *sessionArguments, Sessions] `cmd:"" help:"List sessions."`
	Bindings role.Listing[bindingArguments, *bindingArguments, Bindings] `cmd:"" help:"List bindings: which IPv6 host has which port."`
	Blocks   role.Listing[blockArguments, *blockArguments, Blocks]       `cmd:"" help:"List the blocks of ports that clients have."`
	Where    role.Ask[whereArguments, Owner]                             `cmd:"" help:"Tell who has a port of the pool, or which ports a client has."`
	Stats    role.Stats                                                  `cmd:"" help:"Show how full the tables are and what was dropped."`
	Static   struct {
		Add    role.Order[staticArguments, bound] `cmd:"" help:"Bind a port of the pool to an IPv6 host, until isthmus ends; the configuration makes it last."`
		Remove role.Order[staticArguments, ended] `cmd:"" help:"End a static binding with its sessions."`
	} `cmd:"" help:"Static bindings."`
}

var questions = []role.Question{
	role.Answer("sessions", (*NAT64).sessions),
	role.Answer("bindings", (*NAT64).bindings),
	role.Answer("blocks", (*NAT64).blocks),
	role.Answer("where", (*NAT64).where),
	role.Follow("static add", (*NAT64).addStatic),
	role.Follow("static remove", (*NAT64).removeStatic),
}

// bindingArguments choose bindings.
type bindingArguments struct {
	role.Part
	Transport string `json:"transport,omitempty" placeholder:"tcp|udp|icmp" help:"Of this transport only."`
	Inside    string `json:"inside,omitempty" placeholder:"ADDRESS|PREFIX" help:"Of IPv6 hosts in this prefix only."`
	Outside   string `json:"outside,omitempty" placeholder:"ADDRESS[:PORT]" help:"At this address of the pool only."`
}

// sessionArguments choose sessions.
type sessionArguments struct {
	bindingArguments
	Peer string `json:"peer,omitempty" placeholder:"ADDRESS|PREFIX" help:"With IPv4 hosts in this prefix only."`
}

// blockArguments choose blocks of ports.
type blockArguments struct{ role.Part }

// whereArguments name a port of the pool, or a client.
type whereArguments struct {
	Address string `arg:"" json:"address" help:"An IPv4 address of the pool with a port (192.0.2.10:4000), or the IPv6 address of a client."`
}

// Validate has kong refuse what is neither.
func (a whereArguments) Validate() error {
	if _, err := netip.ParseAddr(a.Address); err == nil {
		return nil
	}
	if _, err := netip.ParseAddrPort(a.Address); err != nil {
		return fmt.Errorf("%q is neither an address nor an address with a port: write 192.0.2.10:4000 or 2001:db8:1::5", a.Address)
	}
	return nil
}

// staticArguments name one static binding.
type staticArguments struct {
	Transport string `arg:"" json:"transport" help:"tcp, udp or icmp."`
	Inside    string `arg:"" json:"inside" help:"The IPv6 host with its port, like [2001:db8:1::80]:80; for icmp the identifier."`
	Outside   string `arg:"" json:"outside" help:"The address of the pool with its port, like 192.0.2.10:80."`
}

func (a staticArguments) binding() (StaticBinding, error) {
	return ParseStatic(strings.Join([]string{a.Transport, a.Inside, a.Outside}, " "))
}

// Validate has kong refuse what is no binding.
func (a staticArguments) Validate() error {
	_, err := a.binding()
	return err
}

// Write implements [role.Table].
func (l Sessions) Write(w io.Writer) {
	fmt.Fprintln(w, "PROTO\tSTATE\tINSIDE\tOUTSIDE\tPEER\tEXPIRES")
	for _, s := range l.Sessions {
		left := max(time.Until(s.Expires), 0).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Transport, strings.ReplaceAll(s.State, "_", " "), s.Inside, s.Outside, s.Peer, left)
	}
}

// Join implements [role.Rows].
func (l Sessions) Join(next Sessions) Sessions {
	next.Sessions = append(l.Sessions, next.Sessions...)
	return next
}

// Next implements [role.Rows].
func (l Sessions) Next() (int, uint32) { return len(l.Sessions), l.From }

// Write implements [role.Table].
func (l Bindings) Write(w io.Writer) {
	fmt.Fprintln(w, "PROTO\tINSIDE\tOUTSIDE\tKIND")
	for _, b := range l.Bindings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Transport, b.Inside, b.Outside, word(b.Static, "static", "dynamic"))
	}
}

// Join implements [role.Rows].
func (l Bindings) Join(next Bindings) Bindings {
	next.Bindings = append(l.Bindings, next.Bindings...)
	return next
}

// Next implements [role.Rows].
func (l Bindings) Next() (int, uint32) { return len(l.Bindings), l.From }

// Write implements [role.Table].
func (l Blocks) Write(w io.Writer) {
	fmt.Fprintln(w, "CLIENT\tADDRESS\tPORTS\tKIND")
	for _, b := range l.Blocks {
		fmt.Fprintf(w, "%s\t%s\t%d-%d\t%s\n", b.Client, b.Pool, b.First, b.Last, word(b.Calculated, "calculated", "leased"))
	}
}

// Join implements [role.Rows].
func (l Blocks) Join(next Blocks) Blocks {
	next.Blocks = append(l.Blocks, next.Blocks...)
	return next
}

// Next implements [role.Rows].
func (l Blocks) Next() (int, uint32) { return len(l.Blocks), l.From }

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Owner are the blocks of ports that were looked for.
type Owner struct {
	Blocks
	// Of is the port or client.
	Of string `json:"of"`
}

// Nothing implements [role.Emptiness].
func (o Owner) Nothing() string {
	if len(o.Blocks.Blocks) > 0 {
		return ""
	}
	return "no one has " + o.Of + " now"
}

// bound and ended are what orders have done.
type (
	bound struct{ Binding }
	ended struct{ Binding }
)

// Write implements [role.Table].
func (b bound) Write(w io.Writer) {
	fmt.Fprintf(w, "bound %s %s = %s\n", b.Transport, b.Inside, b.Outside)
}

// Write implements [role.Table].
func (b ended) Write(w io.Writer) {
	fmt.Fprintf(w, "ended %s %s = %s\n", b.Transport, b.Inside, b.Outside)
}
