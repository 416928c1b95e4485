// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/subtle"
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// bindingKey makes and checks the 64-bit keys of one step of a binding. A key is
// good for one client at one mapping, for 15 to 30 seconds, so that the relay
// remembers nothing before the last step.
type bindingKey struct{ key }

func newBindingKey(rand io.Reader) (bindingKey, error) {
	k, err := newKey(rand)
	return bindingKey{k}, err
}

func (k *bindingKey) make(client *[16]byte, mapping netip.AddrPort, slot int64) uint64 {
	var in [16 + 4 + 2 + 8]byte
	copy(in[:], client[:])
	ip := mapping.Addr().As4()
	copy(in[16:], ip[:])
	binary.BigEndian.PutUint16(in[20:], mapping.Port())
	binary.BigEndian.PutUint64(in[22:], uint64(slot))
	k.mac.Reset()
	k.mac.Write(in[:])
	return binary.BigEndian.Uint64(k.mac.Sum(k.sum[:0]))
}

// now returns the key of this time.
func (k *bindingKey) now(client *[16]byte, mapping netip.AddrPort, at peer.Instant) uint64 {
	return k.make(client, mapping, slotOf(at))
}

// valid reports whether key was made for them lately.
func (k *bindingKey) valid(key uint64, client *[16]byte, mapping netip.AddrPort, at peer.Instant) bool {
	slot := slotOf(at)
	var got, want [8]byte
	binary.BigEndian.PutUint64(got[:], key)
	for _, s := range [...]int64{slot, slot - 1} {
		binary.BigEndian.PutUint64(want[:], k.make(client, mapping, s))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			return true
		}
	}
	return false
}

// handleCarried takes what isCarried has found.
func (r *Relay) handleCarried(p packet.IPv6, trailers []byte, from netip.AddrPort, at peer.Instant, now time.Time, out *packet.Batch) {
	if from.Port() == r.cfg.Port && r.isOwn(from.Addr()) {
		r.drop(OwnAddress)
		return
	}
	if r.isTeredo(p.DstBytes()) {
		r.carry(p, trailers, from, at, now, out)
		return
	}
	why, ok := r.checkBinder(p, from)
	t, err := teredo.ParseTrailers(trailers)
	switch step, key := teredo.BindingStepOf(p.DstBytes()); {
	case !ok:
		r.drop(why)
	case err != nil || t.Nonce == 0:
		r.drop(BadBinding)
	case step == teredo.NoBindingStep && !r.mayChallenge(p, from, at, now):
		r.drop(BindingRate)
	case step == teredo.NoBindingStep:
		r.stats.BubblesReceived++
		r.challengeBinder(p, t.Nonce, from, at, out)
	case step == teredo.BindingChallenge && r.carriage.challenge.valid(key, p.SrcBytes(), from, at):
		r.handleChallenged(p, t.Nonce, from, at, now, out)
	case step == teredo.BindingProof && r.carriage.proof.valid(key, p.SrcBytes(), from, at):
		r.handleProof(p, t.Nonce, from, at, out)
	default:
		r.drop(BadBinding)
	}
}

// checkBinder applies the rules on who may take a step of a binding, before any
// key is computed or anything is sent.
func (r *Relay) checkBinder(p packet.IPv6, from netip.AddrPort) (why Reason, ok bool) {
	if !teredo.IsBubble(p) {
		return BadBinding, false
	}
	if why, ok := r.checkMapping(from); !ok {
		return why, false
	}
	return r.checkClient(p.SrcBytes())
}

// mayChallenge limits the answers to requests, whose source anybody can forge. A
// client that is bound there has a budget of its own, so that a flood of others
// does not end its binding.
func (r *Relay) mayChallenge(p packet.IPv6, from netip.AddrPort, at peer.Instant, now time.Time) bool {
	if b := r.carriage.bindings.lookup(p.SrcBytes(), at); b != nil && b.mapping == from {
		return b.requests.Allow(requestLimit, now)
	}
	return r.carriage.perAddress.Allow(from.Addr(), now) && r.carriage.replies.Allow(r.bubbleLimit, now)
}

// challengeBinder answers a request, with a bubble of the same size: whoever
// returns its source address receives at the address that the request came from.
func (r *Relay) challengeBinder(p packet.IPv6, nonce uint32, from netip.AddrPort, at peer.Instant, out *packet.Batch) {
	b := out.Alloc(teredo.BubbleLen + teredo.MaxTrailersLen)
	out.SendUDP(Socket, from, r.appendChallenge(b, p, nonce, from, at))
}

func (r *Relay) appendChallenge(b []byte, p packet.IPv6, nonce uint32, from netip.AddrPort, at peer.Instant) []byte {
	src := teredo.BindingAddress(teredo.BindingChallenge, r.carriage.challenge.now(p.SrcBytes(), from, at))
	t := teredo.Trailers{HasNonce: true, Nonce: nonce}
	return t.AppendTo(teredo.AppendBubble(b, src, p.Src()))
}

// handleChallenged refreshes a binding whose client is still where it was. Any
// other has to prove that the Teredo address is its own: a bubble goes to that
// address by way of its server.
func (r *Relay) handleChallenged(p packet.IPv6, nonce uint32, from netip.AddrPort, at peer.Instant, now time.Time, out *packet.Batch) {
	if b := r.carriage.bindings.lookup(p.SrcBytes(), at); b != nil && b.mapping == from {
		r.carriage.bindings.extend(b, at)
		r.confirm(p, nonce, from, at, out)
		return
	}
	server := teredo.Server(p.SrcBytes())
	switch {
	case !r.carriage.perAddress.Allow(from.Addr(), now): // or one key could be returned again and again
		r.drop(BindingRate)
		return
	case !r.perServer.Allow(server, now):
		r.drop(ServerRate)
		return
	case !r.bubbleBucket.Allow(r.bubbleLimit, now):
		r.drop(BubbleRate)
		return
	}
	src := teredo.BindingAddress(teredo.BindingProof, r.carriage.proof.now(p.SrcBytes(), from, at))
	b := teredo.AppendBubble(out.Alloc(teredo.BubbleLen), src, p.Src())
	out.SendUDP(Socket, netip.AddrPortFrom(server, teredo.Port), b)
	r.stats.BubblesReceived++
	r.stats.BubblesSent++
}

// handleProof binds the client: the key went to its Teredo address by way of its
// server, for this mapping, from which a challenge had come back.
func (r *Relay) handleProof(p packet.IPv6, nonce uint32, from netip.AddrPort, at peer.Instant, out *packet.Batch) {
	if !r.carriage.bindings.bind(p.SrcBytes(), from, at) {
		r.drop(BindingsFull)
		return
	}
	r.stats.Bindings++
	r.confirm(p, nonce, from, at, out)
}

// confirm tells a client that it is bound, and where. A challenge in the source
// address costs nothing and keeps the form of all other answers.
func (r *Relay) confirm(p packet.IPv6, nonce uint32, from netip.AddrPort, at peer.Instant, out *packet.Batch) {
	r.stats.BubblesReceived++
	b := teredo.AppendOrigin(out.Alloc(8+teredo.BubbleLen+teredo.MaxTrailersLen), from)
	out.SendUDP(Socket, from, r.appendChallenge(b, p, nonce, from, at))
}
