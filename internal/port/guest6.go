// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	ethernetLen = 14
	// guestBuffer is the largest packet that the kernel hands over in one piece.
	guestBuffer = vnetHdrLen + ethernetLen + packet.IPv6HeaderLen + 65535
)

// Guest6 takes the IPv6 packets that come by a link for an address which the host's own
// stack does not have, and the Neighbor Discovery messages about it. The stack sees
// them too, and drops them, since they are for no one there. What is written leaves by
// the same link, as it is.
type Guest6 struct {
	counters
	guard guard
	out   *Raw6
	mtu   int
	front int // of a link-layer header
	group int // socket that is a member of the multicast group
	bufs  [MaxBatch][]byte
	raw   []byte
	super superpacket
	poll  [2]unix.PollFd
}

// OpenGuest6 opens the sockets on a link, in the calling thread's network namespace, and
// joins the address's solicited-node group (RFC 4291 section 2.7.1).
func OpenGuest6(link Uplink6, addr netip.Addr) (*Guest6, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("no permission to open a packet socket: run as root or with CAP_NET_RAW: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open a packet socket: %w", err)
	}
	g := &Guest6{guard: guard{fd: fd}, mtu: max(link.MTU, packet.MinMTU), group: -1, raw: make([]byte, guestBuffer)}
	if len(link.MAC) == 6 {
		g.front = ethernetLen
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
	if err := unix.SetsockoptInt(g.guard.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	setBuffer(g.guard.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, defaultBuffer)
	if err := g.join(link, addr); err != nil {
		return err
	}
	protocol := uint16(unix.ETH_P_IPV6<<8&0xff00 | unix.ETH_P_IPV6>>8)
	if err := unix.Bind(g.guard.fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link}); err != nil {
		return err
	}
	if g.guard.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	g.poll = [2]unix.PollFd{{Fd: int32(g.guard.fd), Events: unix.POLLIN}, {Fd: int32(g.guard.event), Events: unix.POLLIN}}
	for i := range g.bufs {
		g.bufs[i] = make([]byte, g.mtu+1)
	}
	return nil
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
	accept, refuse := bpf.RetConstant{Val: guestBuffer}, bpf.RetConstant{}
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

// ReadBatch waits for a packet, then takes what is there without waiting, as that of
// [Tun] does.
func (g *Guest6) ReadBatch(pkts [][]byte) (int, error) {
	if !g.guard.enter() {
		return 0, ErrClosed
	}
	defer g.guard.leave()
	for {
		n, err := g.drain(pkts[:min(len(pkts), MaxBatch)])
		if n > 0 || err != nil {
			return n, err
		}
		if err := g.wait(); err != nil {
			return 0, err
		}
	}
}

// drain reads what is there without waiting.
func (g *Guest6) drain(pkts [][]byte) (n int, err error) {
	for n < len(pkts) {
		size, errno := g.readOne(g.bufs[n])
		switch errno {
		case 0:
		case unix.EAGAIN:
			return n, nil
		case unix.EINTR, unix.EINVAL, unix.ENETDOWN:
			continue // a packet that cannot be described, a link that went down: the next may be good
		default:
			if n > 0 {
				return n, nil // the next call meets the same error
			}
			return 0, fmt.Errorf("cannot read from the packet socket: %w", errno)
		}
		if size == 0 {
			continue // dropped and counted
		}
		pkts[n] = g.bufs[n][:size:size]
		g.readPackets.Add(1)
		g.readBytes.Add(uint64(size))
		n++
	}
	return n, nil
}

// readOne takes the next packet of the superpacket in work, or reads.
func (g *Guest6) readOne(buf []byte) (size int, errno unix.Errno) {
	if g.super.data == nil {
		n, errno := readNow(g.guard.fd, g.raw)
		if errno != 0 {
			return 0, errno
		}
		g.readCalls.Add(1)
		if n < vnetHdrLen+g.front {
			g.readMalformed.Add(1)
			return 0, 0
		}
		header := g.raw[:vnetHdrLen]
		if header[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0 {
			// The transport's place is told from the link-layer header on.
			start := binary.NativeEndian.Uint16(header[6:])
			binary.NativeEndian.PutUint16(header[6:], max(start, uint16(g.front))-uint16(g.front))
		}
		single, ok := g.super.parse(header, g.raw[vnetHdrLen+g.front:n])
		switch {
		case !ok:
			g.readMalformed.Add(1)
			return 0, 0
		case single != nil && len(single) >= len(buf):
			g.readTruncated.Add(1)
			return 0, 0
		case single != nil:
			return copy(buf, single), 0
		}
	}
	if size = g.super.hand(buf[:len(buf)-1]); size == 0 {
		g.readTruncated.Add(1)
	}
	return size, 0
}

// wait blocks until the socket is readable or closed.
func (g *Guest6) wait() error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&g.poll[0])), uintptr(len(g.poll)), 0, 0, 0, 0)
		switch {
		case g.guard.closed():
			return ErrClosed
		case errno == 0:
			return nil
		case errno != unix.EINTR:
			return fmt.Errorf("cannot wait for packets: %w", errno)
		}
	}
}

// OnTooBig has f called for each packet that the kernel refuses to send for its size: by the
// MTU of the link for IPv6, of the route, or of the path as it has learnt it. f may not keep
// the packet. It must be set before the first packet is sent.
func (g *Guest6) OnTooBig(f func(p []byte)) { g.out.tooBig = f }

// WriteBatch implements [Tun]: it sends to the network.
func (g *Guest6) WriteBatch(pkts [][]byte) error { return g.out.WriteBatch(pkts) }

// Stats returns the counters of both directions.
func (g *Guest6) Stats() Stats { return g.counters.Stats().Plus(g.out.Stats()) }

// Close leaves the group and makes a waiting ReadBatch return [ErrClosed].
func (g *Guest6) Close() error {
	_ = g.out.Close()
	g.guard.close(func() {
		unix.Close(g.group)
		unix.Write(g.guard.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
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
