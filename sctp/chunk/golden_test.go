// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"bytes"
	"errors"
	"hash/crc32"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	address4 = netip.MustParseAddr("192.0.2.1")
	address6 = netip.MustParseAddr("2001:db8::1")
)

const (
	wire4 = "0005 0008 c0000201"
	wire6 = "0006 0014 20010db8 00000000 00000000 00000001"
)

// golden are chunks as the RFCs draw them: what the octets say, and what writes them.
var golden = []struct {
	name, wire string
	value      any
	tshark     string // the type that tshark reads
}{
	{"DATA", "00 0f 0013 00000001 0002 0003 f0000004 616263 00", Data{
		TSN: 1, Stream: 2, Message: 3, Protocol: 0xf0000004, Immediate: true, Unordered: true, First: true, Last: true, User: []byte("abc"),
	}, "0"},
	{"DATA, a fragment between", "00 00 0014 fffffffe 0002 ffff f0000004 61626364", Data{
		TSN: 0xfffffffe, Stream: 2, Message: 0xffff, Protocol: 0xf0000004, User: []byte("abcd"),
	}, "0"},
	{"I-DATA, first", "40 02 0015 00000001 0002 0000 00010003 f0000004 61 000000", interleaved{Data{
		TSN: 1, Stream: 2, Message: 0x10003, Protocol: 0xf0000004, First: true, User: []byte("a"),
	}}, "64"},
	{"I-DATA, last", "40 01 0016 00000002 0002 0000 00010003 00000007 6162 0000", interleaved{Data{
		TSN: 2, Stream: 2, Message: 0x10003, Fragment: 7, Last: true, User: []byte("ab"),
	}}, "64"},
	{"INIT", "01 00 005a 12345678 0001f400 000a ffff 87654321" + wire4 + wire6 +
		"000c 0008 0005 0006  0009 0008 000003e8  c000 0004  8008 0007 c1 80 0f 00  8003 0006 c1 80 0000  8004 0006 0001", setup{Init{
		Tag: 0x12345678, Window: 128000, Out: 10, In: 0xffff, TSN: 0x87654321, Options: Options{
			Addresses: []netip.Addr{address4, address6}, AddressTypes: []uint16{AddressIPv4, AddressIPv6}, Preserve: time.Second,
			ForwardTSN: true, Extensions: []Type{TypeASCONF, TypeASCONFAck, TypeAuth}, Chunks: []Type{TypeASCONF, TypeASCONFAck}, HMACs: []uint16{HMACSHA1},
		},
	}, TypeInit}, "1"},
	{"INIT ACK", "02 00 0030 00000001 00000600 0001 0001 00000002 0007 0007 636f6b 00 c006 0008 00000009 0008 000c 4001 0008 61626364", setup{Init{
		Tag: 1, Window: 1536, Out: 1, In: 1, TSN: 2, Options: Options{
			Cookie: []byte("cok"), HasAdaptation: true, Adaptation: 9, Unrecognized: [][]byte{{0x40, 1, 0, 8, 'a', 'b', 'c', 'd'}},
		},
	}, TypeInitAck}, "2"},
	{"SACK", "03 00 0020 00000010 00010000 0002 0002 0002 0003 0005 0005 0000000f 00000010", sack{
		TSN: 16, Window: 65536, Blocks: []Block{{2, 3}, {5, 5}}, Duplicates: []uint32{15, 16},
	}, "3"},
	{"HEARTBEAT", "04 00 000b 0001 0007 010203 00", heartbeat{1, 2, 3}, "4"},
	{"ABORT", "06 01 000b 000c 0007 627965 00", failure{TypeAbort, Reflected, []Cause{{CauseUserAbort, []byte("bye")}}}, "6"},
	{"ERROR", "09 00 0014 0001 0008 0007 0000 0003 0008 00000100", failure{TypeError, 0, []Cause{
		InvalidStream(7), {CauseStaleCookie, []byte{0, 0, 1, 0}},
	}}, "9"},
	{"SHUTDOWN", "07 00 0008 00000011", shutdown(17), "7"},
	{"SHUTDOWN ACK", "08 00 0004", plain{TypeShutdownAck, 0, ""}, "8"},
	{"COOKIE ECHO", "0a 00 0007 636f6b 00", plain{TypeCookieEcho, 0, "cok"}, "10"},
	{"COOKIE ACK", "0b 00 0004", plain{TypeCookieAck, 0, ""}, "11"},
	{"SHUTDOWN COMPLETE", "0e 01 0004", plain{TypeShutdownComplete, Reflected, ""}, "14"},
	{"AUTH", "0f 00 001c 0001 0001 0000000000000000000000000000000000000000", auth{1, HMACSHA1, SizeSHA1}, "15"},
	{"FORWARD TSN", "c0 00 000c 00000020 0001 0009", forward{32, []Skip{{Stream: 1, Message: 9}}, false}, "192"},
	{"I-FORWARD-TSN", "c2 00 0018 00000020 0001 0000 00000009 0002 0001 0001000a", forward{32, []Skip{
		{Stream: 1, Message: 9}, {Stream: 2, Unordered: true, Message: 0x1000a},
	}, true}, "194"},
	{"ASCONF", "c1 00 003c 00000005" + wire4 + "c001 001c 00000001" + wire6 + "c002 0010 00000002 0005 0008 00000000", asconf{5, address4, []Request{
		{ParamAddIP, 1, address6}, {ParamDeleteIP, 2, netip.IPv4Unspecified()},
	}}, "193"},
	{"ASCONF-ACK", "80 00 002c 00000005 c005 0008 00000001 c003 001c 00000002 00a0 0014 c002 0010 00000002 0005 0008 00000000", asconfAck{5, []Answer{
		{Correlation: 1}, {Correlation: 2, Failed: true, Causes: []byte{0, 0xa0, 0, 20, 0xc0, 2, 0, 16, 0, 0, 0, 2, 0, 5, 0, 8, 0, 0, 0, 0}},
	}}, "128"},
}

