// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// Key6 is what an IPv6 packet of a session tells: X',x to Z,z through one of the
// prefixes of pool6. For an ICMP query ClientPort is its identifier and PeerPort 0.
type Key6 struct {
	Client     [16]byte // X'
	Peer       [4]byte  // Z
	ClientPort uint16   // x
	PeerPort   uint16   // z
	Transport  Transport
	Prefix     uint8 // number of the prefix of pool6
}

// Key4 is what an IPv4 packet of a session tells: Z,z to T,t. For an ICMP query PoolPort
// is its identifier and PeerPort 0.
type Key4 struct {
	Pool      [4]byte // T
	Peer      [4]byte // Z
	PoolPort  uint16  // t
	PeerPort  uint16  // z
	Transport Transport
}

// Inside returns the client's part of the key.
func (k *Key6) Inside() Inside { return Inside{k.Client, k.ClientPort, k.Transport} }

// Outside returns the pool's part of the key.
func (k *Key4) Outside() Outside { return Outside{k.Pool, k.PoolPort, k.Transport} }

// Session is a copy of a session.
type Session struct {
	Word       Word
	Client     [16]byte // X'
	Pool       [4]byte  // T
	Peer       [4]byte  // Z
	ClientPort uint16   // x
	PoolPort   uint16   // t
	PeerPort   uint16   // z
	Transport  Transport
	Prefix     uint8  // number of the prefix of pool6 that the client uses for Z
	Index      uint32 // its record
	Binding    uint32 // index of its binding
}

// Key6 returns the key by which IPv6 packets find the session.
func (s *Session) Key6() Key6 {
	return Key6{s.Client, s.Peer, s.ClientPort, s.PeerPort, s.Transport, s.Prefix}
}

// Key4 returns the key by which IPv4 packets find the session.
func (s *Session) Key4() Key4 {
	return Key4{s.Pool, s.Peer, s.PoolPort, s.PeerPort, s.Transport}
}

// The eight words of a session's record, as struct session lies in them.
const (
	sessionWord     = 0
	sessionAddress  = 1 // two words
	sessionPoolPeer = 3 // T, Z
	sessionPorts    = 4 // x, t, z, transport, prefix
	sessionBinding  = 5 // binding, next
	sessionWords    = 8
)

type sessionRecord [sessionWords]uint64

// Masks of the word with the ports.
const (
	ports6Mask = 0xffff_ffff_0000_ffff // x, z, transport, prefix
	ports4Mask = 0x00ff_ffff_ffff_0000 // t, z, transport
)

func sessionPortsOf(client, pool, peer uint16, transport Transport, prefix uint8) uint64 {
	return uint64(wire16(client)) | uint64(wire16(pool))<<16 | uint64(wire16(peer))<<32 |
		uint64(transport)<<48 | uint64(prefix)<<56
}

// next is the link of a binding's chain.
func (t *Table) next(i uint32) *uint32 { return &t.sessions[i].next }

// Find6 finds the session of an IPv6 packet.
func (t *Table) Find6(k *Key6, s *Session) bool {
	a0, a1 := addressWords6(&k.Client)
	peer := uint64(wire32(k.Peer)) << 32
	ports := sessionPortsOf(k.ClientPort, 0, k.PeerPort, k.Transport, k.Prefix)
	q := t.sessions6.query(t.hashSession6(k))
	for {
		i, ok := q.next()
		if !ok {
			return false
		}
		if int(i) >= len(t.sessions) {
			continue
		}
		r := t.session(i)
		w := atomic.LoadUint64(&r[sessionWord])
		if Word(w).Status() == Free ||
			(atomic.LoadUint64(&r[sessionPorts])^ports)&ports6Mask != 0 ||
			(atomic.LoadUint64(&r[sessionPoolPeer])^peer)>>32 != 0 ||
			atomic.LoadUint64(&r[sessionAddress]) != a0 || atomic.LoadUint64(&r[sessionAddress+1]) != a1 {
			continue
		}
		if t.read(i, Word(w), s) {
			return true
		}
	}
}

// Find4 finds the session of an IPv4 packet.
func (t *Table) Find4(k *Key4, s *Session) bool {
	poolPeer := uint64(wire32(k.Pool)) | uint64(wire32(k.Peer))<<32
	ports := sessionPortsOf(0, k.PoolPort, k.PeerPort, k.Transport, 0)
	q := t.sessions4.query(t.hashSession4(k))
	for {
		i, ok := q.next()
		if !ok {
			return false
		}
		if int(i) >= len(t.sessions) {
			continue
		}
		r := t.session(i)
		w := atomic.LoadUint64(&r[sessionWord])
		if Word(w).Status() == Free ||
			(atomic.LoadUint64(&r[sessionPorts])^ports)&ports4Mask != 0 ||
			atomic.LoadUint64(&r[sessionPoolPeer]) != poolPeer {
			continue
		}
		if t.read(i, Word(w), s) {
			return true
		}
	}
}

// View reads the session in a record; false when there is none.
func (t *Table) View(index uint32, s *Session) bool {
	if int(index) >= len(t.sessions) {
		return false
	}
	w := Word(atomic.LoadUint64(&t.session(index)[sessionWord]))
	return w.Status() != Free && t.read(index, w, s)
}

// read copies a record whose word was just seen; false when its session has ended since.
func (t *Table) read(i uint32, w Word, s *Session) bool {
	r := t.session(i)
	a0, a1 := atomic.LoadUint64(&r[sessionAddress]), atomic.LoadUint64(&r[sessionAddress+1])
	poolPeer, ports := atomic.LoadUint64(&r[sessionPoolPeer]), atomic.LoadUint64(&r[sessionPorts])
	owner := atomic.LoadUint32(&t.sessions[i].binding)
	again := Word(atomic.LoadUint64(&r[sessionWord]))
	if again.Generation() != w.Generation() || again.Status() == Free {
		return false
	}
	s.Word, s.Index, s.Binding = again, i, owner
	putAddress6(&s.Client, a0, a1)
	s.Pool, s.Peer = bytes4(uint32(poolPeer)), bytes4(uint32(poolPeer>>32))
	s.ClientPort, s.PoolPort, s.PeerPort = wire16(uint16(ports)), wire16(uint16(ports>>16)), wire16(uint16(ports>>32))
	s.Transport, s.Prefix = Transport(ports>>48), uint8(ports>>56)
	return true
}

// Step gives the session another state, flags and stamp, unless its word has changed
// since the copy was made: then it returns false, and the caller finds it again.
func (t *Table) Step(s *Session, status Status, flags Flags, stamp uint32) bool {
	w := wordOf(s.Word.Generation(), status, flags, stamp)
	if !t.swap(s, w) {
		return false
	}
	if w.Status() != s.Word.Status() || w.Flags() != s.Word.Flags() {
		t.dirty.mark(s.Index)
	}
	s.Word = w
	return true
}

// Touch begins the session's lifetime again, if its stamp is [StampEvery] units old. When
// that fails another was here with the same news, or the session has ended.
func (t *Table) Touch(s *Session, stamp uint32) {
	if s.Word.Age(stamp) < StampEvery {
		return
	}
	if w := wordOf(s.Word.Generation(), s.Word.Status(), s.Word.Flags(), stamp); t.swap(s, w) {
		s.Word = w
	}
}

// swap exchanges a session's word, if it is as in the copy.
func (t *Table) swap(s *Session, w Word) bool {
	return atomic.CompareAndSwapUint64(&t.session(s.Index)[sessionWord], uint64(s.Word), uint64(w))
}
