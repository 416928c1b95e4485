// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/role"
)

// commands are the command line of a GGSN.
type commands struct {
	Contexts role.Listing[listArguments, *listArguments, Contexts] `cmd:"" help:"List PDP contexts."`
	Peers    role.Ask[struct{}, Peers]                             `cmd:"" help:"List SGSNs, with their restart counters."`
	Delete   role.Order[deleteArguments, Deleted]                  `cmd:"" help:"End contexts, and tell their SGSNs."`
	Close    role.Order[deleteArguments, Closed]                   `cmd:"" name:"close-records" help:"Close the charging records of contexts, which go on with others."`
	Drain    role.Order[drainArguments, Drained]                   `cmd:"" help:"Take no more contexts, and end those that there are."`
	Undrain  role.Order[struct{}, Drained]                         `cmd:"" help:"Take contexts again."`
	Stats    role.Stats                                            `cmd:"" help:"Show what was answered, carried and dropped."`
}

// contextArguments choose contexts.
type contextArguments struct {
	IMSI    string `json:"imsi,omitempty" placeholder:"DIGITS" help:"Of this subscriber only."`
	NSAPI   *uint8 `json:"nsapi,omitempty" placeholder:"0-15" help:"Of this NSAPI only."`
	APN     string `json:"apn,omitempty" placeholder:"NAME" help:"Of this access point only."`
	VRF     string `json:"vrf,omitempty" placeholder:"NAME" help:"Of access points in this VRF only."`
	Address string `json:"address,omitempty" placeholder:"ADDRESS|PREFIX" help:"With an address in this prefix only."`
	SGSN    string `json:"sgsn,omitempty" placeholder:"ADDRESS" help:"Of this SGSN only."`
	TEID    uint32 `json:"teid,omitempty" placeholder:"NUMBER" help:"With this TEID of the user plane only."`
}

// none reports whether all contexts are chosen.
func (a *contextArguments) none() bool { return *a == contextArguments{} }

// Validate has kong refuse what chooses nothing.
func (a *contextArguments) Validate() error {
	_, err := a.selection()
	return err
}

// listArguments choose contexts for a list.
type listArguments struct {
	role.Part
	contextArguments `embed:""`
}

// deleteArguments choose contexts to end, or whose records are to be closed.
type deleteArguments struct {
	contextArguments `embed:""`
	All              bool `json:"all,omitempty" help:"All contexts."`
}

// drainArguments say how fast.
type drainArguments struct {
	Rate int `json:"rate" default:"100" help:"Contexts that are ended a second; 0 ends none."`
}

// Contexts are PDP contexts. From is where the part behind them begins, 0 behind the last.
type Contexts struct {
	Contexts []Context `json:"contexts"`
	From     uint32    `json:"from,omitempty"`
}

// Context is one PDP context.
type Context struct {
	IMSI     string       `json:"imsi"`
	NSAPI    uint8        `json:"nsapi"`
	Primary  *uint8       `json:"primary_nsapi,omitempty"` // of a secondary context
	MSISDN   string       `json:"msisdn,omitempty"`
	Version  int          `json:"gtp_version"`
	APN      string       `json:"apn"`
	VRF      string       `json:"vrf,omitempty"`
	Type     string       `json:"type"`
	Address4 netip.Addr   `json:"address4,omitzero"`
	Prefix6  netip.Prefix `json:"prefix6,omitzero"`
	// Further6 are the prefixes of its link beside that.
	Further6 []netip.Prefix `json:"further6,omitempty"`
	// Former6 are those that it had before, until they are over.
	Former6 []netip.Prefix `json:"former6,omitempty"`
	// Delegated6 are what routers behind the terminal have.
	Delegated6 []netip.Prefix `json:"delegated6,omitempty"`
	// Routes lead to what else is behind it.
	Routes []netip.Prefix `json:"routes,omitempty"`
	SGSN   netip.Addr     `json:"sgsn"`
	User   netip.Addr     `json:"sgsn_user_plane"`
	// TEIDs, flow labels of GTPv0: ours, then the SGSN's.
	TEIDControl     uint32 `json:"teid_control"`
	TEIDData        uint32 `json:"teid_data"`
	PeerTEIDControl uint32 `json:"sgsn_teid_control"`
	PeerTEIDData    uint32 `json:"sgsn_teid_data"`
	ChargingID      uint32 `json:"charging_id"`
	UpPackets       uint64 `json:"up_packets"`
	UpOctets        uint64 `json:"up_octets"`
	DownPackets     uint64 `json:"down_packets"`
	DownOctets      uint64 `json:"down_octets"`
	// Rates that are enforced, in kbit/s, of the context and of all the terminal's here together;
	// left out: none. Dropped are packets above them.
	RateUp      uint32    `json:"rate_up,omitempty"`
	RateDown    uint32    `json:"rate_down,omitempty"`
	AMBRUp      uint32    `json:"ambr_up,omitempty"`
	AMBRDown    uint32    `json:"ambr_down,omitempty"`
	DSCP        uint8     `json:"dscp"`
	UpDropped   uint64    `json:"up_dropped"`
	DownDropped uint64    `json:"down_dropped"`
	Created     time.Time `json:"created"`
	LastSeen    time.Time `json:"last_seen"`
}

