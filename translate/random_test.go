// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// randomMessage returns a transport message that both families know.
func randomMessage(rng *rand.Rand) (proto byte, m []byte) {
	n := rng.IntN(1200)
	switch rng.IntN(6) {
	case 0:
		proto, m = packet.ProtoTCP, tcp(n)
	case 1:
		proto, m = packet.ProtoUDP, udp(n)
	case 2:
		proto, m = protoICMP, echo(byte(rng.IntN(2)*8), n)
	case 3:
		proto, m = protoDCCP, data(12+n)
	case 4:
		proto, m = protoUDPLite, udp(n)
	default:
		proto, m = 132, data(n)
	}
	for i := 8; i < len(m); i++ {
		m[i] = byte(rng.Uint32())
	}
	return proto, m
}

// TestRoundTrips takes random packets to IPv6 and back: every sum that comes out is
// right, and but for the hops and the identification they come back as they went.
func TestRoundTrips(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	for _, p := range []string{"2001:db8::/32", "2001:db8:100::/40", "2001:db8:122::/48", "2001:db8:122:300::/56", "2001:db8:122:344::/64", testNSP} {
		tr := translator(t, func(s *Settings) { s.Prefixes = []Prefix{prefix(t, p)} })
		for range 300 {
			proto, m := randomMessage(rng)
			b := v4{
				src: v4addr([]byte{203, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}),
				dst: v4addr([]byte{8, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}),
				tos: byte(rng.Uint32()), ttl: byte(3 + rng.IntN(250)), id: 0x1234, proto: proto, payload: m,
			}.bytes()
			_, six := run(tr, b, testPath)
			if len(six) != 1 || !rightSum(six[0]) {
				t.Fatalf("%x became %x", b, six)
			}
			_, four := run(tr, six[0], testPath)
			if len(four) != 1 || !rightSum(four[0]) {
				t.Fatalf("%x became %x", six[0], four)
			}
			got := four[0]
			if got[8] != b[8]-2 {
				t.Fatalf("TTL %d became %d", b[8], got[8])
			}
			copy(got[8:12], b[8:12])
			if !bytes.Equal(got, b) {
				t.Fatalf("%x came back as %x", b, got)
			}
		}
	}
}

// TestRandomErrors wraps random packets into ICMP errors of either family: what comes
// out has right sums, outside and inside.
func TestRandomErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	tr := translator(t, nil)
	for range 2000 {
		proto, m := randomMessage(rng)
		m = m[:min(len(m), 400)]
		proto6 := protoTo6(proto)
		m6 := slices.Clone(m)
		if proto == protoICMP {
			m6[0] = byte(128 + rng.IntN(2))
		}
		if proto == packet.ProtoUDP || proto == protoUDPLite {
			m[4], m[5] = byte(len(m)>>8), byte(len(m))
			copy(m6, m)
		}
		for _, in := range [][]byte{
			v4{src: router4, proto: 1, payload: icmp(11, byte(rng.IntN(2)), 0, v4{src: node4, dst: host4, proto: proto, payload: m}.bytes())}.bytes(),
			v6{src: node6, dst: host6, proto: 58, payload: icmp(3, byte(rng.IntN(2)), 0, v6{proto: proto6, payload: m6}.bytes())}.bytes(),
		} {
			res, out := run(tr, in, testPath)
			if len(out) != 1 || !rightSum(out[0]) {
				t.Fatalf("%v %v: %x became %x", res.Verdict, res.Reason, in, out)
			}
			inner := out[0][28:]
			if out[0][0]>>4 == 6 {
				inner = out[0][48:]
			}
			if !rightSum(inner) {
				t.Fatalf("%x became %x, whose quoted packet has a wrong sum", in, out[0])
			}
		}
	}
}

// TestNoAllocation: nothing is allocated for a packet once the batch has grown.
func TestNoAllocation(t *testing.T) {
	tr := hairpinner(t, HairpinIntrinsic)
	plain := translator(t, func(s *Settings) { s.InterfaceObject = true })
	binding := &Binding{Outer: ends(publicIP, 40000, host4, 53)}
	var out packet.Batch
	tests := []struct {
		name string
		call func(in []byte) Result
		in   []byte
	}{
		{"UDP to IPv6", func(in []byte) Result { return plain.IPv4(in, testPath, &out) }, v4{payload: udp(1000)}.bytes()},
		{"UDP to IPv4", func(in []byte) Result { return plain.IPv6(in, testPath, &out) }, v6{payload: udp(1000)}.bytes()},
		{"cut to IPv6", func(in []byte) Result { return plain.IPv4(in, testPath, &out) }, v4{payload: udp(2000)}.bytes()},
		{"error to IPv6", func(in []byte) Result { return plain.IPv4(in, testPath, &out) }, v4{src: router4, proto: 1, payload: icmp(11, 0, 0, quoted4())}.bytes()},
		{"error to IPv4 with an object", func(in []byte) Result { return plain.IPv6(in, testPath, &out) },
			v6{src: strange, dst: host6, proto: 58, payload: icmp(3, 0, 0, back6())}.bytes()},
		{"error owed to IPv4", func(in []byte) Result { return plain.IPv4(in, testPath, &out) }, v4{ttl: 1, payload: udp(1000)}.bytes()},
		{"error owed to IPv6", func(in []byte) Result { return plain.IPv6(in, testPath, &out) }, v6{hop: 1, payload: udp(1000)}.bytes()},
		{"hairpin by mappings", func(in []byte) Result { return tr.IPv6(in, testPath, &out) }, ways[0].initial.bytes()},
		{"hairpinned error", func(in []byte) Result { return tr.IPv6(in, testPath, &out) }, ways[2].initial.bytes()},
		{"bound", func(in []byte) Result { return plain.IPv6Bound(in, binding, testPath, &out) }, v6{src: client, dst: server6, payload: udp(1000)}.bytes()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := slices.Clone(tt.in)
			n := testing.AllocsPerRun(100, func() {
				out.Reset()
				if res := tt.call(in); res.Verdict == Drop {
					t.Fatalf("dropped: %v", res.Reason)
				}
			})
			if n != 0 {
				t.Errorf("%v allocations per packet", n)
			}
			if !slices.Equal(in, tt.in) {
				t.Error("the caller's packet was changed")
			}
		})
	}
}

func BenchmarkUDPToIPv6(b *testing.B) {
	benchmark(b, v4{payload: udp(64)}.bytes())
}

func BenchmarkUDPToIPv4(b *testing.B) {
	benchmark(b, v6{payload: udp(64)}.bytes())
}

func benchmark(b *testing.B, in []byte) {
	tr := translator(b, nil)
	var out packet.Batch
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		if in[0]>>4 == 4 {
			tr.IPv4(in, testPath, &out)
		} else {
			tr.IPv6(in, testPath, &out)
		}
	}
}
