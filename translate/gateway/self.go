// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

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
	"github.com/isthmus-net/isthmus/translate"
)

const (
	// selfAgain is how long a packet of a check may be under way before another is sent:
	// one that was lost in a burst is not a failed check.
	selfAgain = 100 * time.Millisecond
	// selfPort is the UDP port that the packet is sent to: discard.
	selfPort = 9
	// nonceLen is long enough that nobody guesses a packet which comes back.
	nonceLen = 16
)

// SelfCheck sends packets from this host's own stack to an address of pool6, through the
// device and a loop, and back. The loops pass it what they read; nothing else than its own
// packets is touched.
type SelfCheck struct {
	one    sync.Mutex // a check at a time
	expect atomic.Pointer[[nonceLen]byte]
}

// check sends a packet round and waits for it until ctx is done.
func (s *SelfCheck) check(ctx context.Context, prefix netip.Prefix) error {
	s.one.Lock()
	defer s.one.Unlock()
	p, err := translate.NewPrefix(prefix)
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(p.Embed(netip.AddrFrom4([4]byte{192, 0, 2, 1})), selfPort)
	conn, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("the translator cannot check itself, for there is no way to its device: %w", err)
	}
	defer conn.Close()
	nonce := new([nonceLen]byte)
	rand.Read(nonce[:])
	s.expect.Store(nonce)
	defer s.expect.Store(nil)
	back := make(chan struct{}, 1)
	go receive(conn, nonce, back)
	again := time.NewTicker(selfAgain)
	defer again.Stop()
	for {
		_, _ = conn.Write(nonce[:]) // what the kernel refuses now it may take the next time
		select {
		case <-back:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return errors.New("a packet that the translator sent itself through its device did not come back")
		}
	}
}

// receive reports that the nonce came back, until the socket is closed.
func receive(conn *net.UDPConn, nonce *[nonceLen]byte, back chan<- struct{}) {
	buf := make([]byte, nonceLen+1)
	for {
		n, err := conn.Read(buf)
		switch {
		case err == nil && bytes.Equal(buf[:n], nonce[:]):
			back <- struct{}{}
			return
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// Turn turns a packet round that belongs to a check. It returns false for all others.
func (s *SelfCheck) Turn(ip []byte, out *packet.Batch) bool {
	nonce := s.expect.Load()
	const size = packet.IPv6HeaderLen + packet.UDPHeaderLen + nonceLen
	if nonce == nil || len(ip) != size || ip[0]>>4 != 6 || ip[6] != packet.ProtoUDP || !bytes.Equal(ip[size-nonceLen:], nonce[:]) {
		return false
	}
	// The checksum is a sum, in which the order of the addresses and ports does not
	// matter (RFC 8200, section 8.1).
	p := packet.IPv6(ip)
	src, dst := *p.SrcBytes(), *p.DstBytes()
	*p.SrcBytes(), *p.DstBytes() = dst, src
	ports := p[packet.IPv6HeaderLen:]
	ports[0], ports[1], ports[2], ports[3] = ports[2], ports[3], ports[0], ports[1]
	out.SendIP(p)
	return true
}

// CheckSelf checks by the first of some prefixes; without one, or without routes of its
// own, the state of the device is all that can be told.
func (d *Device) CheckSelf(ctx context.Context, s *SelfCheck, prefixes []netip.Prefix) error {
	d.mu.Lock()
	running, routed := d.host != nil, d.route
	kept := d.keeper.State()
	problem := kept.Problem(d.name)
	d.mu.Unlock()
	switch {
	case !running:
		return errors.New("the translator is not running")
	case problem != nil:
		return problem
	case !routed || len(prefixes) == 0:
		return nil
	}
	return s.check(ctx, prefixes[0])
}
