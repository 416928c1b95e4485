// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Guest6 takes the IPv6 packets that come by a link for an address which the host's own
// stack does not have, and the Neighbor Discovery messages about it. The stack sees
// them too, and drops them, since they are for no one there. What is written leaves by
// the same link, as it is.
type Guest6 struct {
	packetSocket
	out   *Raw6
	group int // socket that is a member of the multicast group
}

// OpenGuest6 opens the sockets on a link, in the calling thread's network namespace, and
// joins the address's solicited-node group (RFC 4291 section 2.7.1).
func OpenGuest6(link Uplink6, addr netip.Addr) (*Guest6, error) {
	g := &Guest6{group: -1}
	if len(link.MAC) == 6 {
		g.front = ethernetLen
	}
	err := g.open(max(link.MTU, packet.MinMTU))
	if err != nil {
		return nil, err
	}
	if g.out, err = OpenRaw6On(link.Name); err != nil {
		g.release()
		return nil, err
	}
	if err := g.setUp(link.Index, addr); err != nil {
		g.release()
		return nil, fmt.Errorf("cannot receive packets for another address on %s: %w", link.Name, err)
	}
	return g, nil
}

// setUp attaches the filter before the socket is bound, so that nothing else gets in.
func (g *Guest6) setUp(link int, addr netip.Addr) error {
	filter, err := bpf.Assemble(guestFilter(addr))
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	fprog := &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.SetsockoptSockFprog(g.guard.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, fprog); err != nil {
		return err
	}
	if err := g.join(link, addr); err != nil {
		return err
	}
	return g.bind(link, unix.ETH_P_IPV6)
}

// join has the kernel, and by MLD the switches, let the solicitations for the address in.
func (g *Guest6) join(link int, addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	g.group = fd
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_ADD_MEMBERSHIP,
		&unix.IPv6Mreq{Multiaddr: packet.SolicitedNode(addr).As16(), Interface: uint32(link)})
}

// Places in a packet. The kernel counts them from the IPv6 header on, wherever that is.
const (
	fromNetwork = 0xfff00000 // SKF_NET_OFF
	guestNext   = fromNetwork + 6
	guestDst    = fromNetwork + 24
	guestType   = fromNetwork + 40
	guestTarget = fromNetwork + 48
)

// guestFilter lets in what is sent to the address by others, and Neighbor Discovery
// that names it as target.
func guestFilter(addr netip.Addr) []bpf.Instruction {
	const outgoing = 4 // PACKET_OUTGOING
	raw := addr.As16()
	accept, refuse := bpf.RetConstant{Val: packetBuffer}, bpf.RetConstant{}
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: outgoing, SkipTrue: 1},
		refuse,
	}
	// Four comparisons, the first that fails leaves over the rest and over accept.
	same := func(at uint32) {
		for i := range uint8(4) {
			program = append(program,
				bpf.LoadAbsolute{Off: at + uint32(i)*4, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(raw[i*4])<<24 | uint32(raw[i*4+1])<<16 | uint32(raw[i*4+2])<<8 | uint32(raw[i*4+3]), SkipFalse: (3-i)*2 + 1})
		}
		program = append(program, accept)
	}
	same(guestDst)
	program = append(program,
		bpf.LoadAbsolute{Off: guestNext, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ProtoICMPv6, SkipTrue: 1},
		refuse,
		bpf.LoadAbsolute{Off: guestType, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ICMPv6NeighborSolicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.ICMPv6NeighborAdvert, SkipTrue: 1},
		refuse,
	)
	same(guestTarget)
	return append(program, refuse)
}

// OnTooBig has f called for each packet that the kernel refuses to send for its size: by the
// MTU of the link for IPv6, of the route, or of the path as it has learnt it. f may not keep
// the packet. It must be set before the first packet is sent.
func (g *Guest6) OnTooBig(f func(p []byte)) { g.out.tooBig = f }

// WriteBatch implements [Tun]: it sends to the network.
func (g *Guest6) WriteBatch(pkts [][]byte) error { return g.out.WriteBatch(pkts) }

// Stats returns the counters of both directions.
func (g *Guest6) Stats() Stats { return g.packetSocket.Stats().Plus(g.out.Stats()) }

// Close leaves the group and makes a waiting ReadBatch return [ErrClosed].
func (g *Guest6) Close() error {
	_ = g.out.Close()
	g.guard.close(func() {
		unix.Close(g.group)
		g.wake()
	})
	return nil
}

// release undoes what an opening that failed has opened.
func (g *Guest6) release() {
	if g.out != nil {
		_ = g.out.Close()
	}
	if g.group >= 0 {
		unix.Close(g.group)
	}
	g.guard.release()
}