func contextOf(x *ggsn.ContextInfo) Context {
	c := Context{
		IMSI: x.IMSI.String(), NSAPI: x.NSAPI, MSISDN: x.MSISDN.String(), Version: int(x.Version), APN: x.APN, Type: x.Type.String(),
		Address4: x.Address4, Prefix6: x.Prefix6, Further6: x.Further6, Former6: x.Former6, Delegated6: x.Delegated6, Routes: x.Routes, SGSN: x.PeerControl, User: x.PeerUser,
		TEIDControl: x.TEIDControl, TEIDData: x.TEIDData, PeerTEIDControl: x.PeerTEIDControl, PeerTEIDData: x.PeerTEIDData,
		ChargingID: x.ChargingID, UpPackets: x.Up.Packets, UpOctets: x.Up.Octets, DownPackets: x.Down.Packets, DownOctets: x.Down.Octets,
		RateUp: x.Limit.Up, RateDown: x.Limit.Down, AMBRUp: x.AMBR.Up, AMBRDown: x.AMBR.Down,
		DSCP: x.DSCP, UpDropped: x.OverUp, DownDropped: x.OverDown,
		Created: x.Created.Truncate(time.Second), LastSeen: x.LastSeen.Truncate(time.Second),
	}
	if x.Secondary {
		c.Primary = &x.Primary
	}
	return c
}

// Write implements [role.Table].
func (l Contexts) Write(w io.Writer) {
	fmt.Fprintln(w, "IMSI\tNSAPI\tLINKED\tGTP\tAPN\tADDRESS\tSGSN\tUP\tDOWN\tKBIT/S\tDROPPED\tAGE")
	for _, c := range l.Contexts {
		var addresses []string
		if c.Address4.IsValid() {
			addresses = append(addresses, c.Address4.String())
		}
		if c.Prefix6.IsValid() {
			addresses = append(addresses, c.Prefix6.String())
		}
		for _, p := range slices.Concat(c.Further6, c.Former6, c.Delegated6, c.Routes) {
			addresses = append(addresses, p.String())
		}
		linked := "-"
		if c.Primary != nil {
			linked = fmt.Sprint(*c.Primary)
		}
		age := max(time.Since(c.Created), 0).Round(time.Second)
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\n", c.IMSI, c.NSAPI, linked, c.Version, c.APN, strings.Join(addresses, " "), c.SGSN, c.UpOctets, c.DownOctets, c.rates(), c.UpDropped+c.DownDropped, age)
	}
}

// rates are those up and down, the lower ones of the context's and of all together.
func (c *Context) rates() string {
	one := func(rates ...uint32) string {
		lowest := uint32(0)
		for _, r := range rates {
			if r != 0 && (lowest == 0 || r < lowest) {
				lowest = r
			}
		}
		if lowest == 0 {
			return "-"
		}
		return fmt.Sprint(lowest)
	}
	return one(c.RateUp, c.AMBRUp) + "/" + one(c.RateDown, c.AMBRDown)
}

// Join implements [role.Rows].
func (l Contexts) Join(next Contexts) Contexts {
	next.Contexts = append(l.Contexts, next.Contexts...)
	return next
}

// Next implements [role.Rows].
func (l Contexts) Next() (int, uint32) { return len(l.Contexts), l.From }

// Nothing implements [role.Emptiness].
func (l Contexts) Nothing() string {
	if len(l.Contexts) > 0 {
		return ""
	}
	return "there is no such context"
}

// Peers are the nodes at the other end.
type Peers struct {
	Peers []Peer `json:"peers"`
}

// Peer is an SGSN. Its restart counter is not known before it has told it.
type Peer struct {
	Address  netip.Addr `json:"address"`
	Restart  *uint8     `json:"restart_counter,omitempty"`
	Down     bool       `json:"down"`
	Since    time.Time  `json:"since,omitzero"`
	Contexts int        `json:"contexts"` // whose user plane it has
	Opened   int        `json:"opened"`   // that it has asked for, or moved to itself: see contexts_per_peer
}

// Write implements [role.Table].
func (l Peers) Write(w io.Writer) {
	fmt.Fprintln(w, "SGSN\tPATH\tRESTART COUNTER\tCONTEXTS\tOPENED")
	for _, p := range l.Peers {
		path, restart := "up", "not told"
		if p.Down {
			path = "down"
		}
		if p.Restart != nil {
			restart = fmt.Sprint(*p.Restart)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", p.Address, path, restart, p.Contexts, p.Opened)
	}
}

// Nothing implements [role.Emptiness].
func (l Peers) Nothing() string {
	if len(l.Peers) > 0 {
		return ""
	}
	return "no SGSN has spoken to this node"
}

// Deleted is how many contexts are on their way out.
type Deleted struct {
	Deleted int `json:"deleted"`
}

// Write implements [role.Table].
func (d Deleted) Write(w io.Writer) {
	fmt.Fprintf(w, "contexts that end as soon as their SGSNs have answered: %d\n", d.Deleted)
}

// Nothing implements [role.Emptiness].
func (d Deleted) Nothing() string {
	if d.Deleted > 0 {
		return ""
	}
	return "there is no such context"
}

// Closed is how many charging records were closed.
type Closed struct {
	Closed int `json:"closed"`
}

// Write implements [role.Table].
func (d Closed) Write(w io.Writer) { fmt.Fprintf(w, "charging records closed: %d\n", d.Closed) }

// Nothing implements [role.Emptiness].
func (d Closed) Nothing() string {
	if d.Closed > 0 {
		return ""
	}
	return "there is no such context with a charging record"
}

// Drained tells whether contexts are refused, and how many end in a second.
type Drained struct {
	Draining bool `json:"draining"`
	Rate     int  `json:"rate,omitempty"`
}

// Write implements [role.Table].
func (d Drained) Write(w io.Writer) {
	switch {
	case !d.Draining:
		fmt.Fprintln(w, "contexts are taken again")
	case d.Rate == 0:
		fmt.Fprintln(w, "no more contexts are taken; those that there are stay")
	default:
		fmt.Fprintf(w, "no more contexts are taken, and %d of those that there are end each second; isthmus ggsn contexts lists who is left\n", d.Rate)
	}
}
