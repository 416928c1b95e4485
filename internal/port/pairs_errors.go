// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// PairErrorKind says what an ICMP message reports.
type PairErrorKind int

// Kinds of ICMP messages.
const (
	PairTooBig      PairErrorKind = iota // Packet Too Big, or Fragmentation Needed
	PairNoProtocol                       // Protocol Unreachable, or Unrecognized Next Header
	PairNoPort                           // Port Unreachable
	PairUnreachable                      // any other Destination Unreachable
)

// PairError is an ICMP message that has come for a packet of ours.
type PairError struct {
	Kind   PairErrorKind
	Local  netip.Addr // that the packet was sent from
	Remote netip.AddrPort
	MTU    int // of PairTooBig
	// Quoted is what the message has of the packet's payload. It is valid until the function returns.
	Quoted []byte
}

// Of <linux/errqueue.h>.
const originICMP6 = 3

// OnError has f called for each ICMP message, by the goroutines that read and send, maybe at once. f may send: an error
// that this meets is handed to f again, inside.
func (p *Pairs) OnError(f func(PairError)) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if p.v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	p.onError = f
	p.udp.onError = p.readErrors
	if err := unix.SetsockoptInt(p.udp.guard.fd, level, option, 1); err != nil {
		return fmt.Errorf("cannot ask for ICMP errors: %w", err)
	}
	return nil
}

// readErrors takes the errors that are queued, up to a batch.
func (p *Pairs) readErrors() {
	var quoted [1500]byte
	var control [512]byte
	for range MaxBatch {
		n, oobn, _, to, err := unix.Recvmsg(p.udp.guard.fd, quoted[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		if to == nil {
			continue
		}
		if remote, ok := addrPortOf(to); ok {
			if e, ok := pairError(control[:oobn]); ok {
				e.Remote, e.Quoted = remote, quoted[:n]
				p.onError(e)
			}
		}
	}
}

// pairError reads the control messages of an error. Those of the kernel's own, such as EMSGSIZE, are none.
func pairError(control []byte) (e PairError, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return e, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			e.Local = netip.AddrFrom4([4]byte(m.Data[8:12])) // ipi_addr: where the message has come
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			e.Local = netip.AddrFrom16([16]byte(m.Data[:16]))
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR,
			m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR:
			ok = e.read(m.Data)
		}
	}
	return e, ok
}

// read reads struct sock_extended_err: errno, origin, type, code, pad, info.
func (e *PairError) read(b []byte) bool {
	if len(b) < extendedErrLen {
		return false
	}
	origin, kind, code := b[4], b[5], b[6]
	e.MTU = int(binary.NativeEndian.Uint32(b[8:]))
	const (
		icmpNoProtocol, icmpTooBig                = 2, 4    // codes of Destination Unreachable (RFC 792)
		icmp6Unreachable, icmp6TooBig, icmp6Param = 1, 2, 4 // types (RFC 4443)
		icmp6NoPort, icmp6NextHeader              = 4, 1    // codes of the first and of the last
	)
	switch {
	case origin == originICMP && kind == icmpUnreachable:
		switch code {
		case icmpNoProtocol:
			e.Kind = PairNoProtocol
		case icmpPortUnreachable:
			e.Kind = PairNoPort
		case icmpTooBig:
			e.Kind = PairTooBig
		default:
			e.Kind = PairUnreachable
		}
		return true
	case origin != originICMP6:
		return false
	case kind == icmp6TooBig:
		e.Kind = PairTooBig
	case kind == icmp6Param && code == icmp6NextHeader:
		e.Kind = PairNoProtocol
	case kind == icmp6Unreachable && code == icmp6NoPort:
		e.Kind = PairNoPort
	case kind == icmp6Unreachable:
		e.Kind = PairUnreachable
	default:
		return false
	}
	return true
}
