// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"hash"
	"slices"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// features is what both ends have offered.
type features struct {
	interleaved bool // messages travel as I-DATA (RFC 8260 section 2.2)
	forwards    bool // messages may be given up (RFC 3758 section 3.3)
	addresses   bool // may change (RFC 5061 section 4.2.7)
	ipv4, ipv6  bool // the peer can use addresses of the family

	key   []byte    // of the association (RFC 4895 section 6.1); nil if nothing is authenticated
	hmac  uint16    // that the peer wants
	wants [4]uint64 // a bit for each type that the peer takes behind an AUTH alone
}

// Our lists of authentication (RFC 4895 sections 3.2 and 3.3).
var (
	authenticated = []chunk.Type{chunk.TypeASCONF, chunk.TypeASCONFAck}
	hmacs         = []uint16{chunk.HMACSHA256, chunk.HMACSHA1}
)

// offer is what the parameters have the peer told.
func (p *Parameters) offer(random []byte) (o chunk.Options) {
	if p.AddressChanges {
		o.Extensions = append(o.Extensions, chunk.TypeASCONF, chunk.TypeASCONFAck, chunk.TypeAuth)
		o.Random, o.Chunks, o.HMACs = random, authenticated, hmacs
	}
	if p.Interleaving {
		o.Extensions = append(o.Extensions, chunk.TypeIData)
	}
	if p.PartialReliability {
		o.Extensions = append(o.Extensions, chunk.TypeForwardTSN)
		if o.ForwardTSN = true; p.Interleaving {
			o.Extensions = append(o.Extensions, chunk.TypeIForwardTSN)
		}
	}
	return o
}

// changesUnprotected reports whether a peer would change addresses without authentication: where we do change them, there
// is to be no association with it (RFC 5061 section 6).
func (p *Parameters) changesUnprotected(peer *chunk.Options) bool {
	return p.AddressChanges && slices.Contains(peer.Extensions, chunk.TypeASCONF) && (peer.Random == nil || peer.HMACs == nil)
}

// agree compares what the peer offers with what we do.
func (a *Association) agree(peer *chunk.Options, random []byte) {
	lists := func(t chunk.Type) bool { return slices.Contains(peer.Extensions, t) }
	a.features = features{
		interleaved: a.par.Interleaving && lists(chunk.TypeIData),
		forwards:    a.par.PartialReliability && peer.ForwardTSN,
	}
	if a.interleaved { // RFC 8260 section 2.3.1
		a.forwards = a.par.PartialReliability && lists(chunk.TypeIForwardTSN)
	}
	if !a.par.AddressChanges || peer.Random == nil {
		return
	}
	at := slices.IndexFunc(peer.HMACs, func(id uint16) bool { return slices.Contains(hmacs, id) })
	if at < 0 {
		return
	}
	ours := a.par.offer(random)
	a.hmac = peer.HMACs[at]
	for _, t := range peer.Chunks {
		a.wants[t/64] |= 1 << (t % 64)
	}
	a.key = sharedKey(ours.KeyVector(), peer.KeyVector())
	a.addresses = lists(chunk.TypeASCONF) && lists(chunk.TypeASCONFAck)
}

// sharedKey is the key of an association: that of the pair of endpoints, which is empty, then the smaller key
// vector, as a number, then the larger (RFC 4895 section 6.1).
func sharedKey(ours, theirs []byte) []byte {
	if len(ours) > len(theirs) || len(ours) == len(theirs) && bytes.Compare(ours, theirs) > 0 {
		ours, theirs = theirs, ours
	}
	return slices.Concat(ours, theirs)
}

// newHMAC is one of our list with its size.
func newHMAC(id uint16, key []byte) (h hash.Hash, size int) {
	if id == chunk.HMACSHA1 {
		return hmac.New(sha1.New, key), chunk.SizeSHA1
	}
	return hmac.New(sha256.New, key), chunk.SizeSHA256
}

// protects reports whether the peer wants chunks of a type authenticated. Some never are (RFC 4895 section 3.2).
func (a *Association) protects(t chunk.Type) bool {
	switch t {
	case chunk.TypeInit, chunk.TypeInitAck, chunk.TypeShutdownComplete, chunk.TypeAuth:
		return false
	}
	return a.key != nil && a.wants[t/64]>>(t%64)&1 == 1
}

// authSize is what an AUTH takes of a packet.
func (a *Association) authSize() int {
	const fixed = 8
	if a.hmac == chunk.HMACSHA1 {
		return fixed + chunk.SizeSHA1
	}
	return fixed + chunk.SizeSHA256
}

// verify checks an AUTH, which begins all that is left of its packet (RFC 4895 section 6.3). Without it nothing
// behind it is read.
func (a *Association) verify(c chunk.Chunk, rest []byte) bool {
	auth, err := chunk.ParseAuth(c.Body)
	switch {
	case err != nil || a.key == nil || auth.Key != 0 || a.arrivals.authentic: // one in a packet (section 4.1)
		a.endpoint.Counters.BadAuth++
		return false
	case !slices.Contains(hmacs, auth.HMAC):
		a.endpoint.Counters.BadAuth++
		a.answerError(chunk.Cause{Code: chunk.CauseUnsupportedHMAC, Value: c.Body[2:4]})
		return false
	}
	h, size := newHMAC(auth.HMAC, a.key)
	if len(auth.Code) != size {
		a.endpoint.Counters.BadAuth++
		return false
	}
	var zeros [chunk.SizeSHA256]byte
	h.Write(rest[:8])
	h.Write(zeros[:size])
	h.Write(rest[8+size:])
	if !hmac.Equal(h.Sum(nil), auth.Code) {
		a.endpoint.Counters.BadAuth++
		return false
	}
	a.arrivals.authentic = true
	return true
}

// verifyCookie checks an AUTH that stands in front of a COOKIE ECHO, with the keys of the cookie, or of the association
// that there is already (RFC 4895 section 6.3). There need not be one.
func (a *Association) verifyCookie(in *arrival) bool {
	first, _, err := chunk.Next(in.chunks)
	if err != nil || first.Type != chunk.TypeAuth {
		return true
	}
	a.arrivals = arrivals{}
	return a.verify(first, in.chunks)
}

// sign writes the code of an AUTH, which begins what is given (RFC 4895 section 6.2).
func (a *Association) sign(from []byte) {
	h, size := newHMAC(a.hmac, a.key)
	h.Write(from)
	copy(from[8:8+size], h.Sum(nil))
}