// The values of the table that one of ours does not say alone.
type (
	interleaved struct{ Data }
	setup       struct {
		Init
		Type Type
	}
	sack struct {
		TSN, Window uint32
		Blocks      []Block
		Duplicates  []uint32
	}
	heartbeat []byte
	failure   struct {
		Type   Type
		Flags  uint8
		Causes []Cause
	}
	shutdown uint32
	plain    struct {
		Type  Type
		Flags uint8
		Body  string
	}
	auth    struct{ Key, HMAC, Size uint16 }
	forward struct {
		TSN         uint32
		Skips       []Skip
		Interleaved bool
	}
	asconf struct {
		Serial   uint32
		Address  netip.Addr
		Requests []Request
	}
	asconfAck struct {
		Serial  uint32
		Answers []Answer
	}
)

// write writes a value of the table.
func write(b []byte, value any) []byte {
	switch v := value.(type) {
	case Data:
		return v.Append(b, false)
	case interleaved:
		return v.Append(b, true)
	case setup:
		i := v.Init
		i.Unknown = i.Unrecognized // what one end has not known is what the other is told
		return i.Append(b, v.Type)
	case sack:
		return AppendSACK(b, v.TSN, v.Window, v.Blocks, v.Duplicates)
	case heartbeat:
		return AppendHeartbeat(b, v)
	case failure:
		return AppendError(b, v.Type, v.Flags, v.Causes...)
	case shutdown:
		return AppendShutdown(b, uint32(v))
	case plain:
		return Append(b, v.Type, v.Flags, []byte(v.Body))
	case auth:
		b, _ = AppendAuth(b, v.Key, v.HMAC, int(v.Size))
		return b
	case forward:
		return AppendForwardTSN(b, v.TSN, v.Skips, v.Interleaved)
	case asconf:
		a := ASCONF{Serial: v.Serial, Address: v.Address}
		for _, r := range v.Requests {
			a.Requests = AppendRequest(a.Requests, r)
		}
		return a.Append(b)
	case asconfAck:
		a := ASCONFAck{Serial: v.Serial}
		for _, one := range v.Answers {
			a.Answers = AppendAnswer(a.Answers, one)
		}
		return a.Append(b)
	}
	return nil
}

