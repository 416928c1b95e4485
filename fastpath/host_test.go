// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestHostLoads(t *testing.T) {
	testutil.NeedRoot(t)
	h, err := LoadHost(HostConfig{Endpoints: 10, Tunnel: 1, MTU: 1280, Send: 30 * time.Second, Receive: 28 * time.Second, Contact: time.Hour})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer h.Close()
	p := netip.MustParseAddr("2001:db8::1").As16()
	if err := h.Put(1, &p, Endpoint{Mapping: netip.MustParseAddrPort("192.0.2.1:1"), Own: netip.MustParseAddrPort("192.0.2.2:2"), Heard: 5}); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := h.Walk(func(c uint32, peer [16]byte, heard, sent time.Duration) { n++; t.Log(c, peer, heard, sent) }); err != nil || n != 1 {
		t.Fatal(err, n)
	}
}
