// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	// again is how long a packet of a check may be under way before another is sent: one that
	// was lost in a burst is not a failed check.
	again = 100 * time.Millisecond
	// NonceLen is long enough, in octets, that nobody guesses a packet which comes back.
	NonceLen = 16
	// DiscardPort is the UDP port that packets of a check are sent to (RFC 863).
	DiscardPort = 9
)

// SelfCheck finds out whether an instance works, by packets that go round through it. The
// loops ask Expected whether what they read belongs to it; nothing else is touched. A T is
// what else they need to know of the check under way.
type SelfCheck[T any] struct {
	one    sync.Mutex // a check at a time
	expect atomic.Pointer[Expectation[T]]
}

// Expectation is what a check under way has sent.
type Expectation[T any] struct {
	About T
	nonce [NonceLen]byte
}

// Run sends packets with a nonce of their own as payload until one comes back by a socket, and
// reports whether it did before ctx was done.
func (s *SelfCheck[T]) Run(ctx context.Context, about T, back *net.UDPConn, send func(nonce []byte)) bool {
	s.one.Lock()
	defer s.one.Unlock()
	want := &Expectation[T]{About: about}
	rand.Read(want.nonce[:])
	s.expect.Store(want)
	defer s.expect.Store(nil)
	came := make(chan struct{}, 1)
	go receive(back, want.nonce[:], came)
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		send(want.nonce[:]) // what the kernel refuses now it may take the next time
		select {
		case <-came:
			return true
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// receive reports that the nonce came back, until the socket is closed.
func receive(conn *net.UDPConn, nonce []byte, came chan<- struct{}) {
	buf := make([]byte, NonceLen+1)
	for {
		n, err := conn.Read(buf)
		switch {
		case err == nil && bytes.Equal(buf[:n], nonce):
			came <- struct{}{}
			return
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// Expected is the check under way, nil if there is none.
func (s *SelfCheck[T]) Expected() *Expectation[T] { return s.expect.Load() }

// Is reports whether a payload is the nonce.
func (e *Expectation[T]) Is(payload []byte) bool { return bytes.Equal(payload, e.nonce[:]) }

// Inside looks for the nonce in an IPv6 packet of UDP.
func (e *Expectation[T]) Inside(ip []byte) (packet.IPv6, bool) {
	const size = packet.IPv6HeaderLen + packet.UDPHeaderLen + NonceLen
	p, _, ok := packet.ParseIPv6(ip)
	ok = ok && len(p) == size && p.NextHeader() == packet.ProtoUDP && e.Is(p[size-NonceLen:])
	return p, ok
}

// Turn makes an IPv6 packet of UDP one from its destination to its source. The checksum is a
// sum, in which the order of addresses and ports does not matter (RFC 8200 section 8.1).
func Turn(p packet.IPv6) {
	src, dst := *p.SrcBytes(), *p.DstBytes()
	*p.SrcBytes(), *p.DstBytes() = dst, src
	turnPorts(p[packet.IPv6HeaderLen:])
}

func turnPorts(udp []byte) {
	udp[0], udp[1], udp[2], udp[3] = udp[2], udp[3], udp[0], udp[1]
}

// Back turns a packet of either family round that has the nonce, and reports whether it had.
func (e *Expectation[T]) Back(ip []byte) bool {
	if p, ok := e.Inside(ip); ok {
		Turn(p)
		return true
	}
	const header = 20
	ok := len(ip) == header+packet.UDPHeaderLen+NonceLen && ip[0] == 0x45 && ip[9] == packet.ProtoUDP && e.Is(ip[len(ip)-NonceLen:])
	if ok {
		// Neither checksum changes.
		src, dst := [4]byte(ip[12:]), [4]byte(ip[16:])
		copy(ip[12:], dst[:])
		copy(ip[16:], src[:])
		turnPorts(ip[header:])
	}
	return ok
}