// read reads a chunk into a value of the table.
func read(c Chunk) (any, error) {
	switch c.Type {
	case TypeData:
		return ParseData(c)
	case TypeIData:
		d, err := ParseData(c)
		return interleaved{d}, err
	case TypeInit, TypeInitAck:
		i, err := ParseInit(c.Body)
		return setup{i, c.Type}, err
	case TypeSACK:
		s, err := ParseSACK(c.Body)
		return sack{s.TSN, s.Window, slices.Collect(s.Blocks()), slices.Collect(s.Duplicates())}, err
	case TypeHeartbeat, TypeHeartbeatAck:
		info, err := ParseHeartbeat(c.Body)
		return heartbeat(info), err
	case TypeAbort, TypeError:
		f := failure{Type: c.Type, Flags: c.Flags}
		for list := c.Body; len(list) > 0; {
			one, rest, err := NextCause(list)
			if err != nil {
				return f, err
			}
			f.Causes, list = append(f.Causes, one), rest
		}
		return f, nil
	case TypeShutdown:
		tsn, err := ParseShutdown(c.Body)
		return shutdown(tsn), err
	case TypeAuth:
		a, err := ParseAuth(c.Body)
		return auth{a.Key, a.HMAC, uint16(len(a.Code))}, err
	case TypeForwardTSN, TypeIForwardTSN:
		f, err := ParseForwardTSN(c)
		return forward{f.TSN, slices.Collect(f.Skips()), c.Type == TypeIForwardTSN}, err
	case TypeASCONF:
		return readASCONF(c.Body)
	case TypeASCONFAck:
		return readASCONFAck(c.Body)
	}
	return plain{c.Type, c.Flags, string(c.Body)}, nil
}

func readASCONF(body []byte) (any, error) {
	a, err := ParseASCONF(body)
	v := asconf{Serial: a.Serial, Address: a.Address}
	for list := a.Requests; len(list) > 0 && err == nil; {
		var r Request
		var known bool
		if r, known, _, list, err = NextRequest(list); known && err == nil {
			v.Requests = append(v.Requests, r)
		}
	}
	return v, err
}

func readASCONFAck(body []byte) (any, error) {
	a, err := ParseASCONFAck(body)
	v := asconfAck{Serial: a.Serial}
	for list := a.Answers; len(list) > 0 && err == nil; {
		var one Answer
		var known bool
		if one, known, list, err = NextAnswer(list); known && err == nil {
			v.Answers = append(v.Answers, one)
		}
	}
	return v, err
}

// TestGolden reads and writes each chunk, and has two of it in a packet, the padding of the last missing.
func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			wire := testutil.Unhex(t, g.wire)
			if got := write(nil, g.value); !bytes.Equal(got, pad(slices.Clip(wire), len(wire))) {
				t.Errorf("written is %x, want %x", got, wire)
			}
			packet := write(write(Begin(nil, Header{1, 2, 3}), g.value), g.value)
			Seal(packet)
			h, list, err := Open(packet)
			if err != nil || h != (Header{1, 2, 3}) {
				t.Fatalf("%+v and %v", h, err)
			}
			list = list[:len(list)-(padded(len(wire))-unpadded(wire))]
			for range 2 {
				var c Chunk
				if c, list, err = Next(list); err != nil {
					t.Fatal(err)
				}
				got, err := read(c)
				if diff := cmp.Diff(g.value, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" || err != nil {
					t.Errorf("read is (-want +got):\n%s\n%v", diff, err)
				}
			}
			if len(list) > 0 {
				t.Errorf("%x is left", list)
			}
		})
	}
}

