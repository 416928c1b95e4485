// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// PairsConfig says how to open a [Pairs].
type PairsConfig struct {
	// Addr to bind, of either family; port 0 lets the kernel choose.
	Addr netip.AddrPort
	// Buffer is the size of the kernel's buffers in bytes, as in [UDPConfig].
	Buffer int
	// Protocol, if not 0, is that of a raw socket, which needs CAP_NET_RAW: packets are those of the protocol, and
	// no port of UDP is in their addresses. It receives what has Port as its destination port, where TCP, UDP and
	// SCTP have that.
	Protocol int
	Port     uint16
	// Small makes a socket for few peers: it reads fewer packets at once. At first it has room for packets of 2 KiB, which
	// takes a hundredth of the memory, and when that is full, or too small, for trains. Packets wake the process while it rests.
	Small bool
}

// Paired is a packet with both its addresses.
type Paired struct {
	Local   netip.Addr
	Remote  netip.AddrPort
	Payload []byte
	// Fragment lets IP fragment the packet. That takes system calls of its own.
	Fragment bool
}

// Pairs is a socket of one family for protocols that know the path of each packet: every packet
// that it sends names its source, and none is fragmented, neither here (EMSGSIZE) nor on the way.
// What the kernel believes of the path's MTU does not count. Other than those of [UDP] its reads
// wait in Go's poller, and have no thread.
type Pairs struct {
	udp UDP
	v6  bool
	raw bool
	out pool[pairSender]

	onError func(PairError)
}

// Buffers that a [Pairs] reads into: of UDP each may hold a train of many packets.
const (
	pairBuffers    = 16
	rawPairBuffers = 32
	smallShare     = 4
)

// buffers is how many of them a socket has.
func (c *PairsConfig) buffers() int {
	n := pairBuffers
	if c.Protocol != 0 {
		n = rawPairBuffers
	}
	if c.Small {
		n /= smallShare
	}
	return n
}

// ListenPairs opens the socket in the calling thread's network namespace.
func ListenPairs(cfg PairsConfig) (*Pairs, error) {
	addr := cfg.Addr.Addr()
	if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
		return nil, fmt.Errorf("cannot listen on %s: an IPv4 or IPv6 address is needed", cfg.Addr)
	}
	p := &Pairs{v6: addr.Is6(), raw: cfg.Protocol != 0}
	family, kind := unix.AF_INET, unix.SOCK_DGRAM
	if p.v6 {
		family = unix.AF_INET6
	}
	if p.raw {
		kind = unix.SOCK_RAW
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, cfg.Protocol)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("no permission to open a raw socket: run as root or with CAP_NET_RAW: %w", err)
	case err != nil:
		return nil, fmt.Errorf("cannot create a socket: %w", err)
	}
	p.udp.guard.fd = fd
	p.out.make = func() *pairSender { return newPairSender(p.v6) }
	if err = p.setUp(cfg); err == nil {
		p.udp.poller, err = newPoller(&p.udp.guard, !cfg.Small)
	}
	if err != nil {
		p.udp.guard.release()
		return nil, err
	}
	return p, nil
}

func (p *Pairs) setUp(cfg PairsConfig) error {
	fd := p.udp.guard.fd
	if !p.raw {
		if err := p.udp.setUp(UDPConfig{Addr: cfg.Addr, Buffer: cfg.Buffer, buffers: cfg.buffers(), grows: cfg.Small}, false); err != nil {
			return err
		}
		return setFragment(fd, p.v6, false)
	}
	if err := takePort(fd, p.v6, cfg.Port); err != nil {
		return err
	}
	cfg.Addr = netip.AddrPortFrom(cfg.Addr.Addr(), 0)
	if err := p.udp.setUp(UDPConfig{Addr: cfg.Addr, Buffer: cfg.Buffer, buffers: cfg.buffers(), grows: cfg.Small, raw: true}, false); err != nil {
		return err
	}
	p.udp.noSegments.Store(true)
	return setFragment(fd, p.v6, false)
}

// takePort has a raw socket receive only what has a destination port. Of IPv4 the filter sees the IP header, too.
func takePort(fd int, v6 bool, port uint16) error {
	const all = 1<<16 - 1
	program := []unix.SockFilter{
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0}, // length of the IPv4 header
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	if v6 {
		program = program[1:]
		program[0].Code = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return fmt.Errorf("cannot have a raw socket see one port alone: %w", err)
	}
	return nil
}

// leastMTU is what each link of IPv6 carries (RFC 8200 section 5). Of IPv4 routers fragment what is too large.
const leastMTU = 1280

// setFragment has the kernel send packets as they are, or refuse them (RFC 8899 section 3, item 2); or have IP
// fragment them.
func setFragment(fd int, v6, on bool) error {
	var err error
	switch {
	case !v6 && on:
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	case !v6:
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	case on:
		err = setOptions6(fd, unix.IPV6_PMTUDISC_DONT, 0, leastMTU)
	default:
		err = setOptions6(fd, unix.IPV6_PMTUDISC_PROBE, 1, 0)
	}
	if err != nil {
		return fmt.Errorf("cannot say whether packets may be fragmented: %w", err)
	}
	return nil
}

// setOptions6 sets what IPv6 has in several options.
func setOptions6(fd, discover, dontFragment, mtu int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, discover),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, dontFragment),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU, mtu))
}

// ReadBatch is that of [UDP], but does not wait behind a [Pairs.Rest]: then there may be no message. The payload of a raw
// socket's message is what follows the IP header.
func (p *Pairs) ReadBatch(msgs []Message) (int, error) {
	n, err := p.udp.ReadBatch(msgs)
	if p.raw && !p.v6 {
		for i := range msgs[:n] {
			msgs[i].Payload = behindIPv4(msgs[i].Payload)
		}
	}
	return n, err
}

// Rest has the goroutine that reads sleep for a while, and lets packets wait: they are read together then, and none wakes
// the process before. To close the socket ends it. The next ReadBatch takes what has come, if anything has, and does not wait.
func (p *Pairs) Rest(d time.Duration) {
	if p.udp.guard.enter() {
		p.udp.poller.rest(d)
		p.udp.guard.leave()
	}
}

// Drained reports whether the last ReadBatch has taken all that had come by then: else who rests lets it wait in a buffer that
// fills up. Behind an error there may be more.
func (p *Pairs) Drained() bool {
	r, by := &p.udp.in, p.udp.poller
	return r.next == r.filled && len(r.rest) == 0 && r.filled < len(by.hdrs) && (by.errno == 0 || by.errno == unix.EAGAIN)
}

// behindIPv4 takes the header off a packet that the kernel has looked through.
func behindIPv4(p []byte) []byte {
	if len(p) < ipv4HeaderLen || len(p) < headerLen(p) {
		return nil
	}
	return p[headerLen(p):]
}

// LocalAddr is the bound address, with the port that the kernel chose.
func (p *Pairs) LocalAddr() netip.AddrPort { return p.udp.LocalAddr() }

// Stats returns the counters.
func (p *Pairs) Stats() Stats { return p.udp.Stats() }

// Close makes a waiting ReadBatch return ErrClosed.
func (p *Pairs) Close() error {
	p.udp.overflow.of(&p.udp.guard) // for the last time
	p.udp.guard.close(p.udp.poller.wake)
	return nil
}
