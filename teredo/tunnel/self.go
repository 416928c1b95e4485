// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

const (
	// selfAgain is how long a packet of a check may be under way before another is
	// sent: one that was lost in a burst is not a failed check.
	selfAgain = 100 * time.Millisecond
	// selfPort is the UDP port of the packet's IPv6 form at the far end: discard.
	selfPort = 9
	// nonceLen is long enough that nobody guesses a packet which comes back.
	nonceLen = 16
)

// SelfCheck sends packets round through an instance, to find out whether it works.
// The loops pass it what they read; nothing else than its own packets is touched.
type SelfCheck struct {
	one    sync.Mutex // a check at a time
	expect atomic.Pointer[expectation]
}

// expectation is what a check under way has sent.
type expectation struct {
	nonce []byte
	from  netip.AddrPort // the check's IPv4 socket
	host  netip.Addr     // of the check's IPv6 socket; not valid without one
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
	s.one.Lock()
	defer s.one.Unlock()
	near := path.Service.Addr()
	if near.IsUnspecified() {
		near = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	outer, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(near, 0)))
	if err != nil {
		return fmt.Errorf("the %s cannot check itself: %w", path.Name, err)
	}
	defer outer.Close()
	want := &expectation{nonce: make([]byte, nonceLen), from: local4(outer), probe: path.Probe}
	rand.Read(want.nonce)
	way := &way{path: path, outer: outer, service: netip.AddrPortFrom(near, path.Service.Port())}
	if path.Probe.IsValid() {
		to := netip.AddrPortFrom(path.Probe, selfPort)
		if way.inner, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(to)); err != nil {
			return fmt.Errorf("the %s cannot check itself, for there is no way to its device: %w", path.Name, err)
		}
		defer way.inner.Close()
		want.host = way.inner.LocalAddr().(*net.UDPAddr).AddrPort().Addr().WithZone("")
	}
	s.expect.Store(want)
	defer s.expect.Store(nil)
	return way.round(ctx, want.nonce)
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

// round sends until something is back.
func (w *way) round(ctx context.Context, nonce []byte) error {
	back := make(chan struct{}, 1)
	if w.inner != nil {
		go w.turn()
		go receive(w.inner, back)
	} else {
		go receive(w.outer, back)
	}
	again := time.NewTicker(selfAgain)
	defer again.Stop()
	for {
		// What the kernel refuses now it may take the next time.
		if w.inner != nil {
			_, _ = w.inner.Write(nonce)
		} else {
			_, _ = w.outer.WriteToUDPAddrPort(nonce, w.service)
		}
		select {
		case <-back:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return w.problem()
		}
	}
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

// receive reports that something came.
func receive(conn *net.UDPConn, back chan<- struct{}) {
	buf := make([]byte, teredo.MTU)
	for {
		_, err := conn.Read(buf)
		switch {
		case err == nil:
			back <- struct{}{}
			return
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// FromUDP takes a datagram that belongs to a check: one that goes the short way
// returns by the socket it came from, one in its IPv6 form goes to the device. It
// returns false for all others.
func (s *SelfCheck) FromUDP(socket int, from netip.AddrPort, payload []byte, out *packet.Batch) bool {
	w := s.expect.Load()
	if w == nil || from != w.from {
		return false
	}
	switch p, ok := w.inside(payload); {
	case bytes.Equal(payload, w.nonce):
		out.SendUDP(socket, from, payload)
	case ok && p.Src() == w.probe && p.Dst() == w.host:
		out.SendIP(p)
	}
	return true
}

// FromTUN takes a packet from the device that belongs to a check, turns it round
// and sends it out of the UDP socket. It returns false for all others.
func (s *SelfCheck) FromTUN(socket int, ip []byte, out *packet.Batch) bool {
	w := s.expect.Load()
	if w == nil {
		return false
	}
	p, ok := w.inside(ip)
	if !ok || p.Dst() != w.probe || p.Src() != w.host {
		return false
	}
	// The checksum is a sum, in which the order of the addresses and ports does not
	// matter (RFC 8200, section 8.1).
	src, dst := *p.SrcBytes(), *p.DstBytes()
	*p.SrcBytes(), *p.DstBytes() = dst, src
	ports := p[packet.IPv6HeaderLen:]
	ports[0], ports[1], ports[2], ports[3] = ports[2], ports[3], ports[0], ports[1]
	out.SendUDP(socket, w.from, p)
	return true
}

// inside looks for the nonce in a UDP packet.
func (w *expectation) inside(ip []byte) (packet.IPv6, bool) {
	const size = packet.IPv6HeaderLen + packet.UDPHeaderLen + nonceLen
	p, _, ok := packet.ParseIPv6(ip)
	ok = ok && len(p) == size && p.NextHeader() == packet.ProtoUDP && bytes.Equal(p[size-nonceLen:], w.nonce)
	return p, ok
}
