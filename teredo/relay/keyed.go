// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// keySlot is the unit of a key's life: a key is good in the slot it was made in
// and the next, so for 15 to 30 seconds.
const keySlot = 15 * time.Second

// key makes and checks the link-local source addresses of bubbles: fe80::/64 and
// 64 bits of an HMAC over the client's address and the time slot. A symmetric NAT
// gives a client another mapping towards the relay than the one in its address;
// a bubble from there is believed when it is addressed to the key, which went
// to the client alone, by way of its server.
type key struct {
	mac hash.Hash
	in  [16 + 8]byte
	sum [sha256.Size]byte
}

func newKey(rand io.Reader) (key, error) {
	var secret [sha256.Size]byte
	if _, err := io.ReadFull(rand, secret[:]); err != nil {
		return key{}, fmt.Errorf("no random secret for bubbles: %w", err)
	}
	return key{mac: hmac.New(sha256.New, secret[:])}, nil
}

// source returns the source address of a bubble to client now.
func (k *key) source(client *[16]byte, now peer.Instant) netip.Addr {
	return netip.AddrFrom16(k.address(client, slotOf(now)))
}

// valid reports whether dst is a source address that bubbles to client had lately.
func (k *key) valid(client, dst *[16]byte, now peer.Instant) bool {
	slot := slotOf(now)
	for _, s := range [...]int64{slot, slot - 1} {
		if want := k.address(client, s); subtle.ConstantTimeCompare(want[:], dst[:]) == 1 {
			return true
		}
	}
	return false
}

func slotOf(now peer.Instant) int64 { return int64(now) / int64(keySlot) }

func (k *key) address(client *[16]byte, slot int64) [16]byte {
	copy(k.in[:16], client[:])
	binary.BigEndian.PutUint64(k.in[16:], uint64(slot))
	k.mac.Reset()
	k.mac.Write(k.in[:])
	a := [16]byte{0: 0xfe, 1: 0x80}
	copy(a[8:], k.mac.Sum(k.sum[:0]))
	return a
}
