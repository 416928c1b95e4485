// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn"
)

// Context is a PDP context for people and programs.
type Context struct {
	IMSI  string `json:"imsi"`
	NSAPI uint8  `json:"nsapi"`
	// Linked is the NSAPI of the primary context, if this is a secondary one, and Filters which
	// packets go by it.
	Linked  uint8    `json:"linked,omitempty"`
	Filters []string `json:"filters,omitempty"`
	State   string   `json:"state"`
	APN     string   `json:"apn"`
	Type    string   `json:"type"`
	GTP     uint8    `json:"gtp"`
	// IPv4 and IPv6 are what the terminal has.
	IPv4      netip.Addr     `json:"ipv4,omitzero"`
	LinkLocal netip.Addr     `json:"link_local,omitzero"`
	IPv6      []netip.Addr   `json:"ipv6,omitempty"`
	Delegated []Delegated    `json:"delegated,omitempty"`
	DNS       []netip.Addr   `json:"dns,omitempty"`
	Search    []string       `json:"search,omitempty"` // the search list
	NAT64     []netip.Prefix `json:"nat64,omitempty"`
	PCSCF     []netip.Addr   `json:"pcscf,omitempty"`
	MTU4      int            `json:"mtu4,omitempty"`
	MTU6      int            `json:"mtu6,omitempty"`
	// Auth is accepted or refused: what the network said to user and password.
	Auth        string `json:"auth,omitempty"`
	AuthMessage string `json:"auth_message,omitempty"`
	// SGSN is our address, GGSN the peer's for signalling, User for packets.
	SGSN netip.Addr `json:"sgsn"`
	GGSN netip.Addr `json:"ggsn"`
	User netip.Addr `json:"user,omitzero"`
	// TEIDs are ours for signalling and packets, then the GGSN's.
	TEIDs       [4]uint32 `json:"teids"`
	UpPackets   uint64    `json:"up_packets"`
	UpOctets    uint64    `json:"up_octets"`
	DownPackets uint64    `json:"down_packets"`
	DownOctets  uint64    `json:"down_octets"`
}

// Delegated is a prefix that a terminal has for the networks behind it, but for what is left out.
type Delegated struct {
	Prefix   netip.Prefix `json:"prefix"`
	Excluded netip.Prefix `json:"excluded,omitzero"`
}

// String names it for the log.
func (d Delegated) String() string {
	if !d.Excluded.IsValid() {
		return d.Prefix.String()
	}
	return d.Prefix.String() + " without " + d.Excluded.String()
}

func delegated(list []sgsn.Delegated) (shown []Delegated) {
	for _, d := range list {
		shown = append(shown, Delegated{d.Prefix, d.Excluded})
	}
	return shown
}

func shown(i *sgsn.Info) Context {
	c := Context{
		IMSI: i.IMSI.String(), NSAPI: i.Key.NSAPI(), Linked: i.Linked, State: i.State.String(), APN: i.APN, GTP: uint8(i.Version),
		IPv4: i.IPv4, LinkLocal: i.LinkLocal, IPv6: addresses(i.IPv6), Delegated: delegated(i.Delegated), DNS: i.DNS, Search: i.Domains, NAT64: i.NAT64, PCSCF: i.PCSCF, MTU4: i.MTU4, MTU6: i.MTU6,
		Auth: i.Auth.String(), AuthMessage: i.AuthMessage,
		SGSN: i.Local, GGSN: i.Control, User: i.User, TEIDs: [4]uint32{i.TEIDControl, i.TEIDData, i.RemoteControl, i.RemoteData},
		UpPackets: i.Traffic.UpPackets, UpOctets: i.Traffic.UpOctets, DownPackets: i.Traffic.DownPackets, DownOctets: i.Traffic.DownOctets,
	}
	for k := range i.Filters {
		c.Filters = append(c.Filters, filterText(&i.Filters[k]))
	}
	if i.Type != 0 {
		c.Type = i.Type.String()
	}
	return c
}

func addresses(list []sgsn.Address6) (addrs []netip.Addr) {
	for _, a := range list {
		addrs = append(addrs, a.Address)
	}
	return addrs
}

