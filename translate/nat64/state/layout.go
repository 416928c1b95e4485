// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

// The layout of the state, the same as nat64bpf/bpf/nat64_layout.h, which says what each
// field means and how it is read and written. Addresses and ports lie as in a packet, all
// else in host order. A test in nat64bpf compares the two.

// LayoutVersion is NAT64_LAYOUT_VERSION: whoever changes a structure raises both.
const LayoutVersion = 1

// head is struct nat64_head.
type head struct {
	version           uint32
	_                 uint32
	seed              [Seeds]uint64
	sessions          uint32
	bindings          uint32
	subscribers       uint32
	sessionBuckets    uint32
	bindingBuckets    uint32
	subscriberBuckets uint32
	addresses         uint32
	blockWords        uint32
	subscriberLength  uint32
	_                 uint32
}

// session is struct session.
type session struct {
	word      uint64
	address6  [4]uint32
	pool      uint32
	peer      uint32
	port6     uint16
	poolPort  uint16
	peerPort  uint16
	transport uint8
	prefix    uint8
	binding   uint32
	next      uint32
	previous  uint32
	_         [3]uint32
}

// binding is struct binding.
type binding struct {
	address6   [4]uint32
	pool       uint32
	port6      uint16
	poolPort   uint16
	word       uint32
	lock       uint32
	sessions   uint32
	subscriber uint32
}

// subscriber is struct subscriber.
type subscriber struct {
	prefix       [4]uint32
	pool         uint32
	word         uint32
	lock         uint32
	sessions     uint32
	sessionLimit uint32
	bindings     uint32
	blocks       uint32
	idleSince    uint32
	first        [MaxBlocks]uint32
}

// poolAddress is struct pool_address.
type poolAddress struct {
	address uint32
	_       uint32
}

// bucket is struct index_bucket.
type bucket struct {
	slot    [indexSlots]uint64
	spilled uint32
	_       uint32
}

const (
	// Seeds is how many random words the hash of the indexes takes.
	Seeds = 8
	// MaxBlocks is how many blocks of ports a subscriber may hold.
	MaxBlocks = 16
	// BlockPorts is how many ports one word of a block has.
	BlockPorts = 64

	indexSlots   = 7
	portWords    = 1024 // of one address and transport
	systemWords  = 16   // of these, the words of ports below 1024
	addressWords = int(Transports) * portWords
)

// Bits of the words of bindings and subscribers.
const (
	stateMask       = 0xff
	transportShift  = 8
	generationShift = 16

	bindingFree    = 0
	bindingDynamic = 1
	bindingStatic  = 2

	subscriberUsed    = 1
	subscriberGuarded = 0x100
)
