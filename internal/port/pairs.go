// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// PairsConfig says how to open a [Pairs].
type PairsConfig struct {
	// Addr to bind, of either family; port 0 lets the kernel choose.
	Addr netip.AddrPort
	// Buffer is the size of the kernel's buffers in bytes, as in [UDPConfig].
	Buffer int
}

// Paired is a packet with both its addresses.
type Paired struct {
	Local   netip.Addr
	Remote  netip.AddrPort
	Payload []byte
}

// Pairs is a UDP socket of one family for protocols that know the path of each packet: every
// packet that it sends names its source, and none is fragmented, neither here (EMSGSIZE) nor on
// the way. What the kernel believes of the path's MTU does not count.
type Pairs struct {
	udp UDP
	v6  bool
	out pool[pairSender]
}

// pairBuffers is how many buffers a [Pairs] reads into: each may hold a train of many packets.
const pairBuffers = 16

// ListenPairs opens the socket in the calling thread's network namespace.
func ListenPairs(cfg PairsConfig) (*Pairs, error) {
	addr := cfg.Addr.Addr()
	if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
		return nil, fmt.Errorf("cannot listen on %s: an IPv4 or IPv6 address is needed", cfg.Addr)
	}
	p := &Pairs{v6: addr.Is6()}
	family := unix.AF_INET
	if p.v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot create a UDP socket: %w", err)
	}
	p.udp.guard.fd = fd
	p.out.make = func() *pairSender { return newPairSender(p.v6) }
	if err := p.setUp(cfg); err != nil {
		p.udp.guard.release()
		return nil, err
	}
	return p, nil
}

func (p *Pairs) setUp(cfg PairsConfig) error {
	if err := p.udp.setUp(UDPConfig{Addr: cfg.Addr, Buffer: cfg.Buffer, buffers: pairBuffers}, false); err != nil {
		return err
	}
	return neverFragment(p.udp.guard.fd, p.v6)
}

// neverFragment has the kernel send packets as they are, or refuse them (RFC 8899 section 3, item 2).
func neverFragment(fd int, v6 bool) error {
	var err error
	if v6 {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1))
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}
	if err != nil {
		return fmt.Errorf("cannot have packets sent unfragmented: %w", err)
	}
	return nil
}

// ReadBatch is that of [UDP].
func (p *Pairs) ReadBatch(msgs []Message) (int, error) { return p.udp.ReadBatch(msgs) }

// LocalAddr is the bound address, with the port that the kernel chose.
func (p *Pairs) LocalAddr() netip.AddrPort { return p.udp.LocalAddr() }

// Stats returns the counters.
func (p *Pairs) Stats() Stats { return p.udp.Stats() }

// Close makes a waiting ReadBatch return ErrClosed.
func (p *Pairs) Close() error { return p.udp.Close() }