// TestPad writes a PAD of each size (RFC 4820 section 3).
func TestPad(t *testing.T) {
	for size := 4; size <= 1456; size += 4 {
		b := AppendPad(nil, size)
		c, rest, err := Next(b)
		if len(b) != size || err != nil || len(rest) != 0 || c.Type != TypePad || len(c.Body) != size-4 || !c.Type.Skipped() || c.Type.Reported() {
			t.Fatalf("%d octets: %x, %v", size, b[:4], err)
		}
	}
	if got, want := AppendPad(nil, 8), testutil.Unhex(t, "84 00 0008 00000000"); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// unpadded is the length of a chunk without its padding.
func unpadded(wire []byte) int { return int(wire[2])<<8 | int(wire[3]) }

// TestChecksum compares with the check value of CRC32c, and with a sum over a copy.
func TestChecksum(t *testing.T) {
	if got := crc32.Checksum([]byte("123456789"), crc32.MakeTable(crc32.Castagnoli)); got != 0xe3069283 {
		t.Errorf("the check value is %x", got)
	}
	packet := AppendShutdown(Begin(nil, Header{5, 6, 7}), 8)
	sum := crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli))
	Seal(packet)
	Seal(packet)
	if want := []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)}; !bytes.Equal(packet[8:12], want) {
		t.Errorf("the checksum is %x, want %x", packet[8:12], want)
	}
	for i := range packet {
		packet[i] ^= 1
		if _, _, err := Open(packet); !errors.Is(err, ErrChecksum) {
			t.Errorf("octet %d may be wrong: %v", i, err)
		}
		packet[i] ^= 1
	}
	if _, _, err := Open(packet[:11]); !errors.Is(err, ErrShort) {
		t.Errorf("a short packet: %v", err)
	}
}

// TestLengths refuses lengths that are less than what they count, or more than what there is.
func TestLengths(t *testing.T) {
	for _, g := range golden {
		wire := testutil.Unhex(t, g.wire)
		for _, length := range []int{0, 3, len(wire) + 1, 0xffff} {
			bad := slices.Clone(wire)
			bad[2], bad[3] = byte(length>>8), byte(length)
			if c, _, err := Next(bad); !errors.Is(err, ErrLength) {
				t.Errorf("%s of length %d: %+v, %v", g.name, length, c, err)
			}
		}
	}
	for _, wire := range []string{
		"00 03 000f 00000001 0002 0003 000000", "40 03 0013 00000001 0002 0003 00000004 000000", "01 00 0013 00000001 00000600 0001 0001 000000",
		"01 00 0018 00000001 00000600 0001 0001 00000002 0005 0003", "01 00 0018 00000001 00000600 0001 0001 00000002 0005 0009",
		"01 00 0018 00000001 00000600 0001 0001 00000002 0005 0004", "01 00 0019 00000001 00000600 0001 0001 00000002 000c 0005 05",
		"03 00 000f 00000010 00010000 000000", "03 00 0010 00000010 00010000 0001 0000", "04 00 0008 0002 0004", "04 00 0004", "07 00 0007 000000",
		"0f 00 0007 000100", "c0 00 0007 000000", "c0 00 000a 00000001 0001", "c2 00 000c 00000001 0001 0000", "c1 00 0008 00000005",
		"c1 00 000c 00000005 0007 0004", "c1 00 0014 00000005" + wire4 + "c001 0004", "c1 00 0018 00000005" + wire4 + "c001 0008 00000001",
		"80 00 0007 000000", "80 00 000c 00000005 c005 0004",
	} {
		c, _, err := Next(testutil.Unhex(t, wire))
		if err != nil {
			t.Fatalf("%s: %v", wire, err)
		}
		if got, err := read(c); !errors.Is(err, ErrLength) {
			t.Errorf("%s is read as %+v, %v", wire, got, err)
		}
	}
}

// TestUnknown follows the highest bits of types that are not known: the rest is read or not, the sender is told
// or not (RFC 9260 sections 3.2 and 3.2.1).
func TestUnknown(t *testing.T) {
	head := "00000001 00000600 0001 0001 00000002"
	for _, tt := range []struct {
		kind           string
		reported, read bool
	}{{"3fff", false, false}, {"7fff", true, false}, {"bfff", false, true}, {"ffff", true, true}} {
		i, err := ParseInit(testutil.Unhex(t, head+tt.kind+"0006 abcd 0000"+wire4))
		if err != nil || len(i.Addresses) == 1 != tt.read || len(i.Unknown) == 1 != tt.reported {
			t.Errorf("parameter %s: %+v, %v", tt.kind, i, err)
		}
		if tt.reported && !bytes.Equal(i.Unknown[0], testutil.Unhex(t, tt.kind+"0006 abcd")) {
			t.Errorf("parameter %s is told as %x", tt.kind, i.Unknown[0])
		}
		kind := Type(testutil.Unhex(t, tt.kind)[0])
		if kind.Skipped() != tt.read || kind.Reported() != tt.reported {
			t.Errorf("chunk %v: %v, %v", kind, kind.Skipped(), kind.Reported())
		}
	}
}
