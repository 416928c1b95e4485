// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// sockets are those of an endpoint: one of each family, or nil.
type sockets [2]*port.Pairs

// Families of sockets.
const (
	ipv4 = iota
	ipv6
)

func (s *sockets) each(f func(*port.Pairs)) {
	for _, one := range s {
		if one != nil {
			f(one)
		}
	}
}

func (s *sockets) close() { s.each(func(one *port.Pairs) { _ = one.Close() }) }

// write sends the packets of a batch.
func (s *sockets) write(b *batch) {
	for i := range b.Packets {
		family := ipv6
		if b.Packets[i].Remote.Is4() {
			family = ipv4
		}
		b.write[family] = append(b.write[family], paired(&b.Packets[i]))
	}
	for family, list := range b.write {
		if len(list) > 0 && s[family] != nil {
			_ = s[family].WriteBatch(list) // closed sockets are those of an endpoint that has ended
		}
		clear(list)
		b.write[family] = list[:0]
	}
}

// paired is a packet of the engine as the socket takes it.
func paired(p *assoc.Packet) port.Paired {
	return port.Paired{Local: p.Local, Remote: netip.AddrPortFrom(p.Remote, p.Port), Payload: p.Octets}
}

// udpTries is how often a port of UDP is looked for that both families have free.
const udpTries = 16

// openSockets opens the endpoint's sockets.
func (e *Endpoint) openSockets(listen bool) error {
	want := uint16(0)
	switch {
	case e.addr.UDP != 0:
		want = e.addr.UDP
	case e.config.UDPPort > 0:
		want = uint16(e.config.UDPPort)
	case e.config.UDPPort == 0 && listen:
		want = DefaultUDPPort
	}
	for try := 1; ; try++ {
		err := e.openFamilies(want)
		if err == nil || want != 0 || try == udpTries || !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
}

// openFamilies opens a socket of each family that has addresses, all at one port of UDP.
func (e *Endpoint) openFamilies(udp uint16) error {
	for family, any := range [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		at, wanted := e.bindTo(any)
		if !wanted {
			continue
		}
		s, err := port.ListenPairs(port.PairsConfig{Addr: netip.AddrPortFrom(at, udp)})
		if errors.Is(err, unix.EAFNOSUPPORT) && len(e.addr.Hosts) == 0 && e.network.v4 && e.network.v6 {
			continue // a host of one family
		}
		if err != nil {
			e.sockets.close()
			e.sockets = sockets{}
			return err
		}
		udp = s.LocalAddr().Port()
		e.sockets[family] = s
	}
	e.addr.UDP = udp
	return nil
}

// bindTo returns the address that the socket of a family is bound to: the only one that the endpoint has of it, or
// any. There is none if it has none of the family.
func (e *Endpoint) bindTo(any netip.Addr) (at netip.Addr, wanted bool) {
	if len(e.addr.Hosts) == 0 {
		return any, e.network.takes(any)
	}
	n := 0
	for _, host := range e.addr.Hosts {
		if host.Is4() == any.Is4() {
			at = host
			n++
		}
	}
	if n > 1 {
		return any, true
	}
	return at, n == 1
}
