// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"net/netip"
	"slices"
)

// Status is the status of a registrar.
type Status struct {
	// State is starting, serving, address_missing while the host lacks one of MissingAddresses, or
	// not_kept while what should outlive the process cannot be written down, for the reason that
	// Trouble has.
	State   string `json:"state"`
	Trouble string `json:"trouble,omitempty"`
	// Listen are the sockets, UDP and TCP each, ListenTLS those of TLS.
	Listen    []netip.AddrPort `json:"listen"`
	ListenTLS []netip.AddrPort `json:"listen_tls,omitempty"`
	// MissingAddresses are those of these that have gone from the host, or are on an interface
	// that is switched off.
	MissingAddresses []netip.Addr `json:"missing_addresses,omitempty"`
	Domains          []string     `json:"domains"`
	Mode             string       `json:"mode"`
	// NextHop is where a P-CSCF passes everything on to.
	NextHop string `json:"next_hop,omitempty"`
	// Addresses are those of record that have Bindings; MaxBindings may be. Lost are those of an
	// earlier process that could not go on.
	Addresses   int `json:"addresses"`
	Bindings    int `json:"bindings"`
	MaxBindings int `json:"max_bindings"`
	Lost        int `json:"lost"`
	// Requests are open, of others and of the proxy.
	Requests int `json:"requests"`
	// Connections are those over TCP and TLS.
	Connections int `json:"connections"`
	// Unread are datagrams that the kernel has dropped because more came than were read.
	Unread uint64 `json:"unread"`
}

// Status implements [role.Instance]; it returns a [Status].
func (r *Registrar) Status() any {
	sizes := r.sizes()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		State: "starting", Trouble: r.trouble, Listen: slices.Clone(r.cfg.Listen), ListenTLS: slices.Clone(r.cfg.ListenTLS),
		Domains: slices.Clone(r.cfg.Domains), Mode: r.cfg.Mode, NextHop: r.cfg.NextHop,
		Addresses: sizes.addresses, Bindings: sizes.bindings, MaxBindings: r.cfg.MaxBindings, Lost: r.lost,
		Requests: sizes.servers + sizes.clients, Connections: r.streams.count(),
		Unread: r.sockets.stats().ReadFull,
	}
	select {
	case <-r.ready:
		s.State = "serving"
	default:
	}
	if s.MissingAddresses = r.addresses.Missing(); len(s.MissingAddresses) > 0 {
		s.State = "address_missing"
	}
	if s.Trouble != "" {
		s.State = "not_kept"
	}
	return s
}
