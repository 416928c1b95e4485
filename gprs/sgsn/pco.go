// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// given is what the network has told a terminal by protocol configuration options.
type given struct {
	dns, pcscf []netip.Addr
	mtu        int // of IPv4; 0: not told
	proof      proof
}

// appendPCO writes what a terminal asks for in the memory of b (TS 24.008 section 10.5.6.3).
func (a *Attachment) appendPCO(b []byte, who *proof) gtp.PCO {
	p := gtp.NewPCO(b)
	add := func(c gtp.Container, value []byte) { p, _ = p.Add(c, value) }
	if a.User != "" {
		who.add(a, add)
	}
	if a.Type != gtp.PDPTypeIPv6 {
		var options [12]byte
		asked := gtp.AppendIPCPOption(options[:0], gtp.IPCPPrimaryDNS, netip.IPv4Unspecified())
		asked = gtp.AppendIPCPOption(asked, gtp.IPCPSecondaryDNS, netip.IPv4Unspecified())
		add(gtp.ContainerIPCP, gtp.PPP{Code: gtp.ConfigureRequest, Identifier: 1, Data: asked}.Append(nil))
		add(gtp.ContainerDNS4, nil)
		add(gtp.ContainerMTU4, nil)
	}
	if a.Type != gtp.PDPTypeIPv4 {
		add(gtp.ContainerDNS6, nil)
	}
	if a.PCSCF {
		if a.Type != gtp.PDPTypeIPv4 {
			add(gtp.ContainerPCSCF6, nil)
		}
		if a.Type != gtp.PDPTypeIPv6 {
			add(gtp.ContainerPCSCF4, nil)
		}
	}
	return p
}

// read takes what the network tells. Servers that come twice, by IPCP and in a container of
// their own, are taken once.
func (g *given) read(p gtp.PCO) {
	for c, v := range p.All() {
		switch c {
		case gtp.ContainerDNS4, gtp.ContainerDNS6:
			g.dns = addServer(g.dns, v)
		case gtp.ContainerPCSCF4, gtp.ContainerPCSCF6:
			g.pcscf = addServer(g.pcscf, v)
		case gtp.ContainerMTU4:
			if len(v) == 2 {
				g.mtu = int(binary.BigEndian.Uint16(v))
			}
		case gtp.ContainerIPCP:
			g.readIPCP(v)
		case gtp.ContainerPAP, gtp.ContainerCHAP:
			g.proof.read(c, v)
		}
	}
}

// readAnew takes what the network tells of a context that is open: what it names takes the place
// of what it has told of the same kind and family before.
func (g *given) readAnew(p gtp.PCO) {
	told := given{mtu: g.mtu, proof: g.proof}
	told.read(p)
	told.dns, told.pcscf = renewed(g.dns, told.dns), renewed(g.pcscf, told.pcscf)
	*g = told
}

func renewed(had, told []netip.Addr) []netip.Addr {
	for _, a := range had {
		if !slices.ContainsFunc(told, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			told = append(told, a)
		}
	}
	return told
}

// readIPCP takes the name servers of a Configure-Nak or Ack (RFC 1877).
func (g *given) readIPCP(v []byte) {
	p, ok := gtp.ParsePPP(v)
	if !ok || p.Code != gtp.ConfigureNak && p.Code != gtp.ConfigureAck {
		return
	}
	for option, v := range p.Options() {
		if option == gtp.IPCPPrimaryDNS || option == gtp.IPCPSecondaryDNS {
			g.dns = addServer(g.dns, v)
		}
	}
}

func addServer(list []netip.Addr, v []byte) []netip.Addr {
	a, ok := netip.AddrFromSlice(v)
	if !ok || a.IsUnspecified() || len(list) == maxServers || slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}
