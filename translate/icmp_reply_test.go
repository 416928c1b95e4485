// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

func v4addr(b []byte) string { return netip.AddrFrom4([4]byte(b)).String() }
func v6addr(b []byte) string { return netip.AddrFrom16([16]byte(b)).String() }

// TestOwed has each error that the translator sends by itself (RFC 7915 sections 4.1,
// 4.4, 5.1, 5.4).
func TestOwed(t *testing.T) {
	used := []byte{17, 0, 0, 1, 0, 0, 0, 0}
	tests := []struct {
		name      string
		in        []byte
		reason    Reason
		typ, code byte
		word      uint32
	}{
		{"TTL used up", v4{ttl: 1, payload: udp(1)}.bytes(), ReasonHopLimit, 11, 0, 0},
		{"TTL of an echo request", v4{ttl: 1, proto: 1, payload: echo(8, 1)}.bytes(), ReasonHopLimit, 11, 0, 0},
		{"loose source route", v4{options: []byte{131, 7, 4, 192, 0, 2, 9, 0}, payload: udp(1)}.bytes(), ReasonSourceRoute, 3, 5, 0},
		{"strict source route behind other options", v4{options: []byte{1, 148, 4, 0, 0, 137, 7, 4, 192, 0, 2, 9}, payload: udp(1)}.bytes(), ReasonSourceRoute, 3, 5, 0},
		{"source route with a pointer before its first address", v4{options: []byte{131, 3, 3, 0}, payload: udp(1)}.bytes(), ReasonSourceRoute, 3, 5, 0},
		{"UDP without checksum", v4{payload: udp(1), keepSum: true}.bytes(), ReasonUDPZeroChecksum, 3, 13, 0},
		{"first fragment without checksum", v4{mf: true, payload: udp(8)}.bytes(), ReasonUDPZeroFragment, 3, 13, 0},
		{"ICMPv6 inside of IPv4", v4{proto: 58, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 3, 13, 0},
		{"hop-by-hop options inside of IPv4", v4{proto: 0xff, payload: data(8)}.withProto(0), ReasonMisplacedProtocol, 3, 13, 0},
		{"routing header inside of IPv4", v4{proto: 43, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 3, 13, 0},
		{"Fragment Header inside of IPv4", v4{proto: 44, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 3, 13, 0},
		{"destination options inside of IPv4", v4{proto: 60, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 3, 13, 0},
		{"a large packet is quoted up to 576 octets", v4{ttl: 1, payload: udp(1000)}.bytes(), ReasonHopLimit, 11, 0, 0},

		{"hop limit used up", v6{hop: 1, payload: udp(1)}.bytes(), ReasonHopLimit, 3, 0, 0},
		{"hop limit of an echo request", v6{hop: 1, proto: 58, payload: echo(128, 1)}.bytes(), ReasonHopLimit, 3, 0, 0},
		{"segments left", v6{first: 43, before: used, payload: udp(1)}.bytes(), ReasonSegmentsLeft, 4, 0, 43},
		{"segments left behind other options", v6{first: 0, before: append([]byte{43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, used...), payload: udp(1)}.bytes(), ReasonSegmentsLeft, 4, 0, 59},
		{"segments left before an echo request", v6{first: 43, before: append([]byte{58}, used[1:]...), proto: 58, payload: echo(128, 0)}.bytes(), ReasonSegmentsLeft, 4, 0, 43},
		{"options inside of a fragment", v6{frag: true, mf: true, proto: 60, payload: []byte{17, 0, 1, 4, 0, 0, 0, 0}}.bytes(), ReasonFragmentExtension, 1, 1, 0},
		{"AH inside of a fragment", v6{frag: true, proto: protoAH, payload: data(24)}.bytes(), ReasonFragmentExtension, 1, 1, 0},
		{"a fragment inside of a fragment", v6{frag: true, offset: 8, proto: 44, payload: data(24)}.bytes(), ReasonFragmentExtension, 1, 1, 0},
		{"ICMP inside of IPv6", v6{proto: 1, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 1, 1, 0},
		{"IGMP inside of IPv6", v6{proto: 2, payload: data(8)}.bytes(), ReasonMisplacedProtocol, 1, 1, 0},
		{"source nobody maps", v6{src: strange, payload: udp(1)}.bytes(), ReasonSourceUnmapped, 1, 1, 0},
		{"a large packet is quoted up to 1280 octets", v6{hop: 1, payload: udp(1400)}.bytes(), ReasonHopLimit, 3, 0, 0},
	}
	tr := translator(t, nil)
	mute := translator(t, func(s *Settings) { s.Own4, s.Own6 = invalid, invalid })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := icmp6Error(tt.typ, tt.code, tt.word, tt.in)
			if tt.in[0]>>4 == 4 {
				want = icmp4Error(tt.typ, tt.code, tt.word, tt.in)
			}
			wantError(t, tr, Path{}, tt.in, tt.reason, want)
			wantDrop(t, mute, Path{}, tt.in, tt.reason) // no own address to send it from
		})
	}
}

// withProto rewrites the protocol, for 0, which the builder takes for unset.
func (p v4) withProto(proto byte) []byte {
	b := p.bytes()
	b[9], b[10], b[11] = proto, 0, 0
	sum := ^sumWords(b[:20])
	b[10], b[11] = byte(sum>>8), byte(sum)
	return b
}

// TestNotOwed: no error about an ICMP error, about fragments other than the first, and
// the general IPv6 error about no ICMPv6 message (RFC 1812 section 4.3.2.7, RFC 4443
// section 2.4 e, RFC 7915 sections 4.4, 5.4).
func TestNotOwed(t *testing.T) {
	tests := []struct {
		name   string
		in     []byte
		reason Reason
	}{
		{"TTL of an error", v4{src: router4, ttl: 1, proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes(), ReasonHopLimit},
		{"TTL of an error from nowhere", v4{src: "127.0.0.1", ttl: 1, proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes(), ReasonHopLimit},
		{"TTL of a later fragment", v4{ttl: 1, offset: 8, payload: data(8)}.bytes(), ReasonHopLimit},
		{"source route of an error", v4{options: []byte{131, 7, 4, 192, 0, 2, 9, 0}, proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes(), ReasonSourceRoute},
		{"TTL of an empty ICMP message", v4{ttl: 1, proto: 1}.bytes(), ReasonHopLimit},
		{"hop limit of an error", v6{hop: 1, proto: 58, payload: icmp(1, 4, 0, back6())}.bytes(), ReasonHopLimit},
		{"segments left before an error", v6{first: 43, before: []byte{58, 0, 0, 1, 0, 0, 0, 0}, proto: 58, payload: icmp(1, 4, 0, back6())}.bytes(), ReasonSegmentsLeft},
		{"echo from a source nobody maps", v6{src: strange, proto: 58, payload: echo(128, 1)}.bytes(), ReasonSourceUnmapped},
		{"fragmented echo", v6{proto: 58, frag: true, mf: true, payload: echo(128, 8)}.bytes(), ReasonFragmentedICMP},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantDrop(t, tr, testPath, tt.in, tt.reason) })
	}
}

// TestReasons: every reason has a name of its own in snake_case.
func TestReasons(t *testing.T) {
	seen := make(map[string]bool)
	for r := range Reason(NumReasons) {
		name := r.String()
		if name == "" || name == "unknown" || seen[name] {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[name] = true
		for _, c := range name {
			if c != '_' && (c < 'a' || c > 'z') {
				t.Errorf("%q is no snake_case", name)
			}
		}
	}
	if Reason(NumReasons).String() != "unknown" || Verdict(9).String() != "unknown" {
		t.Error("numbers out of range have a name")
	}
	if Translated.String() != "translated" || Drop.String() != "drop" || Error.String() != "error" {
		t.Error("a verdict has a wrong name")
	}
	for _, r := range []Reason{ReasonUDPZeroChecksum, ReasonUDPZeroFragment, ReasonFragmentExtension} {
		if !r.Reportable() {
			t.Errorf("%v is to be reported", r)
		}
	}
	if ReasonHopLimit.Reportable() {
		t.Error("hop limit is not to be reported")
	}
}

// TestErrorStaysOutOfTheBatch: the caller limits errors, so none may leave with the
// translated packets; and a batch that holds packets keeps them.
func TestErrorStaysOutOfTheBatch(t *testing.T) {
	var out packet.Batch
	tr := translator(t, nil)
	tr.IPv4(v4{payload: udp(1)}.bytes(), testPath, &out)
	res := tr.IPv4(v4{ttl: 1, payload: udp(1)}.bytes(), testPath, &out)
	if len(out.IP) != 1 || res.Error == nil || !rightSum(out.IP[0]) || !rightSum(res.Error) {
		t.Errorf("%d packets, error %x", len(out.IP), res.Error)
	}
}
