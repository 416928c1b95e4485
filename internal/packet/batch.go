// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

// Datagram is one UDP payload to be sent.
type Datagram struct {
	Socket  int            // index of the local socket it leaves from; the role defines the numbers
	To      netip.AddrPort // of the socket's family
	Payload []byte
	TTL     uint8 // outer time to live; 0 is the socket's own
	Class   uint8 // outer traffic class, DSCP and ECN (RFC 2474, 3168); 0 is the socket's own
}

// Batch collects what engine calls produce: UDP datagrams for the network and
// IPv6 packets for the host's stack. The slices may alias the caller's input
// buffers, so a batch is sent before those are filled again. The zero value is
// ready to use; a batch that is reused through Reset stops allocating once it has
// grown to its working size.
type Batch struct {
	UDP []Datagram
	IP  [][]byte

	slab []byte
}

// batchSlab is the first size of the slab: a full batch of bubbles with their
// trailers, or a few ICMPv6 errors of 1280 bytes.
const batchSlab = 16 << 10

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.UDP)
	clear(b.IP)
	b.UDP, b.IP, b.slab = b.UDP[:0], b.IP[:0], b.slab[:0]
}

// Packets returns the batch itself: what embeds a Batch offers its packets by it.
func (b *Batch) Packets() *Batch { return b }

// Alloc returns an empty slice of capacity n, to be appended to, that stays
// valid until Reset. When the slab is full a larger one replaces it; slices
// handed out before keep the old one alive.
func (b *Batch) Alloc(n int) []byte {
	if cap(b.slab)-len(b.slab) < n {
		b.slab = make([]byte, 0, max(batchSlab, 2*cap(b.slab), n))
	}
	start := len(b.slab)
	b.slab = b.slab[:start+n]
	return b.slab[start : start : start+n]
}

// Copy returns a copy of p that stays valid until Reset.
func (b *Batch) Copy(p []byte) []byte { return append(b.Alloc(len(p)), p...) }

// SendUDP appends a datagram.
func (b *Batch) SendUDP(socket int, to netip.AddrPort, payload []byte) {
	b.UDP = append(b.UDP, Datagram{Socket: socket, To: to, Payload: payload})
}

// SendIP appends an IPv6 packet for the host's stack.
func (b *Batch) SendIP(p []byte) { b.IP = append(b.IP, p) }
