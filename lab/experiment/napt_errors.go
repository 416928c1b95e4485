// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
)

// Times and ports of the errors.
const (
	errorWait = 3 * time.Second
	fragWait  = 10 * time.Second // reassembling, and the kernel's own rounding
	errorPort = 40000            // source port of the first packet of the IPv6 side
	bigPacket = 1470             // bytes of an IPv6 packet that smallLink cannot carry
)

// errorCase is a row of table 3: an error, how it is caused, and what must come back.
type errorCase struct {
	name, published string
	wait            time.Duration
	// cause provokes the error about a packet of the caller; it returns the packet.
	cause func(ctx context.Context, n *appNet, d appDirection, port uint16) ([]byte, error)
	want  map[appDirection]icmpWant
}

// icmpWant is what the caller must hear.
type icmpWant struct {
	kind, code byte
	word       uint32
	from       netip.Addr // not valid: what stands for an IPv6 router
}

// errorCases are those of 1998, each caused as it was there, and two that belong to
// them: hops that are used up, and a field that the translator itself must refuse.
var errorCases = []errorCase{
	{"destination unreachable: UDP to a port with no listener", "shown", errorWait, causeClosedPort, map[appDirection]icmpWant{
		from6: {1, 4, 0, host4In6()}, from4: {3, 3, 0, appMapped},
	}},
	{"packet too big: exceeds the path MTU", "shown", errorWait, causeTooBig, map[appDirection]icmpWant{
		from6: {2, 0, smallLink + 20, translated(appPrefix, appInner4)}, from4: {3, 4, smallLink - 20, netip.Addr{}},
	}},
	{"time exceeded: a single incomplete fragment", "shown", fragWait, causeIncomplete, map[appDirection]icmpWant{
		from6: {3, 1, 0, host4In6()}, from4: {11, 1, 0, appMapped},
	}},
	{"time exceeded: hops used up behind the translator", "-", errorWait, causeHops, map[appDirection]icmpWant{
		from6: {3, 0, 0, translated(appPrefix, appInner4)}, from4: {11, 0, 0, netip.Addr{}},
	}},
	{"parameter problem: an invalid field", "shown", errorWait, causeInvalid, map[appDirection]icmpWant{
		from6: {4, 0, 4, host4In6()}, from4: {12, 0, 2 << 24, appMapped},
	}},
	{"parameter problem: segments left, found by the translator", "-", errorWait, causeSegments, map[appDirection]icmpWant{
		from6: {4, 0, packet.IPv6HeaderLen + 3, appBox6},
	}},
}

// side is the caller's end: the node, its router, and the addresses of a packet of its.
func (n *appNet) side(d appDirection) (node, router *lab.Node, src, dst netip.Addr) {
	if d == from6 {
		return n.host6, n.router6, appHost6, host4In6()
	}
	return n.host4, n.router4, appHost4, appMapped
}

// say sends a UDP datagram of the caller with so many hops left.
func (n *appNet) say(d appDirection, from, to uint16, size int, hops byte) ([]byte, error) {
	node, router, src, dst := n.side(d)
	var ip []byte
	if d == from6 {
		size -= packet.IPv6HeaderLen
		ip = ipv6(src, dst, protoUDP, hops, udp(src, dst, from, to, size))
	} else {
		size -= packet.IPv6HeaderLen // the payload of one IPv6 packet of that size
		ip = ipv4(src, dst, protoUDP, hops, dontFragment, udp(src, dst, from, to, size))
	}
	return ip, utter(node, "eth0", router, "hosts", ip)
}

func causeClosedPort(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	return n.say(d, port, closedPort, 100, 64)
}

func causeTooBig(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	return n.say(d, port, closedPort, bigPacket, 64)
}

// causeHops leaves one hop behind routers and translator, each of which takes one.
func causeHops(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	hops := byte(3)
	if d == from6 {
		hops = 4
	}
	return n.say(d, port, closedPort, 100, hops)
}

// causeIncomplete sends a first fragment that nothing follows.
func causeIncomplete(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	node, router, src, dst := n.side(d)
	const whole, part = 256, 128
	datagram := udp(src, dst, port, closedPort, whole)[:part]
	var ip []byte
	if d == from6 {
		fragment := append([]byte{protoUDP, 0, 0, 1}, binary.BigEndian.AppendUint32(nil, uint32(port))...)
		ip = ipv6(src, dst, protoFrag, 64, append(fragment, datagram...))
	} else {
		ip = ipv4(src, dst, protoUDP, 64, moreFragments, datagram)
	}
	return ip, utter(node, "eth0", router, "hosts", ip)
}

// causeSegments sends a routing header with an address left to visit, which no
// translator can carry (RFC 7915 section 5.1).
func causeSegments(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	node, router, src, dst := n.side(d)
	routing := append([]byte{protoUDP, 2, 2, 1, 0, 0, 0, 0}, dst.AsSlice()...)
	ip := ipv6(src, dst, protoRouting, 64, append(routing, udp(src, dst, port, closedPort, 64)...))
	return ip, utter(node, "eth0", router, "hosts", ip)
}

