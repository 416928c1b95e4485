// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestNothingAllocates holds both planes to it: user packets, messages, refusals.
func TestNothingAllocates(t *testing.T) {
	buffer := make([]byte, 0, 2048)
	check := func(name string, f func()) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for _, s := range userSamples() {
		wire, packet := s.octets(t), testutil.Unhex(t, ipv4Packet)
		check(s.name, func() {
			h, err := Decapsulate(wire)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := h.Extensions.Uncomprehended(); ok {
				t.Fatal("not understood")
			}
			if _, err := Encapsulate(buffer, &s.header, packet); err != nil {
				t.Fatal(err)
			}
		})
	}
	var c Codec
	bad := testutil.Unhex(t, "32 01 0005 00000000 0001 00 00")
	create := createSamples()[1]
	wire := create.octets(t)
	var m CreateRequest
	var echo EchoRequest
	check("create request", func() {
		h, err := ParseHeader(wire)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Parse(&h, &m); err != nil {
			t.Fatal(err)
		}
		if _, err = c.Append(buffer, h, &m); err != nil {
			t.Fatal(err)
		}
		if _, err = ParseHeader(bad); err == nil {
			t.Fatal("not refused")
		}
		if _, err = c.Parse(&h, &echo); err == nil {
			t.Fatal("not refused")
		}
	})
}

func BenchmarkEncapsulate(b *testing.B) {
	packet, buffer := make([]byte, 1280), make([]byte, 0, 2048)
	h := Header{Version: V1, TEID: 0x31323334}
	b.SetBytes(int64(len(packet)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encapsulate(buffer, &h, packet); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncapsulateInPlace writes the header into the room before the packet.
func BenchmarkEncapsulateInPlace(b *testing.B) {
	const room = 64
	buffer := make([]byte, room+1280)
	h := Header{Version: V1, Type: TypeGPDU, TEID: 0x31323334}
	b.SetBytes(1280)
	b.ReportAllocs()
	for b.Loop() {
		from := room - h.Len()
		if _, err := h.AppendTo(buffer[from:from], 1280); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecapsulate(b *testing.B) {
	datagram, err := Encapsulate(nil, &Header{Version: V1, TEID: 0x31323334, HasSequence: true}, make([]byte, 1280))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(1280)
	b.ReportAllocs()
	for b.Loop() {
		if h, err := Decapsulate(datagram); err != nil || len(h.Payload) != 1280 {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateRequest(b *testing.B) {
	s := createSamples()[1]
	wire := s.octets(b)
	var c Codec
	var m CreateRequest
	b.ReportAllocs()
	for b.Loop() {
		h, err := ParseHeader(wire)
		if err != nil {
			b.Fatal(err)
		}
		if _, err = c.Parse(&h, &m); err != nil {
			b.Fatal(err)
		}
	}
}
