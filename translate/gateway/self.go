// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// Turn turns a packet round that belongs to a check under way. It returns false for all
// others.
func (d *Device) Turn(ip []byte, out *packet.Batch) bool {
	expected := d.check.Expected()
	if expected == nil {
		return false
	}
	turned := expected.Back(ip)
	if turned {
		out.SendIP(ip)
	}
	return turned
}

// CheckSelf sends a packet from this host's own stack to an address of the first of some
// prefixes, through the device and a loop, and back; without one, or without routes of its
// own, the state of the device is all that can be told.
func (d *Device) CheckSelf(ctx context.Context, prefixes []netip.Prefix) error {
	d.mu.Lock()
	running, routed, tun := d.host != nil, d.route, d.tun
	d.mu.Unlock()
	if !running {
		return errors.New("the translator is not running")
	}
	kept := tun.State()
	if problem := kept.Problem(tun.Name()); problem != nil || !routed || len(prefixes) == 0 {
		return problem
	}
	p, err := translate.NewPrefix(prefixes[0])
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(p.Embed(netip.AddrFrom4([4]byte{192, 0, 2, 1})), host.DiscardPort)
	conn, err := net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("the translator cannot check itself, for there is no way to its device: %w", err)
	}
	defer conn.Close()
	if !d.check.Run(ctx, struct{}{}, conn, func(nonce []byte) { _, _ = conn.Write(nonce) }) {
		return errors.New("a packet that the translator sent itself through its device did not come back")
	}
	return nil
}
