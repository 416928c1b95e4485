// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// Whatever happens in whatever order, Tick leaves nothing due, so that a loop
// never spins; an address is there exactly while the client is qualified; and no
// more than a few solicitations leave per second.
func FuzzWatch(f *testing.F) {
	f.Add([]byte{7, 0, 1, 1, 1, 1, 0, 7})                   // probes
	f.Add([]byte{7, 1, 2, 2, 2, 2, 2, 2, 3, 2, 3, 4, 5, 2}) // servers fall silent
	f.Add([]byte{3, 3, 5, 0, 6, 1, 4, 9, 9, 9, 8, 2, 10, 3, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 500 {
			return
		}
		servers := []client.Server{{Primary: primary, Secondary: second}, {Primary: natB}, {Primary: peerServer}}
		b := newBench(t, watchful, fastPath)
		b.begin(servers...)
		asked := map[netip.AddrPort]teredo.Packet{}
		sent := 0
		note := func() {
			for _, d := range b.out.UDP {
				if p, err := teredo.Parse(d.Payload); err == nil && teredo.CheckRouterSolicitation(p.IPv6) == nil {
					p.IPv6 = append([]byte(nil), p.IPv6...)
					asked[d.To] = p
					sent++
				}
			}
		}
		note()
		do := func(call func(now time.Time, out *client.Out)) {
			b.out.Reset()
			call(b.now, &b.out)
			note()
			if err := b.c.CheckFast(); err != nil {
				t.Fatal(err)
			}
		}
		for i, op := range ops {
			which := servers[i%len(servers)]
			from := netip.AddrPortFrom(which.Primary, teredo.Port)
			switch op % 11 {
			case 0:
				b.now = b.now.Add(10 * time.Millisecond)
			case 1, 2: // what is due next
				if next := b.c.Next(); !next.IsZero() && next.After(b.now) {
					b.now = next
				}
				do(b.c.Tick)
				if next := b.c.Next(); !next.IsZero() && !next.After(b.now) {
					t.Fatalf("due again at once, in state %v", b.c.Snapshot().State)
				}
			case 3, 4: // a server answers
				if rs, ok := asked[from]; ok {
					mapped := []netip.AddrPort{mapping, foreign}[int(op/11)%2]
					answer := advertisement(rs, mapped, func(_ *teredo.Auth, ra *teredo.RouterAdvertisement) {
						ra.Src = teredo.LinkLocal(teredo.FlagCone, from)
						ra.Prefix = netip.PrefixFrom(teredo.Addr{Prefix: teredo.Prefix, Server: which.Primary, Mapped: mapping}.IP(), 64).Masked()
					})
					do(func(now time.Time, out *client.Out) { b.c.HandleUDP(from, answer, now, out) })
				}
			case 5:
				do(func(now time.Time, out *client.Out) { b.c.Resumed(time.Duration(op)*time.Second, now, out) })
			case 6:
				do(b.c.Examine)
			case 7, 8:
				if a := b.address(); a.IsValid() {
					do(func(now time.Time, out *client.Out) { b.c.HandleIP(data(a, hostAddr, "hello"), now, out) })
				}
			case 9:
				do(func(now time.Time, out *client.Out) { b.c.SetServers(servers[:1+i%3], now, out) })
			case 10:
				do(func(now time.Time, out *client.Out) { b.c.Reach(peerAddr, now, out) })
			}
			if s := b.c.Snapshot(); s.Address.IsValid() != (s.State == client.Qualified) {
				t.Fatalf("state %v with address %v", s.State, s.Address)
			}
		}
		// Each call may send a solicitation to three addresses; time sends the rest.
		if most := 3*len(ops) + 6*int(b.now.Sub(start)/time.Second); sent > most+3 {
			t.Errorf("%d solicitations in %v and %d calls", sent, b.now.Sub(start), len(ops))
		}
	})
}
