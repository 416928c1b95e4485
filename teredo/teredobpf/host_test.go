// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// testHostConfig has limits of which a test that takes a minute is not near.
func testHostConfig(tunnel int) HostConfig {
	return HostConfig{
		Endpoints: 1000, Tunnel: tunnel, MTU: 1280,
		Send: 30 * time.Minute, Receive: 28 * time.Minute, Contact: time.Hour,
	}
}

func loadTestHost(t *testing.T, cfg HostConfig) *Host {
	t.Helper()
	h, err := LoadHost(cfg)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// An endpoint of ours is what the kernel has of it.
func TestHostSizes(t *testing.T) {
	if n := unsafe.Sizeof(hostEndpoint{}); n != 40 {
		t.Errorf("an endpoint takes %d bytes", n)
	}
	if n := unsafe.Sizeof(hostEndpointKey{}); n != 24 {
		t.Errorf("its key takes %d bytes", n)
	}
}

// Endpoints of two clients are apart, and more than one batch of them is read.
func TestHostTables(t *testing.T) {
	testutil.NeedRoot(t)
	h := loadTestHost(t, testHostConfig(1))
	key := func(i int) [16]byte { return [16]byte{0: 0x20, 1: 1, 14: byte(i >> 8), 15: byte(i)} }
	at := netip.MustParseAddrPort("192.0.2.1:9")
	const n = walkBatch + 88
	for i := range n {
		k := key(i)
		if err := h.Put(uint32(1+i%2), &k, Endpoint{Mapping: at, Own: at, Device: 1, Heard: time.Duration(i), Sent: -time.Duration(i)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint32]int{}
	if err := h.Walk(func(client uint32, peer [16]byte, heard, sent time.Duration) {
		seen[client]++
		if i := int(heard); peer != key(i) || sent != -heard {
			t.Errorf("peer %x of %v and %v", peer, heard, sent)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32]int{1: n / 2, 2: n / 2}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 { // the second time it is gone already
		k := key(0)
		if err := h.Delete(1, &k); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		// More than there are: those of the other client stay.
		if err := h.DeleteAll(1, func(yield func([16]byte) bool) {
			for i := 0; i < n && yield(key(i)); i++ {
			}
		}); err != nil {
			t.Error(err)
		}
	}
	seen = map[uint32]int{}
	if err := h.Walk(func(client uint32, _ [16]byte, _, _ time.Duration) { seen[client]++ }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32]int{2: n / 2}, seen); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	own := netip.MustParseAddr("2001::1")
	if heard, sent := h.Traffic(own); heard != 0 || sent != 0 {
		t.Errorf("traffic of nobody: %v, %v", heard, sent)
	}
	if err := h.SetClient(own, HostClient{Number: 1}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := h.RemoveClient(own); err != nil {
			t.Error(err)
		}
	}
}

// More endpoints than there is room for are refused, and the rest stays.
func TestHostTablesAreBounded(t *testing.T) {
	testutil.NeedRoot(t)
	cfg := testHostConfig(1)
	cfg.Endpoints = 4
	h := loadTestHost(t, cfg)
	at := netip.MustParseAddrPort("192.0.2.1:9")
	refused := 0
	for i := range 8 {
		k := [16]byte{15: byte(i)}
		if h.Put(1, &k, Endpoint{Mapping: at, Own: at}) != nil {
			refused++
		}
	}
	if refused != 4 {
		t.Errorf("%d of 8 refused, want 4", refused)
	}
}

// The object has nothing of the tables of relays once it is loaded.
func TestHostDropsUnused(t *testing.T) {
	testutil.NeedRoot(t)
	spec, err := loadHost()
	if err != nil {
		t.Fatal(err)
	}
	h := loadTestHost(t, testHostConfig(1))
	var names []string
	for name := range spec.Maps {
		if h.object.Map(name) != nil && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	if len(names) != 5 {
		t.Errorf("maps %q, want clients, endpoints, identifications, counters and samples", names)
	}
}
