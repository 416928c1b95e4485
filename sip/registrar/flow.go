// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// writeFlow writes a target as the flow of a binding.
func writeFlow(t transaction.Target) string {
	return fmt.Sprintf("%s %s %s %d", t.Transport, t.Local, t.Remote, t.Connection)
}

// ParseFlow reads the flow of a binding.
func ParseFlow(s string) (t transaction.Target, ok bool) {
	words := strings.Fields(s)
	if len(words) != 4 {
		return t, false
	}
	local, err := netip.ParseAddrPort(words[1])
	remote, errRemote := netip.ParseAddrPort(words[2])
	connection, errConnection := strconv.ParseUint(words[3], 10, 64)
	return transaction.Target{Transport: words[0], Local: local, Remote: remote, Connection: connection}, err == nil && errRemote == nil && errConnection == nil
}

// sourceOf is where a REGISTER has come from. A name that can be looked up is that of another host, such as of an address to which
// calls are forwarded, unless it is the one that registers.
func sourceOf(m *message.Message, from transaction.Target) Source {
	if len(m.All("Via")) != 1 {
		return Source{}
	}
	to, _ := m.To()
	return Source{Flow: writeFlow(from), Holds: func(c *message.Address) bool {
		elsewhere := isPublicName(c.URI.Host) && aorOf(&c.URI) != aorOf(&to.URI)
		return c.Params.Has("reg-id") || !elsewhere && apart(&c.URI, from)
	}}
}

// isPublicName reports whether a host is a name that name servers may know: not one of RFC 7118 section 5, for instance.
func isPublicName(host string) bool {
	return isName(host) && strings.Contains(host, ".") && !strings.HasSuffix(host, ".invalid")
}

// apart reports whether a user agent that speaks to the proxy itself is reached by the connection
// that it holds open, or where a NAT shows it to be, rather than by its contact. A contact that is
// elsewhere in the Internet is one that it has named for another.
func apart(contact *message.URI, from transaction.Target) bool {
	host, err := netip.ParseAddr(contact.Host)
	switch host = host.Unmap(); {
	case err != nil || host == from.Remote.Addr().Unmap():
		return from.Reliable()
	default:
		return special.Hidden(host)
	}
}

// callerFlow is the connection to the one who sends a request, as a route carries it (RFC 5626
// section 5.1); nil: he is reached by his contact, or by the proxies before him.
func (p *Proxy) callerFlow(m *message.Message, from transaction.Target) []byte {
	a, err := message.ParseAddress(m.Get("Contact"))
	if err != nil || len(m.All("Via")) != 1 || !apart(&a.URI, from) {
		return nil
	}
	return p.packFlow(from, &a.URI)
}

// packFlow writes a connection down for a route, with a sum of the contact's host that it stands for:
// who has moved has another one, and is reached by that.
func (p *Proxy) packFlow(t transaction.Target, contact *message.URI) []byte {
	for i, l := range p.settings.Listeners {
		if l.Transport == t.Transport && l.Address == t.Local {
			b := binary.BigEndian.AppendUint32([]byte{byte(i)}, crc32.ChecksumIEEE([]byte(contact.Host)))
			b = binary.BigEndian.AppendUint16(b, t.Remote.Port())
			b = append(b, t.Remote.Addr().Unmap().AsSlice()...)
			if t.Connection != 0 {
				b = binary.BigEndian.AppendUint64(b, t.Connection)
			}
			return b
		}
	}
	return nil
}

// unpackFlow reads what packFlow has written: none if the request goes elsewhere, or the connection
// is gone.
func (p *Proxy) unpackFlow(b []byte, m *message.Message) (t transaction.Target) {
	const fixed = 7
	target, err := message.ParseURI(m.URI)
	if err != nil || len(b) < fixed || int(b[0]) >= len(p.settings.Listeners) || binary.BigEndian.Uint32(b[1:]) != crc32.ChecksumIEEE([]byte(target.Host)) {
		return t
	}
	l := p.settings.Listeners[b[0]]
	size := l.Address.Addr().BitLen() / 8
	if rest := len(b) - fixed - size; rest != 0 && rest != 8 {
		return t
	}
	remote, _ := netip.AddrFromSlice(b[fixed : fixed+size])
	t = transaction.Target{Transport: l.Transport, Local: l.Address, Remote: netip.AddrPortFrom(remote, binary.BigEndian.Uint16(b[5:]))}
	if len(b) > fixed+size {
		t.Connection = binary.BigEndian.Uint64(b[fixed+size:])
	}
	if !p.connected(t) {
		return transaction.Target{}
	}
	return t
}

// connected reports whether a connection is still there.
func (p *Proxy) connected(t transaction.Target) bool {
	return p.Connected == nil || !t.Reliable() || p.Connected(t)
}
