// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// Nonces are stateless until they are used: a time and a number, with a code of the engine's
// key over both and over what the nonce is for.
const (
	stampSize = 16
	codeSize  = 16
)

// nonces makes nonces and judges them.
type nonces struct {
	key    [32]byte
	number uint64
	life   time.Duration
	most   int

	used  map[stamp]uint32 // the highest count with each nonce that was used
	order []stamp          // these, in the order of their first use
	floor time.Time        // nonces up to here are stale, since their counts were forgotten
}

// stamp is the time of a nonce, in nanoseconds, and a number that no other nonce has.
type stamp [stampSize]byte

func (n *nonces) stamp(now time.Time) (s stamp) {
	n.number++
	binary.BigEndian.PutUint64(s[:], uint64(now.UnixNano()))
	binary.BigEndian.PutUint64(s[8:], n.number)
	return s
}

func (s stamp) time() time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(s[:]))) }

// seal returns a stamp with its code; purpose is what the nonce is good for.
func (n *nonces) seal(s stamp, purpose ...[]byte) []byte {
	h := hmac.New(sha256.New, n.key[:])
	h.Write(s[:])
	for _, p := range purpose {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	return append(s[:], h.Sum(nil)[:codeSize]...)
}

// open is seal backwards. Not ok: it is no nonce of this engine for that purpose.
func (n *nonces) open(sealed []byte, purpose ...[]byte) (s stamp, ok bool) {
	if len(sealed) != stampSize+codeSize {
		return s, false
	}
	s = stamp(sealed)
	return s, hmac.Equal(n.seal(s, purpose...), sealed)
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// fresh reports whether a nonce may still be used.
func (n *nonces) fresh(s stamp, now time.Time) bool {
	at := s.time()
	return !at.After(now) && now.Sub(at) <= n.life && at.After(n.floor)
}

// use notes that a nonce was used with a count, and reports whether that count is higher than
// all before; 0 is a use without a count, of which there is one (RFC 7616 section 3.3).
func (n *nonces) use(s stamp, count uint32, now time.Time) bool {
	last, known := n.used[s]
	if known && count <= last {
		return false
	}
	if !known {
		n.forget(now)
		n.order = append(n.order, s)
	}
	n.used[s] = count
	return true
}

// forget makes room for one more: nonces that are stale anyway go, and if there are none, the
// first, which is stale from now on.
func (n *nonces) forget(now time.Time) {
	for len(n.order) > 0 && (len(n.order) >= n.most || now.Sub(n.order[0].time()) > n.life) {
		if at := n.order[0].time(); at.After(n.floor) {
			n.floor = at
		}
		delete(n.used, n.order[0])
		n.order = n.order[1:]
	}
}
