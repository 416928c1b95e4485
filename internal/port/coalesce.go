// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// maxHeaders is the longest IPv6 and TCP header that is coalesced.
const maxHeaders = packet.IPv6HeaderLen + 60

// flow describes a packet that may join others of its flow: TCP or UDP directly
// behind the IP header, with payload.
type flow struct {
	proto   byte
	ip      int // length of the IP header
	headers int // length of all headers
	payload int
}

func (f *flow) ipv4() bool { return f.ip == ipv4HeaderLen }

// parseFlow reads a packet's flow; ok is false for packets to be written alone.
func parseFlow(p []byte) (f flow, ok bool) {
	if !f.parseIP(p) || len(p) < f.ip+packet.UDPHeaderLen {
		return f, false
	}
	t := p[f.ip:]
	switch f.proto {
	case packet.ProtoTCP:
		// Other flags than ACK and PSH mean something about this very segment.
		if len(t) < 20 || t[tcpFlagsOff]&^tcpPSH != tcpACK || t[tcpDataOff]>>4 < 5 {
			return f, false
		}
		f.headers = f.ip + int(t[tcpDataOff]>>4)*4
	case packet.ProtoUDP:
		if int(binary.BigEndian.Uint16(t[udpLenOff:])) != len(t) {
			return f, false
		}
		f.headers = f.ip + packet.UDPHeaderLen
	default:
		return f, false
	}
	f.payload = len(p) - f.headers
	return f, f.payload > 0
}

// parseIP reads the IP header, which must have neither options nor extensions, of a
// whole packet.
func (f *flow) parseIP(p []byte) bool {
	f.ip = headerLen(p)
	switch {
	case f.ip == packet.IPv6HeaderLen && p[0]>>4 == 6:
		f.proto = p[6]
		return int(binary.BigEndian.Uint16(p[4:])) == len(p)-packet.IPv6HeaderLen
	case f.ip == ipv4HeaderLen:
		f.proto = p[ipv4ProtoOff]
		const dontFragment = 0x4000
		return int(binary.BigEndian.Uint16(p[ipv4LenOff:])) == len(p) &&
			binary.BigEndian.Uint16(p[ipv4FragOff:])&^dontFragment == 0
	}
	return false
}

// sameIP reports whether the IP headers of two neighbours differ only in what
// segmentation rebuilds. The identification of a packet that may be fragmented must
// be the next one; that of others means nothing (RFC 6864).
func (f *flow) sameIP(first, prev, q []byte) bool {
	if !f.ipv4() {
		return bytes.Equal(first[:4], q[:4]) && bytes.Equal(first[6:packet.IPv6HeaderLen], q[6:packet.IPv6HeaderLen])
	}
	if first[ipv4FragOff] == 0 && binary.BigEndian.Uint16(q[ipv4IDOff:]) != binary.BigEndian.Uint16(prev[ipv4IDOff:])+1 {
		return false
	}
	return bytes.Equal(first[:ipv4LenOff], q[:ipv4LenOff]) && bytes.Equal(first[ipv4FragOff:ipv4SumOff], q[ipv4FragOff:ipv4SumOff]) &&
		bytes.Equal(first[ipv4AddrOff:ipv4HeaderLen], q[ipv4AddrOff:ipv4HeaderLen])
}

// follows reports whether q, the packet after p in a run of the flow that
// started with first, differs only in what segmentation rebuilds: length,
// checksum, and for TCP the sequence number and PSH.
func follows(first, p, q []byte, f, fp, fq flow) bool {
	if fq.proto != f.proto || fq.ip != f.ip || fq.headers != f.headers || fq.payload > f.payload || fp.payload < f.payload ||
		!f.sameIP(first, p, q) || !bytes.Equal(first[f.ip:f.ip+4], q[f.ip:f.ip+4]) {
		return false
	}
	if f.proto == packet.ProtoUDP {
		return true
	}
	t, prev, next := first[f.ip:f.headers], p[f.ip:], q[f.ip:f.headers]
	return prev[tcpFlagsOff]&tcpPSH == 0 &&
		binary.BigEndian.Uint32(next[tcpSeqOff:]) == binary.BigEndian.Uint32(prev[tcpSeqOff:])+uint32(fp.payload) &&
		bytes.Equal(t[8:tcpFlagsOff], next[8:tcpFlagsOff]) && // acknowledgement, data offset
		bytes.Equal(t[14:tcpSumOff], next[14:tcpSumOff]) && // window
		bytes.Equal(t[18:], next[18:]) // urgent pointer, options
}

