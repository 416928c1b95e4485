// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// SelfCheck sends packets round through an instance, to find out whether it works.
// The loops pass it what they read; nothing else than its own packets is touched.
type SelfCheck struct{ check host.SelfCheck[ends] }

// ends are those of a check under way.
type ends struct {
	outer netip.AddrPort // the check's IPv4 socket
	inner netip.Addr     // of the check's IPv6 socket; not valid without one
	probe netip.Addr     // to which that sends
}

// SelfPath is the way that a check's packet takes.
type SelfPath struct {
	Name    string         // of the role
	Service netip.AddrPort // the UDP socket
	Probe   netip.Addr     // an address that is routed to the device; not valid: the socket alone
}

// ProbeAddress is an address of a Teredo prefix that no client can have, since its
// server and its mapping are 0.0.0.0 (RFC 4380, section 4).
func ProbeAddress(p netip.Prefix) netip.Addr {
	none := netip.IPv4Unspecified()
	return teredo.Addr{Prefix: p, Server: none, Mapped: netip.AddrPortFrom(none, 0)}.IP()
}

// Check sends a packet round and waits for it until ctx is done.
func (s *SelfCheck) Check(ctx context.Context, path SelfPath) error {
	near := path.Service.Addr()
	if near.IsUnspecified() {
		near = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	outer, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(near, 0)))
	if err != nil {
		return fmt.Errorf("the %s cannot check itself: %w", path.Name, err)
	}
	defer outer.Close()
	way := &way{path: path, outer: outer, service: netip.AddrPortFrom(near, path.Service.Port())}
	at := ends{outer: local4(outer), probe: path.Probe}
	back, send := outer, func(nonce []byte) { _, _ = outer.WriteToUDPAddrPort(nonce, way.service) }
	if path.Probe.IsValid() {
		to := netip.AddrPortFrom(path.Probe, host.DiscardPort)
		if way.inner, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(to)); err != nil {
			return fmt.Errorf("the %s cannot check itself, for there is no way to its device: %w", path.Name, err)
		}
		defer way.inner.Close()
		at.inner = way.inner.LocalAddr().(*net.UDPAddr).AddrPort().Addr().WithZone("")
		back, send = way.inner, func(nonce []byte) { _, _ = way.inner.Write(nonce) }
		go way.turn()
	}
	if !s.check.Run(ctx, at, back, send) {
		return way.problem()
	}
	return nil
}

// local4 is the IPv4 address and port of a socket.
func local4(conn *net.UDPConn) netip.AddrPort {
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// way holds the sockets at the ends of a check.
type way struct {
	path    SelfPath
	service netip.AddrPort // as it is reached from this host
	outer   *net.UDPConn   // plays a client
	inner   *net.UDPConn   // plays an IPv6 host; nil if the path has none
	left    atomic.Bool    // the packet came out of the UDP socket
}

// problem says how far the packet came.
func (w *way) problem() error {
	switch {
	case w.inner == nil:
		return fmt.Errorf("a datagram that the %s sent itself did not come back from UDP %s", w.path.Name, w.path.Service)
	case w.left.Load():
		return fmt.Errorf("a packet that the %s sent itself did not come back from UDP %s through its device", w.path.Name, w.path.Service)
	}
	return fmt.Errorf("a packet that the %s sent itself through its device did not come out of UDP %s", w.path.Name, w.path.Service)
}

// turn sends back what came out of the UDP socket, as a client would answer.
func (w *way) turn() {
	buf := make([]byte, teredo.MTU)
	for {
		n, _, err := w.outer.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for what was sent before
		}
		w.left.Store(true)
		_, _ = w.outer.WriteToUDPAddrPort(buf[:n], w.service)
	}
}

// FromUDP takes a datagram that belongs to a check: one that goes the short way
// returns by the socket it came from, one in its IPv6 form goes to the device. It
// returns false for all others.
func (s *SelfCheck) FromUDP(socket int, from netip.AddrPort, payload []byte, out *packet.Batch) bool {
	w := s.check.Expected()
	if w == nil || from != w.About.outer {
		return false
	}
	switch p, ok := w.Inside(payload); {
	case w.Is(payload):
		out.SendUDP(socket, from, payload)
	case ok && p.Src() == w.About.probe && p.Dst() == w.About.inner:
		out.SendIP(p)
	}
	return true
}

// FromTUN takes a packet from the device that belongs to a check, turns it round
// and sends it out of the UDP socket. It returns false for all others.
func (s *SelfCheck) FromTUN(socket int, ip []byte, out *packet.Batch) bool {
	w := s.check.Expected()
	if w == nil {
		return false
	}
	p, ok := w.Inside(ip)
	if !ok || p.Dst() != w.About.probe || p.Src() != w.About.inner {
		return false
	}
	host.Turn(p)
	out.SendUDP(socket, w.About.outer, p)
	return true
}
