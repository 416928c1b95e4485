// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// One cold packet, byte for byte: the bubble to the server, the client's answer,
// the packet to the client, and its answer to the host.
func TestGoldenExchange(t *testing.T) {
	const (
		hostHex   = "20010db8 00000000 00000000 00000001"
		clientHex = "20010000 cb007101 0000 63bf 39cc9bf8" // ~40000 = 63bf, ~198.51.100.7 = 39cc9bf8
	)
	b := newBench(t)
	mac := hmac.New(sha256.New, b.secret())
	mac.Write(testutil.Unhex(t, clientHex))
	mac.Write(make([]byte, 8)) // slot 0
	source := "fe80000000000000" + hex.EncodeToString(mac.Sum(nil)[:8])

	b.ip(testutil.Unhex(t, "60000000 0002 11 40"+hostHex+clientHex+"6869"))
	sent := b.out.UDP[0]
	if diff := cmp.Diff(testutil.Unhex(t, "60000000 0000 3b ff"+source+clientHex), sent.Payload); diff != "" {
		t.Errorf("bubble (-want +got):\n%s", diff)
	}

	b.udp(mapped, testutil.Unhex(t, "60000000 0000 3b ff"+clientHex+source))
	if diff := cmp.Diff(testutil.Unhex(t, "60000000 0002 11 3f"+hostHex+clientHex+"6869"), b.out.UDP[0].Payload); diff != "" {
		t.Errorf("packet to the client (-want +got):\n%s", diff)
	}

	b.udp(mapped, testutil.Unhex(t, "6a512345 0002 11 02"+clientHex+hostHex+"6869"))
	if diff := cmp.Diff(testutil.Unhex(t, "6a512345 0002 11 01"+clientHex+hostHex+"6869"), b.out.IP[0]); diff != "" {
		t.Errorf("packet to the host (-want +got):\n%s", diff)
	}

	b.ip(testutil.Unhex(t, "60000000 0002 11 01"+hostHex+clientHex+"6869"))
	want := testutil.Unhex(t, "60000000 0032 3a 40 20010db8 00000000 00000000 0000beef"+hostHex+
		"03 00 0000 00000000"+"60000000 0002 11 01"+hostHex+clientHex+"6869")
	got := b.out.IP[0]
	binary.BigEndian.PutUint16(got[42:], 0) // the checksum is the codec's affair
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("time exceeded (-want +got):\n%s", diff)
	}
}

// secret is the secret that New took from the test's random source: the first 32
// bytes.
func (b *bench) secret() []byte {
	s := make([]byte, sha256.Size)
	if _, err := testRand().Read(s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// Inputs are reused by the caller: what waits must be a copy.
func TestQueueCopies(t *testing.T) {
	b := newBench(t)
	p := data(host, client, "before")
	b.out.Reset()
	b.r.HandleIP(p, b.now, &b.out)
	copy(p[40:], "after!")
	b.want("the answer", b.udp(mapped, bubble(client, host)), "udp 198.51.100.7:40000 before hop 63")
}

func TestNoAllocation(t *testing.T) {
	b := newBench(t)
	b.trust()
	toClient, toHost := data(host, client, "payload"), data(client, host, "payload")
	echo := bubble(client, b.bubbleSource(client))
	for _, tt := range []struct {
		name string
		f    func()
	}{
		{"to a client", func() { toClient[7] = 64; b.r.HandleIP(toClient, b.now, &b.out) }},
		{"from a client", func() { toHost[7] = 64; b.r.HandleUDP(mapped, toHost, b.now, &b.out) }},
		{"a bubble", func() { b.r.HandleUDP(mapped, echo, b.now, &b.out) }},
		{"a drop", func() { b.r.HandleUDP(foreign, toHost, b.now, &b.out) }},
		{"the key of a bubble", func() { b.bubbleSource(client) }},
		{"an ICMPv6 error", func() { b.now = b.now.Add(time.Second); toClient[7] = 1; b.r.HandleIP(toClient, b.now, &b.out) }},
	} {
		f := func() { b.out.Reset(); tt.f() }
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}