// all are the addresses in one word; without any, a dash.
func (c *Context) all() string {
	var words []string
	for _, a := range append([]netip.Addr{c.IPv4}, c.IPv6...) {
		if a.IsValid() {
			words = append(words, a.String())
		}
	}
	if len(words) == 0 && c.LinkLocal.IsValid() {
		words = append(words, c.LinkLocal.String())
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

// Contexts are those of an instance.
type Contexts struct {
	Contexts []Context `json:"contexts"`
}

// Nothing implements [role.Emptiness].
func (c Contexts) Nothing() string {
	if len(c.Contexts) > 0 {
		return ""
	}
	return "there is no PDP context"
}

// Write implements [role.Table].
func (c Contexts) Write(w io.Writer) {
	fmt.Fprintln(w, "IMSI\tNSAPI\tLINKED\tSTATE\tGTP\tAPN\tADDRESSES\tSGSN\tGGSN\tUP\tDOWN")
	for _, one := range c.Contexts {
		linked := "-"
		if one.Linked != 0 {
			linked = fmt.Sprint(one.Linked)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\tv%d\t%s\t%s\t%s\t%s\t%d\t%d\n",
			one.IMSI, one.NSAPI, linked, one.State, one.GTP, one.APN, one.all(), one.SGSN, one.GGSN, one.UpPackets, one.DownPackets)
	}
}

// list answers with all contexts.
func (s *SGSN) list(struct{}) (c Contexts, _ error) {
	c.Contexts = []Context{}
	s.loop.Do(func(time.Time, *sgsn.Output) {
		for _, key := range s.engine.Keys() {
			if i, ok := s.engine.Context(key); ok {
				c.Contexts = append(c.Contexts, shown(&i))
			}
		}
	})
	return c, nil
}

// Done is what an order has come to.
type Done struct {
	Event   string        `json:"event"`
	Took    time.Duration `json:"took"`
	Context Context       `json:"context"`
}

// Write implements [role.Table].
func (d Done) Write(w io.Writer) {
	c := &d.Context
	if c.IMSI == "" || c.SGSN == (netip.Addr{}) {
		fmt.Fprintln(w, d.Event)
		return
	}
	fmt.Fprintf(w, "%s: %s\tNSAPI %d\tdns %v\tmtu %d/%d\tSGSN %s\tGGSN %s\tGTPv%d\tTEIDs %#x\n", d.Event, c.all(), c.NSAPI, c.DNS, c.MTU4, c.MTU6, c.SGSN, c.GGSN, c.GTP, c.TEIDs)
}

// Misdone is a misdeed that was done, or will be with what comes next.
type Misdone struct {
	What  string `json:"what"`
	Times int    `json:"times"`
}

// Write implements [role.Table].
func (m Misdone) Write(w io.Writer) { fmt.Fprintf(w, "%s, %d times\n", m.What, m.Times) }

// Started is a load that has begun.
type Started struct {
	Contexts int `json:"contexts"`
}

// Write implements [role.Table].
func (s Started) Write(w io.Writer) { fmt.Fprintf(w, "%d contexts\n", s.Contexts) }

// Load is how a load goes, or went.
type Load struct {
	Going  bool             `json:"going"`
	Report *sgsn.LoadReport `json:"report,omitempty"`
}

// Write implements [role.Table].
func (l Load) Write(w io.Writer) {
	if l.Report == nil {
		return
	}
	fmt.Fprintln(w, "\tANSWERED\tFAILED\tSECONDS\tPER SECOND\tP50\tP90\tP99\tMAX")
	row := func(what string, p sgsn.LoadPhase) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.0f\t%v\t%v\t%v\t%v\n", what, p.Answered, p.Failed, p.Seconds, p.PerSecond, rounded(p.P50), rounded(p.P90), rounded(p.P99), rounded(p.Max))
	}
	row("creates", l.Report.Creates)
	row("deletes", l.Report.Deletes)
	if l.Report.Why != "" {
		fmt.Fprintf(w, "\nthe first that failed: %s\n", l.Report.Why)
	}
}

// rounded is a time as people read it.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
