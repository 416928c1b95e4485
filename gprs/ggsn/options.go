// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// maxAddresses bounds how many of a kind of server a terminal is told.
const maxAddresses = 16

// tellOptions answers the options that a terminal asks for (TS 24.008 section 10.5.6.3): of
// each what it asked, and nothing else; a new session also what its access point tells unasked. An answer is made
// again for a request that comes again, from the same options. Where there is no room for all, long lists of servers
// are cut, so that they take none from what else is told.
func (e *Engine) tellOptions(t *transaction, s *session, asked gtp.PCO, isNew bool, told *gtp.Optional[gtp.PCO]) {
	o := options{a: e.accessPoint(s), s: s, dns6: e.dnsOf(s), mtu: e.mtuOf(s), most: maxAddresses}
	for o.out = gtp.NewPCO(e.scratch.pco[:0]); !o.answerAll(asked, isNew) && o.most > 1; o.most-- {
	}
	if !t.repeated {
		e.stats.OptionsUnanswered += o.unanswered
		e.stats.OptionsUnknown += o.unknown
	}
	o.tell(told)
}

// refuseProof answers what a terminal has of a name and its proof, which were refused.
func (e *Engine) refuseProof(asked gtp.PCO, told *gtp.Optional[gtp.PCO]) {
	o := options{refused: true, out: gtp.NewPCO(e.scratch.pco[:0])}
	for container, value := range asked.All() {
		o.prove(container, value)
	}
	o.tell(told)
}

// options is the answer to options.
type options struct {
	a    *access
	s    *session
	dns6 []netip.Addr
	mtu  int
	most int // addresses of a kind

	out  gtp.PCO
	seen uint32 // containers that were answered, a bit for each below 32
	full bool   // there was no room for something

	unanswered, unknown uint64

	refused bool // and so is the terminal's proof of its name
}

// answerAll writes the whole answer, and reports whether there was room for it.
func (o *options) answerAll(asked gtp.PCO, isNew bool) bool {
	o.out, o.seen, o.full, o.unanswered, o.unknown = gtp.NewPCO(o.out), 0, false, 0, 0
	for container, value := range asked.All() {
		o.answer(container, value)
	}
	if isNew && o.a.TellPCSCF {
		o.answer(gtp.ContainerPCSCF6, nil)
		o.answer(gtp.ContainerPCSCF4, nil)
	}
	if isNew && o.a.TellMTU {
		o.answer(gtp.ContainerMTU4, nil)
	}
	return !o.full
}

func (o *options) tell(told *gtp.Optional[gtp.PCO]) {
	if len(o.out) > 1 {
		*told = gtp.Some(o.out)
	}
}

func (o *options) add(c gtp.Container, value []byte) {
	out, ok := o.out.Add(c, value)
	o.out, o.full = out, o.full || !ok
}

func (o *options) answer(c gtp.Container, value []byte) {
	if c < 32 {
		if o.seen&(1<<c) != 0 {
			return
		}
		o.seen |= 1 << c
	}
	four, six := o.s.has.has(TypeIPv4), o.s.has.has(TypeIPv6)
	switch c {
	case gtp.ContainerIPCP:
		o.ipcp(value)
	case gtp.ContainerPAP, gtp.ContainerCHAP:
		o.prove(c, value)
	case gtp.ContainerDNS6:
		o.addresses(c, six, o.dns6)
	case gtp.ContainerDNS4:
		o.addresses(c, four, o.a.DNS4)
	case gtp.ContainerPCSCF6:
		o.addresses(c, six, o.a.PCSCF6)
	case gtp.ContainerPCSCF4:
		o.addresses(c, four, o.a.PCSCF4)
	case gtp.ContainerIMSignalling:
		o.add(c, nil)
	case gtp.ContainerBearerControl:
		o.add(c, []byte{bearerControlMS})
	case gtp.ContainerMTU4:
		if four {
			o.add(c, binary.BigEndian.AppendUint16(make([]byte, 0, 2), uint16(o.mtu)))
		}
	case gtp.ContainerPolicyRejection, gtp.ContainerAddressNAS, gtp.ContainerAddressDHCP, gtp.ContainerMSISDN, gtp.ContainerMTUNonIP,
		gtp.ContainerRateControl, gtp.ContainerDataOff, gtp.ContainerReliableData, gtp.ContainerRateControlExtra, gtp.ContainerPDUSession:
		o.unanswered++
	default:
		o.unknown++
	}
}