// causeInvalid has the called host find a field invalid: no kernel finds one in what
// a translator made, so that the lab writes the error about the packet that came. The
// field is the length: of the whole packet in IPv4, of the payload in IPv6.
func causeInvalid(_ context.Context, n *appNet, d appDirection, port uint16) ([]byte, error) {
	node, router, called := n.host4, n.router4, appHost4
	if d == from4 {
		node, router, called = n.host6, n.router6, appHost6
	}
	e, err := hear(node, "eth0")
	if err != nil {
		return nil, err
	}
	defer e.close()
	// Someone listens there: the host sends no error of its own.
	silence, err := listenUDP(node, netip.AddrPortFrom(called, sinkPort))
	if err != nil {
		return nil, err
	}
	defer silence.Close()
	sent, err := n.say(d, port, sinkPort, 100, 64)
	if err != nil {
		return nil, err
	}
	came, err := e.await(answerWait, func(ip []byte) bool {
		return ip[0]>>4 == 4 && d == from6 && ip[9] == protoUDP || ip[0]>>4 == 6 && d == from4 && ip[6] == protoUDP
	})
	if err != nil || came == nil {
		return sent, errors.Join(err, errors.New("the packet itself did not arrive"))
	}
	return sent, utter(node, "eth0", router, "hosts", complain(came, d))
}

// complain is a parameter problem about the length of a packet.
func complain(about []byte, d appDirection) []byte {
	if d == from6 {
		message := append([]byte{12, 0, 0, 0, 2, 0, 0, 0}, about...)
		binary.BigEndian.PutUint16(message[2:], ^packet.Fold(packet.Sum(0, message)))
		return ipv4(netip.AddrFrom4([4]byte(about[16:20])), netip.AddrFrom4([4]byte(about[12:16])), protoICMP, 64, 0, message)
	}
	src, dst := netip.AddrFrom16([16]byte(about[24:40])), netip.AddrFrom16([16]byte(about[8:24]))
	message := append([]byte{4, 0, 0, 0, 0, 0, 0, 4}, about...)
	binary.BigEndian.PutUint16(message[2:], packet.Checksum((*[16]byte)(about[24:40]), (*[16]byte)(about[8:24]), protoICMPv6, message))
	return ipv6(src, dst, protoICMPv6, 64, message)
}

// patience is how long the error may take: for ours, as long as a busy machine does,
// since each must come. Of tayga some are known not to come.
func (c *errorCase) patience(w way) time.Duration {
	if w.ours() {
		return answerWait
	}
	return c.wait
}

// try provokes an error and checks what the caller hears, on the wire.
func (c *errorCase) try(ctx context.Context, n *appNet, d appDirection, port uint16) error {
	node, _, src, dst := n.side(d)
	e, err := hear(node, "eth0")
	if err != nil {
		return err
	}
	defer e.close()
	sent, err := c.cause(ctx, n, d, port)
	if err != nil {
		return err
	}
	var got icmpError
	heard, err := e.await(c.patience(n.way), func(ip []byte) (ok bool) {
		got, ok = parseError(ip, src)
		return ok
	})
	if err != nil {
		return err
	}
	if heard == nil {
		return errors.New("no error arrives")
	}
	want := c.want[d]
	if !want.from.IsValid() && n.router6In4().Contains(got.from) {
		want.from = got.from
	}
	return want.check(got, src, dst, sent)
}

// check compares an error with what must arrive: type, code, MTU or pointer, who
// says it, and whether the quoted packet is the one that was sent.
func (w icmpWant) check(got icmpError, src, dst netip.Addr, sent []byte) error {
	var errs []error
	if got.kind != w.kind || got.code != w.code {
		errs = append(errs, fmt.Errorf("type %d code %d instead of %d and %d", got.kind, got.code, w.kind, w.code))
	} else if got.word != w.word {
		errs = append(errs, fmt.Errorf("MTU or pointer %#x instead of %#x", got.word, w.word))
	}
	if got.from != w.from {
		errs = append(errs, fmt.Errorf("it comes from %v, not from %v", got.from, w.from))
	}
	if got.src != src || got.dst != dst {
		errs = append(errs, fmt.Errorf("it quotes a packet from %v to %v", got.src, got.dst))
	} else if original := transportOf(sent); !bytes.HasPrefix(got.transport, original) {
		errs = append(errs, fmt.Errorf("it quotes %x, and %x was sent", got.transport[:8], original))
	}
	return errors.Join(errs...)
}

// transportOf is the header of UDP in a packet, or of what stands before it.
func transportOf(ip []byte) []byte {
	at := ipv4Header
	if ip[0]>>4 == 6 {
		at = packet.IPv6HeaderLen
		if ip[6] == protoFrag {
			at += fragmentSize
		}
	}
	return ip[at:][:8]
}
