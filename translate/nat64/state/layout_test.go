// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"unsafe"
)

// TestLayout holds the records against translate/nat64/nat64bpf/bpf/nat64_layout.h.
func TestLayout(t *testing.T) {
	var (
		h head
		s session
		b binding
		c subscriber
		x bucket
		a poolAddress
	)
	for name, row := range map[string]struct{ got, want uintptr }{
		"nat64_head":                   {unsafe.Sizeof(h), 112},
		"nat64_head.seed":              {unsafe.Offsetof(h.seed), 8},
		"nat64_head.sessions":          {unsafe.Offsetof(h.sessions), 72},
		"nat64_head.session_buckets":   {unsafe.Offsetof(h.sessionBuckets), 84},
		"nat64_head.addresses":         {unsafe.Offsetof(h.addresses), 96},
		"nat64_head.block_words":       {unsafe.Offsetof(h.blockWords), 100},
		"nat64_head.subscriber_length": {unsafe.Offsetof(h.subscriberLength), 104},
		"session":                      {unsafe.Sizeof(s), 64},
		"session.word":                 {unsafe.Offsetof(s.word), sessionWord * 8},
		"session.address6":             {unsafe.Offsetof(s.address6), sessionAddress * 8},
		"session.pool":                 {unsafe.Offsetof(s.pool), sessionPoolPeer * 8},
		"session.peer":                 {unsafe.Offsetof(s.peer), sessionPoolPeer*8 + 4},
		"session.port6":                {unsafe.Offsetof(s.port6), sessionPorts * 8},
		"session.pool_port":            {unsafe.Offsetof(s.poolPort), sessionPorts*8 + 2},
		"session.peer_port":            {unsafe.Offsetof(s.peerPort), sessionPorts*8 + 4},
		"session.transport":            {unsafe.Offsetof(s.transport), sessionPorts*8 + 6},
		"session.prefix":               {unsafe.Offsetof(s.prefix), sessionPorts*8 + 7},
		"session.binding":              {unsafe.Offsetof(s.binding), 40},
		"session.next":                 {unsafe.Offsetof(s.next), 44},
		"session.previous":             {unsafe.Offsetof(s.previous), 48},
		"binding":                      {unsafe.Sizeof(b), bindingWords * 8},
		"binding.address6":             {unsafe.Offsetof(b.address6), bindingAddress * 8},
		"binding.pool":                 {unsafe.Offsetof(b.pool), bindingPorts * 8},
		"binding.port6":                {unsafe.Offsetof(b.port6), bindingPorts*8 + 4},
		"binding.pool_port":            {unsafe.Offsetof(b.poolPort), bindingPorts*8 + 6},
		"binding.word":                 {unsafe.Offsetof(b.word), 24},
		"binding.lock":                 {unsafe.Offsetof(b.lock), 28},
		"binding.sessions":             {unsafe.Offsetof(b.sessions), 32},
		"binding.subscriber":           {unsafe.Offsetof(b.subscriber), 36},
		"subscriber":                   {unsafe.Sizeof(c), 112},
		"subscriber.prefix":            {unsafe.Offsetof(c.prefix), 0},
		"subscriber.pool":              {unsafe.Offsetof(c.pool), 16},
		"subscriber.word":              {unsafe.Offsetof(c.word), 20},
		"subscriber.lock":              {unsafe.Offsetof(c.lock), 24},
		"subscriber.sessions":          {unsafe.Offsetof(c.sessions), 28},
		"subscriber.session_limit":     {unsafe.Offsetof(c.sessionLimit), 32},
		"subscriber.bindings":          {unsafe.Offsetof(c.bindings), 36},
		"subscriber.blocks":            {unsafe.Offsetof(c.blocks), 40},
		"subscriber.idle_since":        {unsafe.Offsetof(c.idleSince), 44},
		"subscriber.first":             {unsafe.Offsetof(c.first), 48},
		"index_bucket":                 {unsafe.Sizeof(x), 64},
		"index_bucket.spilled":         {unsafe.Offsetof(x.spilled), 56},
		"pool_address":                 {unsafe.Sizeof(a), 8},
	} {
		if row.got != row.want {
			t.Errorf("%s: %d, want %d", name, row.got, row.want)
		}
	}
}

// TestHash holds the hash against values that the program's hash gives.
func TestHash(t *testing.T) {
	table := &Table{seed: seed}
	k6 := Key6{client(1, 2), peer4, 0x1234, 0x5678, UDP, 3}
	// By the definition in nat64_layout.h, in words as a little-endian machine loads them.
	words := []uint64{0xb80d0120, 0x01000000, 0, 0x02000000, 0x076433c6, 0x3412 | 0x7856<<16, 1 | 3<<8}
	h := seed[0]
	for i, w := range words {
		h += seed[i+1] * w
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	if got := table.hashSession6(&k6); got != h {
		t.Errorf("hash %x, want %x", got, h)
	}
}