// prove says whether a terminal has proved its name (RFC 1334 section 2.2.2, RFC 1994 section 4.2).
func (o *options) prove(c gtp.Container, value []byte) {
	p, _ := gtp.ParsePPP(value)
	pap, chap := gtp.PAPAck, gtp.CHAPSuccess
	if o.refused {
		pap, chap = gtp.PAPNak, gtp.CHAPFailure
	}
	switch _, _, isPAP := p.PAPCredentials(); {
	case c == gtp.ContainerPAP && isPAP:
		o.addPPP(c, gtp.PPP{Code: pap, Identifier: p.Identifier, Data: []byte{0}}) // a message of no octets
	case c == gtp.ContainerCHAP && p.Code == gtp.CHAPResponse:
		if _, _, ok := p.CHAPValue(); ok {
			o.addPPP(c, gtp.PPP{Code: chap, Identifier: p.Identifier})
		}
	}
}

// bearerControlMS says that terminals alone ask for secondary contexts (TS 24.008 section
// 10.5.6.3).
const bearerControlMS = 1

// addresses tells one address in each container.
func (o *options) addresses(c gtp.Container, fits bool, list []netip.Addr) {
	for _, a := range list[:min(len(list), o.most)] {
		if fits {
			raw := a.As16()
			if a.Is4() {
				o.add(c, raw[12:])
			} else {
				o.add(c, raw[:])
			}
		}
	}
}

func (o *options) addPPP(c gtp.Container, p gtp.PPP) {
	var room [gtp.MaxPCO]byte
	o.add(c, p.Append(room[:0]))
}

// ipcp answers a Configure-Request (RFC 1332, RFC 1877). Name servers that the terminal has
// not, or not right, are told by a Configure-Nak, and if it has them all by an Ack; what
// this node does not serve is refused by a Reject of its own, so that a terminal that asks
// for both has its name servers at once.
func (o *options) ipcp(value []byte) {
	p, ok := gtp.ParsePPP(value)
	if !ok || p.Code != gtp.ConfigureRequest {
		return
	}
	var room [2][gtp.MaxPCO]byte
	nak, reject := room[0][:0], room[1][:0]
	for option, has := range p.Options() {
		want, served := o.ipcpAddress(option)
		switch {
		case !served && len(reject)+2+len(has) <= gtp.MaxPCO:
			reject = append(append(reject, option, byte(2+len(has))), has...)
		case served && !sameAddress(has, want) && len(nak)+6 <= gtp.MaxPCO:
			nak = gtp.AppendIPCPOption(nak, option, want)
		}
	}
	switch {
	case len(nak) > 0:
		o.addPPP(gtp.ContainerIPCP, gtp.PPP{Code: gtp.ConfigureNak, Identifier: p.Identifier, Data: nak})
	case len(reject) == 0:
		o.addPPP(gtp.ContainerIPCP, gtp.PPP{Code: gtp.ConfigureAck, Identifier: p.Identifier, Data: p.Data})
	}
	if len(reject) > 0 {
		o.addPPP(gtp.ContainerIPCP, gtp.PPP{Code: gtp.ConfigureReject, Identifier: p.Identifier, Data: reject})
	}
}

// ipcpAddress returns the value that an option is to have.
func (o *options) ipcpAddress(option uint8) (a netip.Addr, ok bool) {
	if !o.s.has.has(TypeIPv4) {
		return a, false
	}
	switch servers := o.a.DNS4; {
	case option == gtp.IPCPAddress:
		return addr4(o.s.address), true
	case option == gtp.IPCPPrimaryDNS && len(servers) > 0:
		return servers[0], true
	case option == gtp.IPCPSecondaryDNS && len(servers) > 1:
		return servers[1], true
	}
	return a, false
}

func sameAddress(has []byte, want netip.Addr) bool {
	a, ok := netip.AddrFromSlice(has)
	return ok && a == want
}