// pseudo is the sum of the pseudo-header of a packet with a transport length.
func (f *flow) pseudo(p []byte, length int) uint64 {
	acc := uint64(length) + uint64(f.proto)
	if f.ipv4() {
		return packet.Sum(acc, p[ipv4AddrOff:ipv4HeaderLen])
	}
	return packet.Sum(acc, p[8:packet.IPv6HeaderLen])
}

// intact reports right checksums. Segmentation computes them again, which would make a
// damaged packet look sound.
func intact(p []byte, f flow) bool {
	sum := p[f.ip+udpSumOff:]
	if f.proto == packet.ProtoUDP && sum[0] == 0 && sum[1] == 0 {
		return false
	}
	if f.ipv4() && packet.Fold(packet.Sum(0, p[:ipv4HeaderLen])) != 0xffff {
		return false
	}
	return packet.Fold(packet.Sum(f.pseudo(p, len(p)-f.ip), p[f.ip:])) == 0xffff
}

// run returns how many packets from the start can be written as one, and the
// flow of the first.
func run(pkts [][]byte, udp bool) (int, flow) {
	first := pkts[0]
	f, ok := parseFlow(first)
	if !ok || (f.proto == packet.ProtoUDP && !udp) {
		return 1, f
	}
	n, total, prev := 1, len(first), f
	for n < min(len(pkts), maxSegments) {
		q := pkts[n]
		fq, ok := parseFlow(q)
		if !ok || total+fq.payload > maxTrain || !follows(first, pkts[n-1], q, f, prev, fq) {
			break
		}
		// The first is checked once there is something to join it.
		if (n == 1 && !intact(first, f)) || !intact(q, fq) {
			break
		}
		total += fq.payload
		prev = fq
		n++
	}
	return n, f
}

// tunWriter is one writer's scratch space.
type tunWriter struct {
	vnet  [vnetHdrLen]byte
	saved [maxHeaders]byte
	iovs  [1 + maxSegments]unix.Iovec
}

// load describes a run of packets for one write: the first with headers that
// speak for all, then the payloads of the others.
func (w *tunWriter) load(pkts [][]byte, f flow) (iovs []unix.Iovec, total int) {
	first := pkts[0]
	w.vnet = [vnetHdrLen]byte{}
	w.iovs[0].Base = &w.vnet[0]
	w.iovs[0].SetLen(vnetHdrLen)
	w.iovs[1].Base = &first[0]
	w.iovs[1].SetLen(len(first))
	total = len(first)
	for i, p := range pkts[1:] {
		w.iovs[2+i].Base = &p[f.headers]
		w.iovs[2+i].SetLen(len(p) - f.headers)
		total += len(p) - f.headers
	}
	if len(pkts) > 1 {
		copy(w.saved[:], first[:f.headers])
		w.speakForAll(first, pkts[len(pkts)-1], f, total)
	}
	return w.iovs[:1+len(pkts)], total
}

// speakForAll makes the headers of the first packet those of a superpacket, and
// fills the virtio header.
func (w *tunWriter) speakForAll(first, last []byte, f flow, total int) {
	length := uint16(total - f.ip)
	kind := byte(unix.VIRTIO_NET_HDR_GSO_TCPV6)
	if f.ipv4() {
		kind = unix.VIRTIO_NET_HDR_GSO_TCPV4
		binary.BigEndian.PutUint16(first[ipv4LenOff:], uint16(total))
		fillIPv4Sum(first[:ipv4HeaderLen])
	} else {
		binary.BigEndian.PutUint16(first[4:], length)
	}
	t, sumOff := first[f.ip:], tcpSumOff
	if f.proto == packet.ProtoUDP {
		kind, sumOff = unix.VIRTIO_NET_HDR_GSO_UDP_L4, udpSumOff
		binary.BigEndian.PutUint16(t[udpLenOff:], length)
	} else {
		t[tcpFlagsOff] |= last[f.ip+tcpFlagsOff] & tcpPSH
	}
	// The device is to complete the checksum: the field holds the
	// pseudo-header's sum, uncomplemented.
	binary.BigEndian.PutUint16(t[sumOff:], packet.Fold(f.pseudo(first, int(length))))
	w.vnet[0], w.vnet[1] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, kind
	binary.NativeEndian.PutUint16(w.vnet[2:], uint16(f.headers))
	binary.NativeEndian.PutUint16(w.vnet[4:], uint16(f.payload))
	binary.NativeEndian.PutUint16(w.vnet[6:], uint16(f.ip))
	binary.NativeEndian.PutUint16(w.vnet[8:], uint16(sumOff))
}

// restore gives the first packet of a run its own headers back.
func (w *tunWriter) restore(first []byte, f flow) { copy(first, w.saved[:f.headers]) }
