// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// Charge is a charging record as it is written, with what TS 32.298 section 5.1.2.2 wants of a G-CDR.
type Charge struct {
	// Type is that of TS 32.298. LocalNumber counts the records of this node, Number those of the context.
	Type        string `json:"record_type"`
	LocalNumber uint64 `json:"local_sequence_number"`
	Number      uint32 `json:"record_sequence_number"`
	// Session is the Acct-Session-Id of the same context, Node the name of this one, Gateways its
	// addresses.
	Session  string       `json:"session"`
	Node     string       `json:"node"`
	Gateways []netip.Addr `json:"ggsn"`
	// NetworkInitiated would tell that this node has asked for the context, which none does.
	NetworkInitiated bool `json:"network_initiated"`
	// Context has the counts of the record alone.
	Context
	SGSNs []netip.Addr `json:"sgsn_addresses"`
	// Dynamic4 and Dynamic6 tell that an address is of those that go round; nil: there is none.
	Dynamic4  *bool  `json:"dynamic_address4,omitempty"`
	Dynamic6  *bool  `json:"dynamic_address6,omitempty"`
	User      string `json:"user,omitempty"`
	IMEI      string `json:"imeisv,omitempty"`
	Selection *uint8 `json:"selection_mode,omitempty"`
	Charging  string `json:"charging_characteristics,omitempty"` // hexadecimal
	// ChargedAs are the conditions of the last of Volumes.
	ChargedAs
	Volumes []Volume `json:"traffic_volumes"`
	// Opened and Closed are when the record was, Duration is that between them, in seconds.
	Opened   time.Time `json:"opened"`
	Closed   time.Time `json:"closed"`
	Duration int64     `json:"duration"`
	Cause    string    `json:"cause_for_closing"`
	// Diagnostics tells in the last record of a context why that has ended, Last that its session has no other.
	Diagnostics string `json:"diagnostics,omitempty"`
	Last        bool   `json:"last"`
}

// ChargedAs are conditions of a charge. User location and time zone are the octets of TS 29.060 sections 7.7.51, from
// the geographic location type on, and 7.7.52, hexadecimal.
type ChargedAs struct {
	QoS      string `json:"qos"`
	RAT      uint8  `json:"rat,omitempty"`
	Location string `json:"user_location,omitempty"`
	TimeZone string `json:"ms_time_zone,omitempty"`
}

// Volume is what was carried under the same conditions, until Time, and why it ended.
type Volume struct {
	ChargedAs
	SGSN        netip.Addr `json:"sgsn"`
	UpPackets   uint64     `json:"up_packets"`
	UpOctets    uint64     `json:"up_octets"`
	DownPackets uint64     `json:"down_packets"`
	DownOctets  uint64     `json:"down_octets"`
	Changes     []string   `json:"change_conditions"`
	Time        time.Time  `json:"change_time"`
}

// recordType is that of a G-CDR (TS 32.298 section 5.1.2.2, ggsnPDPRecord).
const recordType = "ggsnPDPRecord"

// Ended reports whether it is the last record of its context.
func (r *Charge) Ended() bool { return r.Diagnostics != "" }

// charge is a record as it is written, with the last number.
func (c *charger) charge(r *ggsn.Record) Charge {
	x := &r.Context
	of := x.Account
	to := Charge{
		Type: recordType, LocalNumber: c.number, Number: r.Number,
		Session: sessionID(c.at[0], x.ChargingID, x.Created), Node: c.name, Gateways: c.at, Context: contextOf(x), SGSNs: r.SGSNs, User: string(of.User),
		ChargedAs: chargedAs(&r.Conditions), Opened: second(r.Opened), Closed: second(r.Closed), Duration: int64(r.Duration / time.Second),
		Cause: r.Cause.String(), Last: r.Last,
	}
	to.SGSN = r.SGSN
	if r.Ended {
		to.Diagnostics = r.End.String()
	}
	if x.Address4.IsValid() {
		to.Dynamic4 = new(x.Static&ggsn.TypeIPv4 == 0)
	}
	if x.Prefix6.IsValid() {
		to.Dynamic6 = new(x.Static&ggsn.TypeIPv6 == 0)
	}
	if of.IMEI.Present {
		to.IMEI = of.IMEI.Value.String()
	}
	if of.Selection.Present {
		to.Selection = new(uint8(of.Selection.Value))
	}
	if of.Charging.Present {
		to.Charging = fmt.Sprintf("%04x", of.Charging.Value)
	}
	for i := range r.Containers {
		to.Volumes = append(to.Volumes, volumeOf(&r.Containers[i]))
	}
	return to
}

func volumeOf(in *ggsn.Container) Volume {
	return Volume{
		ChargedAs: chargedAs(&in.Conditions), SGSN: in.SGSN,
		UpPackets: in.Up.Packets, UpOctets: in.Up.Octets, DownPackets: in.Down.Packets, DownOctets: in.Down.Octets,
		Changes: in.Why.Names(), Time: second(in.Time),
	}
}

func chargedAs(is *ggsn.Conditions) ChargedAs {
	to := ChargedAs{QoS: qosText(is.QoS), RAT: uint8(is.RAT.Value)}
	if is.Location.Present {
		to.Location = hex.EncodeToString(is.Location.Value[:])
	}
	if is.TimeZone.Present {
		to.TimeZone = hex.EncodeToString([]byte{is.TimeZone.Value.Octet, is.TimeZone.Value.Summer})
	}
	return to
}

// second is a time as records have it.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
