// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestFastPathKnowsTerminals: a packet from a terminal to another one is the engine's, which prohibits it here, wherever a
// route leads that somebody has added.
func TestFastPathKnowsTerminals(t *testing.T) {
	inFastModes(t, func(t *testing.T, r *fastRig, _ string) {
		c, other := r.open(t, 1), r.open(t, 2)
		r.byPrograms(t, "one", c)
		r.byPrograms(t, "the other", other)
		to := other.address(false)
		r.ns.Do(t, func() error {
			dst, err := netlink.ParseIPNet(netip.PrefixFrom(to, 32).String())
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: servers[false].AsSlice()})
		})
		up, _ := r.forwarded()
		ip := datagram(netip.AddrPortFrom(c.address(false), terminalPort), netip.AddrPortFrom(to, terminalPort), "to another")
		b, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c.TEIDData.Value}, ip)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.user[c.sgsn].WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2048)
		_ = r.user[c.sgsn].SetReadDeadline(time.Now().Add(testutil.Patience))
		n, err := r.user[c.sgsn].Read(buf)
		if err != nil {
			t.Fatalf("the terminal hears nothing of its packet: %v; %+v", err, r.status())
		}
		h, err := gtp.ParseHeader(buf[:n])
		if prohibited := []byte{3, 13}; err != nil || h.TEID != c.teid || len(h.Payload) < 28 || h.Payload[9] != packet.ProtoICMPv4 || !bytes.Equal(h.Payload[20:22], prohibited) {
			t.Errorf("the SGSN got % x: %v, want that it is prohibited", buf[:n], err)
		}
		if u, _ := r.forwarded(); u != up {
			t.Errorf("programs have carried a packet among terminals")
		}
		inside := uint64(0)
		for _, one := range r.g.fast.Counters() {
			if one.Reason == "inside" {
				inside = one.Packets
			}
		}
		if inside != 1 {
			t.Errorf("%d packets were known to be among terminals, want 1", inside)
		}
	})
}
