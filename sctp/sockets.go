// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// sockets are those of an endpoint: one of each family, or nil.
type sockets struct {
	of    [2]*port.Pairs
	lists [2][]port.Paired // that are being sent
}

// Families of sockets.
const (
	ipv4 = iota
	ipv6
)

func (s *sockets) each(f func(*port.Pairs)) {
	for _, one := range s.of {
		if one != nil {
			f(one)
		}
	}
}

func (s *sockets) close() { s.each(func(one *port.Pairs) { _ = one.Close() }) }

// write sends packets.
func (s *sockets) write(packets []assoc.Packet) {
	for i := range packets {
		family := ipv6
		if packets[i].Remote.Is4() {
			family = ipv4
		}
		s.lists[family] = append(s.lists[family], paired(&packets[i]))
	}
	for family, list := range s.lists {
		if len(list) > 0 && s.of[family] != nil {
			_ = s.of[family].WriteBatch(list) // closed sockets are those of an endpoint that has ended
		}
		clear(list)
		s.lists[family] = list[:0]
	}
}

// paired is a packet of the engine as the socket takes it.
func paired(p *assoc.Packet) port.Paired {
	return port.Paired{Local: p.Local, Remote: netip.AddrPortFrom(p.Remote, p.Port), Payload: p.Octets, Fragment: p.Fragment}
}

// udpTries is how often a port of UDP is looked for that both families have free.
const udpTries = 16

// openUDP opens the sockets of an endpoint whose packets UDP carries.
func (e *Endpoint) openUDP(listen bool) error {
	want := uint16(0)
	switch {
	case e.addr.UDP != 0:
		want = e.addr.UDP
	case e.config.UDPPort > 0:
		want = uint16(e.config.UDPPort)
	case e.config.UDPPort == 0 && listen:
		want = DefaultUDPPort
	}
	if want != 0 {
		e.takeOver(want)
	}
	for try := 1; ; try++ {
		e.addr.UDP = want
		err := e.openFamilies(func(at netip.Addr) (*port.Pairs, error) {
			s, err := port.ListenPairs(port.PairsConfig{Addr: netip.AddrPortFrom(at, e.addr.UDP), Small: e.transient})
			if err == nil {
				e.addr.UDP = s.LocalAddr().Port() // the other family's, too
			}
			return s, err
		})
		if err == nil {
			e.choosePort(want == 0)
		}
		switch inUse := errors.Is(err, unix.EADDRINUSE); {
		case inUse && want != 0:
			return fmt.Errorf("each endpoint needs a port of UDP of its own: name a free one behind a slash, as in :%d/9900 (%w)", e.addr.Port, err)
		case !inUse || try == udpTries:
			return err
		}
	}
}

// choosePort chooses the endpoint's port of SCTP, if it is to. Peers tell the endpoints of a host apart by that, whatever
// their ports of UDP are: where the kernel has chosen one of these it is that one, which no other endpoint has.
func (e *Endpoint) choosePort(free bool) {
	switch {
	case e.addr.Port != 0:
	case free:
		e.addr.Port = e.addr.UDP
	default:
		e.addr.Port = anyPort()
	}
}

// openFamilies opens a socket of each family that has addresses.
func (e *Endpoint) openFamilies(open func(at netip.Addr) (*port.Pairs, error)) error {
	for family, any := range [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		at, wanted := e.bindTo(any)
		if !wanted {
			continue
		}
		s, err := open(at)
		if errors.Is(err, unix.EAFNOSUPPORT) && len(e.addr.Hosts) == 0 && e.network.v4 && e.network.v6 {
			continue // a host of one family
		}
		if err != nil {
			e.sockets.close()
			e.sockets = sockets{}
			return err
		}
		e.sockets.of[family] = s
	}
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
