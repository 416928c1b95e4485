// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Status is the status of an SGSN.
type Status struct {
	// State is serving, incomplete while something of a terminal is missing, or
	// address_missing while the host lacks one of Local.
	State string       `json:"state"`
	Local []netip.Addr `json:"local"`
	// MissingAddresses are those of Local that have gone from the host, or are on an interface
	// that is switched off.
	MissingAddresses []netip.Addr `json:"missing_addresses,omitempty"`
	// Terminals are the devices, with what is missing of them.
	Terminals []string `json:"terminals,omitempty"`
	Missing   []string `json:"missing,omitempty"`
}

// Status implements [role.Instance]; it returns a [Status].
func (s *SGSN) Status() any {
	st := Status{State: "serving", Local: s.cfg.Local}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.MissingAddresses = s.addresses.Missing(); len(st.MissingAddresses) > 0 {
		st.State = "address_missing"
	}
	for _, t := range s.terminals {
		if t == nil || t.device == nil && t.frames == nil {
			continue
		}
		st.Terminals = append(st.Terminals, t.String())
		kept := t.device.State()
		st.Missing = append(st.Missing, kept.All()...)
		if kept.Word() != "" {
			st.State = kept.Word()
		}
	}
	return st
}

// Collect implements [role.Instance].
func (s *SGSN) Collect(emit func(role.Metric)) {
	var c sgsn.Stats
	contexts := 0
	s.loop.Do(func(time.Time, *sgsn.Output) {
		c, contexts = s.engine.Stats(), s.engine.Contexts()
		s.engine.EachDropped(func(reason string, n uint64) { emit(role.Dropped(reason, n)) })
	})
	emit(role.Level("contexts", "PDP contexts.", float64(contexts)))
	for _, one := range []struct {
		name, help string
		n          uint64
	}{
		{"requests_total", "Requests sent to GGSNs, each counted once.", c.Requests},
		{"requests_repeated_total", "Requests sent again.", c.Repeated},
		{"requests_answered_total", "Requests that were answered.", c.Answered},
		{"requests_unanswered_total", "Requests given up.", c.Unanswered},
		{"contexts_created_total", "PDP contexts opened.", c.Created},
		{"contexts_refused_total", "PDP contexts that could not be opened.", c.Refused},
		{"contexts_ended_total", "PDP contexts closed.", c.Ended},
		{"peer_requests_total", "Requests of GGSNs answered.", c.PeerRequests},
		{"peer_requests_repeated_total", "Requests of GGSNs answered again.", c.PeerRepeats},
		{"echoes_total", "Echo requests of GGSNs answered.", c.Echoes},
		{"peer_restarts_total", "Restarts of GGSNs seen.", c.Restarts},
		{"error_indications_total", "Error Indications received.", c.ErrorIndications},
		{"error_indications_sent_total", "Error Indications sent.", c.ErrorIndicationsSent},
		{"extension_notifications_total", "Supported Extension Headers Notifications received.", c.ExtensionNotifications},
		{"extension_notifications_sent_total", "Supported Extension Headers Notifications sent.", c.ExtensionNotificationsSent},
		{"versions_refused_total", "Messages answered by Version Not Supported.", c.VersionsRefused},
		{"end_markers_total", "End Markers received.", c.EndMarkers},
		{"advertisements_total", "Router advertisements taken.", c.Advertisements},
		{"information_requests_total", "Questions of terminals by stateless DHCPv6.", c.InformationRequests},
		{"information_replies_total", "Answers to them.", c.InformationReplies},
		{"prefix_requests_total", "Messages of terminals about delegated prefixes, by DHCPv6.", c.PrefixRequests},
		{"prefix_replies_total", "Answers to them.", c.PrefixReplies},
		{"up_packets_total", "Packets sent for terminals.", c.UpPackets},
		{"up_octets_total", "Octets of packets sent for terminals.", c.UpOctets},
		{"down_packets_total", "Packets given to terminals.", c.DownPackets},
		{"down_octets_total", "Octets of packets given to terminals.", c.DownOctets},
	} {
		emit(role.Count(one.name, one.help, one.n))
	}
	var udp, tun port.Stats
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.udp {
		udp = udp.Plus(u.Stats())
	}
	for _, t := range s.terminals {
		switch {
		case t == nil:
		case t.frames != nil:
			tun = tun.Plus(t.frames.Stats())
		default:
			tun = tun.Plus(t.device.Stats())
		}
	}
	loop.CollectPort(emit, "udp", udp)
	loop.CollectPort(emit, "tun", tun)
}
