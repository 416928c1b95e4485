// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/sctp"
)

// Tuning are the parameters of SCTP (RFC 9260 section 16, RFC 7829), as keys of the section and as flags.
type Tuning struct {
	RTOInitial        time.Duration `name:"rto-initial" default:"1s" help:"RTO.Initial (${default})."`
	RTOMin            time.Duration `name:"rto-min" default:"1s" help:"RTO.Min (${default})."`
	RTOMax            time.Duration `name:"rto-max" default:"1m" help:"RTO.Max (${default})."`
	PathMaxRetrans    int           `name:"path-max-retrans" default:"5" help:"Path.Max.Retrans: one more timeout, and a path is inactive (${default})."`
	AssociationMax    int           `name:"association-max-retrans" default:"10" help:"Association.Max.Retrans (${default})."`
	PFThreshold       int           `name:"pf-threshold" default:"0" help:"Timeouts after which one more has data leave a path (RFC 7829); as many as path-max-retrans: never (${default})."`
	HeartbeatInterval time.Duration `name:"heartbeat-interval" default:"30s" help:"HB.interval; 0s is no heartbeats (${default})."`
	SACKDelay         time.Duration `name:"sack-delay" default:"200ms" help:"How long an acknowledgement may wait (${default})."`
	EarlyProbe        bool          `name:"early-probe" default:"true" negatable:"" help:"Try another path after two silent round trips, beyond the RFCs (${default})."`
	LinkEvents        bool          `name:"link-events" default:"true" negatable:"" help:"Leave a link as soon as the kernel says that it is down, beyond the RFCs (${default})."`
	SpuriousTimeouts  bool          `name:"spurious-timeouts" default:"true" negatable:"" help:"Take a timeout back that an acknowledgement shows to be spurious, beyond the RFCs (${default})."`
	SetupRace         bool          `name:"setup-race" default:"true" negatable:"" help:"Try further addresses of the other end after 250 ms, beyond the RFCs (${default})."`
	Buffer            int           `name:"buffer" default:"1048576" help:"Octets of the send and of the receive buffer (${default})."`
	MTU               int           `name:"mtu" default:"1500" help:"Largest packets of IP that are tried (${default})."`
}

// Bounds of parameters.
const (
	leastTime   = time.Millisecond
	longestTime = 30 * 24 * time.Hour
	leastBuffer = 256 << 10 // several of the largest messages
	mostBuffer  = 1 << 28
)

func (t *Tuning) keys() []key.Key {
	return []key.Key{
		key.Of("rto_initial", &t.RTOInitial, "1s", key.Duration(leastTime, longestTime), key.Live, "RTO.Initial of new associations."),
		key.Of("rto_min", &t.RTOMin, "1s", key.Duration(leastTime, longestTime), key.Live, "RTO.Min: how soon a loss at the end of what is sent is noticed."),
		key.Of("rto_max", &t.RTOMax, "1m", key.Duration(leastTime, longestTime), key.Live, "RTO.Max."),
		key.Of("path_max_retrans", &t.PathMaxRetrans, 5, key.Integer[int](0, 1000), key.Live, "Path.Max.Retrans: after one timeout more a path is inactive."),
		key.Of("association_max_retrans", &t.AssociationMax, 10, key.Integer[int](0, 1000), key.Live, "Association.Max.Retrans: after one timeout more an association has failed."),
		key.Of("pf_threshold", &t.PFThreshold, 0, key.Integer[int](0, 1000), key.Live,
			"Timeouts after which one more has data leave a path (RFC 7829). As many as path_max_retrans: never."),
		key.Of("heartbeat_interval", &t.HeartbeatInterval, "30s", key.Duration(0, longestTime), key.Live, "HB.interval: how often an idle path is asked; 0s is never."),
		key.Of("sack_delay", &t.SACKDelay, "200ms", key.Duration(0, 500*time.Millisecond), key.Live, "How long an acknowledgement may wait."),
		key.Of("early_probe", &t.EarlyProbe, true, key.Bool, key.Live,
			"Try another path after two silent round trips, beyond the RFCs."),
		key.Of("link_events", &t.LinkEvents, true, key.Bool, key.Live,
			"Leave a link of this host as soon as the kernel says that it is down, beyond the RFCs."),
		key.Of("spurious_timeouts", &t.SpuriousTimeouts, true, key.Bool, key.Live,
			"Take a timeout back that an acknowledgement shows to be spurious, beyond the RFCs."),
		key.Of("setup_race", &t.SetupRace, true, key.Bool, key.Live,
			"Try further addresses of a peer after 250 ms when an association is set up, beyond the RFCs."),
		key.Of("buffer", &t.Buffer, 1<<20, key.Integer[int](leastBuffer, mostBuffer), key.Restart, "Octets of the send buffer, and of the receive buffer, of each association."),
		key.Of("mtu", &t.MTU, 1500, key.Integer[int](576, 65535), key.Live, "Largest packets of IP that are tried."),
	}
}

// parameters are those of the library.
func (t *Tuning) parameters() sctp.Parameters {
	p := sctp.Defaults()
	p.RTOInitial, p.RTOMin, p.RTOMax = t.RTOInitial, t.RTOMin, t.RTOMax
	p.PathMaxRetrans, p.AssociationMaxRetrans, p.PotentiallyFailedMaxRetrans = t.PathMaxRetrans, t.AssociationMax, t.PFThreshold
	if p.HeartbeatInterval = t.HeartbeatInterval; t.HeartbeatInterval == 0 {
		p.HeartbeatInterval = -1
	}
	p.SACKDelay, p.EarlyProbe, p.LinkEvents, p.MaxMTU = t.SACKDelay, t.EarlyProbe, t.LinkEvents, t.MTU
	p.SpuriousTimeouts, p.SetupRace = t.SpuriousTimeouts, t.SetupRace
	p.SendBuffer, p.ReceiveBuffer = t.Buffer, t.Buffer
	return p
}
