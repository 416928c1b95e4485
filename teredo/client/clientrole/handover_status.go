// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// PathStatus is the status of one interface of a client that has several.
type PathStatus struct {
	Interface string `json:"interface"`
	// State is in_use, standing_by, doubted, no_carrier, absent, or a state of a
	// client without an address.
	State string `json:"state"`
	// Address, Mapped and Server are as in [Status].
	Address netip.Addr     `json:"address,omitzero"`
	Mapped  netip.AddrPort `json:"mapped,omitzero"`
	Server  netip.Addr     `json:"server,omitzero"`
}

// RankedServer is what the client knows of one server; the best comes first.
type RankedServer struct {
	Server netip.Addr `json:"server"`
	// State is in_use, answers, silent or unknown.
	State string `json:"state"`
	// RoundTrip is the smoothed round trip in milliseconds; 0 is not measured.
	RoundTrip float64 `json:"round_trip_ms,omitempty"`
}

// serverRanking puts the ranking in words.
func serverRanking(ranks []client.ServerRank) []RankedServer {
	var list []RankedServer
	for _, r := range ranks {
		s := RankedServer{Server: r.Server, State: "unknown", RoundTrip: float64(r.RTT.Microseconds()) / 1000}
		switch {
		case r.InUse:
			s.State = "in_use"
		case r.Silent:
			s.State = "silent"
		case r.RTT > 0:
			s.State = "answers"
		}
		list = append(list, s)
	}
	return list
}

// clients lists the clients that there are, with the paths as they are seen from
// outside.
func (h *Handover) clients() (list []*Client, paths []PathStatus, active *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, p := range h.paths {
		s := PathStatus{Interface: p.iface, Address: p.address}
		switch {
		case p.client == nil:
			s.State = "absent"
		case !p.up:
			s.State = "no_carrier"
		case p.addressed && p.doubted:
			s.State = "doubted"
		case p.addressed && i == h.active:
			s.State = "in_use"
		case p.addressed:
			s.State = "standing_by"
		}
		paths = append(paths, s)
		if p.client != nil {
			list = append(list, p.client)
			if i == h.active {
				active = p.client
			}
		}
	}
	return list, paths, active
}

// Status implements [role.Instance]; it returns the [Status] of the path in
// use with all paths.
func (h *Handover) Status() any {
	list, paths, active := h.clients()
	st := Status{State: client.Initial.String(), Interface: h.tun.name(), Unsolicited: string(h.cfg.Unsolicited), FastPath: h.tun.fast.status()}
	states := map[string]Status{}
	for _, c := range list {
		s := c.Status().(Status)
		states[c.via] = s
		if c == active {
			st = s
		}
	}
	for i, p := range paths {
		s, ok := states[p.Interface]
		if ok && p.State == "" {
			paths[i].State = s.State
		}
		if p.Address.IsValid() {
			paths[i].Mapped, paths[i].Server = s.Mapped, s.Server
		}
	}
	st.Paths = paths
	return st
}

// Peers implements [role.PeerLister].
func (h *Handover) Peers(limit int) (peers []role.Peer, total int) {
	list, _, _ := h.clients()
	for _, c := range list {
		some, n := c.Peers(max(limit-len(peers), 0))
		peers, total = append(peers, some...), total+n
	}
	return peers, total
}

// Collect implements [role.Instance]: sums over all paths, but what the path in
// use alone can tell.
func (h *Handover) Collect(emit func(role.Metric)) {
	list, paths, active := h.clients()
	if len(list) == 0 {
		return
	}
	type key struct{ name, reason string }
	sums := map[key]float64{}
	var order []role.Metric
	for _, c := range list {
		c.Collect(func(m role.Metric) {
			k := key{m.Name, m.Reason}
			if _, seen := sums[k]; !seen {
				order = append(order, m)
				sums[k] = 0
			}
			if m.Name != "qualified" && m.Name != "standby" || c == active {
				sums[k] += m.Value
			}
		})
	}
	for _, m := range order {
		m.Value = sums[key{m.Name, m.Reason}]
		emit(m)
	}
	h.tun.collect(emit)
	ready := 0
	for _, p := range paths {
		if p.State == "in_use" || p.State == "standing_by" {
			ready++
		}
	}
	emit(role.Level("usable_paths", "Interfaces by which the client can be reached now.", float64(ready)))
}

// Prepare implements [role.Changer], for all paths, those of interfaces that come
// later included.
func (h *Handover) Prepare(next Settings) (role.Change, error) {
	if _, err := next.credential(); err != nil { // a faulty key changes no path
		return nil, err
	}
	return func() ([]string, error) {
		h.mu.Lock()
		h.cfg = next
		h.mu.Unlock()
		list, _, _ := h.clients()
		for _, c := range list {
			change, err := c.Prepare(h.ofPath(next))
			if err == nil {
				_, err = change()
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}, nil
}
