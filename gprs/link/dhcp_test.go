// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// datagram makes one of UDP to the server, with a right checksum.
func datagram(src, dst netip.Addr, port uint16, payload []byte) packet.IPv6 {
	n := packet.UDPHeaderLen + len(payload)
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 1, n, src, dst)
	b = append(b, ClientPort>>8, ClientPort&0xff, byte(port>>8), byte(port), byte(n>>8), byte(n), 0, 0)
	p := packet.IPv6(append(b, payload...))
	binary.BigEndian.PutUint16(p[46:], packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, p.Payload()))
	return p
}

// question6 makes a client's message.
func question6(dst netip.Addr, kind byte, options []byte) packet.IPv6 {
	return datagram(terminal.Address(), dst, ServerPort, append([]byte{kind, 0xab, 0xcd, 0xef}, options...))
}

// Options of clients, in hexadecimal.
const (
	clientID  = "0001 000a 00030001 020000000001"
	serverID  = "0002 0012 0004 01000000000000000000000000000010"
	otherID   = "0002 0012 0004 01000000000000000000000000000011"
	elapsed   = "0008 0002 0000"
	wantsAll  = "0006 0008 0017 0018 0020 0053"
	wantsDNS  = "0006 0002 0017"
	addresses = "0003 000c 00000001 00000000 00000000"
	temporary = "0004 0004 00000001"
	prefixes  = "0019 000c 00000001 00000000 00000000"
)

func goldenOptions(t testing.TB) []byte { return testutil.Unhex(t, clientID+wantsAll+elapsed) }

// Options of the answers.
const (
	toldDNS     = "0017 0020 20010db8000000000000000000000053 20010db8000100000000000000000053"
	toldDomains = "0018 001a 07 6578616d706c65 03 636f6d 00 03 6c6162 07 6578616d706c65 00"
	toldRefresh = "0020 0004 00015180"
	toldRepeat  = "0053 0004 00000e10"
)

// TestDHCP shows answers by octets, and why there is none (RFC 8415 sections 16 and 18).
func TestDHCP(t *testing.T) {
	for _, row := range []struct {
		name    string
		kind    byte
		options string
		want    Verdict
		answer  string
	}{
		{"all there is", 11, clientID + wantsAll + elapsed, DHCPReplied, "07 abcdef" + serverID + clientID + toldDNS + toldDomains + toldRefresh + toldRepeat},
		{"without an identifier", 11, wantsDNS, DHCPReplied, "07 abcdef" + serverID + toldDNS},
		{"what was asked for alone", 11, clientID + wantsDNS, DHCPReplied, "07 abcdef" + serverID + clientID + toldDNS},
		{"nothing asked for", 11, clientID, DHCPReplied, "07 abcdef" + serverID + clientID},
		{"options nobody knows", 11, "ffff 0003 616263" + wantsDNS, DHCPReplied, "07 abcdef" + serverID + toldDNS},
		{"what the server does not have", 11, "0006 0004 001f 0017", DHCPReplied, "07 abcdef" + serverID + toldDNS},
		{"the same twice", 11, clientID + clientID + wantsDNS + wantsDNS, DHCPReplied, "07 abcdef" + serverID + clientID + toldDNS},
		{"for this server", 11, serverID + wantsDNS, DHCPReplied, "07 abcdef" + serverID + toldDNS},
		{"for another server", 11, otherID + wantsDNS, DHCPOtherServer, ""},
		{"with an IA_NA", 11, addresses + wantsDNS, DHCPMalformed, ""},
		{"with an IA_TA", 11, temporary, DHCPMalformed, ""},
		{"with an IA_PD", 11, prefixes, DHCPMalformed, ""},
		{"solicit", 1, clientID + addresses, DHCPStateful, ""},
		{"request", 3, clientID + serverID + addresses, DHCPStateful, ""},
		{"confirm", 4, clientID + addresses, DHCPStateful, ""},
		{"renew", 5, clientID + serverID + prefixes, DHCPStateful, ""},
		{"rebind", 6, clientID + prefixes, DHCPStateful, ""},
		{"release", 8, clientID + serverID, DHCPStateful, ""},
		{"decline", 9, clientID + serverID, DHCPStateful, ""},
		{"advertise", 2, clientID + serverID, NotServed, ""},
		{"reply", 7, clientID + serverID, NotServed, ""},
		{"reconfigure", 10, clientID + serverID, NotServed, ""},
		{"relayed", 12, clientID, NotServed, ""},
		{"relayed back", 13, clientID, NotServed, ""},
		{"a message nobody knows", 99, clientID, NotServed, ""},
		{"option header cut short", 11, "0006 00", DHCPMalformed, ""},
		{"option cut short", 11, "0006 0004 0017", DHCPMalformed, ""},
		{"half an option code", 11, "0006 0003 001700", DHCPMalformed, ""},
		{"empty identifier", 11, "0001 0000", DHCPMalformed, ""},
		{"identifier of a type alone", 11, "0001 0002 0003", DHCPMalformed, ""},
		{"identifier of 129 octets and a type", 11, "0001 0083" + strings.Repeat("00", 131), DHCPMalformed, ""},
		{"longest identifier", 11, "0001 0082" + strings.Repeat("00", 130), DHCPReplied, "07 abcdef" + serverID + "0001 0082" + strings.Repeat("00", 130)},
	} {
		var s State
		b, v := router(t).Answer(nil, terminal, &s, question6(DHCPServers, row.kind, testutil.Unhex(t, row.options)), start)
		if v != row.want || (len(b) > 0) != (row.answer != "") {
			t.Errorf("%s: %v, want %v; %x", row.name, v, row.want, b)
			continue
		}
		if want := testutil.Unhex(t, row.answer); len(b) > 0 && string(dhcpOf(t, b)) != string(want) {
			t.Errorf("%s: %x, want %x", row.name, dhcpOf(t, b), want)
		}
	}
}

// dhcpOf returns the message of an answer, whose headers it checks.
func dhcpOf(t *testing.T, b []byte) []byte {
	t.Helper()
	p, rest, ok := packet.ParseIPv6(b)
	if !ok || len(rest) > 0 || p.Src() != RouterAddress || p.Dst() != terminal.Address() || p.NextHeader() != packet.ProtoUDP || len(p) > packet.MinMTU {
		t.Fatalf("header of %x", b)
	}
	m := p.Payload()
	if string(m[:4]) != "\x02\x23\x02\x22" || int(binary.BigEndian.Uint16(m[4:])) != len(m) || packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoUDP, m) != 0 {
		t.Fatalf("UDP header of %x", b)
	}
	return m[8:]
}

// TestDHCPByUnicast is told to multicast, and nothing else (RFC 8415 section 18.4).
func TestDHCPByUnicast(t *testing.T) {
	const status = "000d 0002 0005"
	for kind, want := range map[byte]string{11: "07", 3: "07", 1: "02"} {
		var s State
		b, v := router(t).Answer(nil, terminal, &s, question6(RouterAddress, kind, goldenOptions(t)), start)
		if v != DHCPUnicast || hex.EncodeToString(dhcpOf(t, b)) != hex.EncodeToString(testutil.Unhex(t, want+"abcdef"+serverID+clientID+status)) {
			t.Errorf("%d: %v, %x", kind, v, b)
		}
	}
}

// TestDHCPDatagrams that are none for the server.
func TestDHCPDatagrams(t *testing.T) {
	own := terminal.Address()
	m := append([]byte{11, 0xab, 0xcd, 0xef}, goldenOptions(t)...)
	changed := func(at int, octet byte) packet.IPv6 {
		p := datagram(own, DHCPServers, ServerPort, m)
		p[at] = octet
		return p
	}
	long := datagram(own, DHCPServers, ServerPort, m)
	long[45]++ // the length, in the pseudo-header alike: the sum takes it twice
	binary.BigEndian.PutUint16(long[46:], 0)
	binary.BigEndian.PutUint16(long[46:], packet.Checksum(long.SrcBytes(), long.DstBytes(), packet.ProtoUDP, long.Payload()))
	for _, row := range []struct {
		name string
		p    packet.IPv6
		want Verdict
	}{
		{"from an address of the prefix", datagram(global, DHCPServers, ServerPort, m), DHCPReplied},
		{"from nobody", datagram(nobody, DHCPServers, ServerPort, m), NotServed},
		{"from a stranger", datagram(stranger, DHCPServers, ServerPort, m), ForeignSource},
		{"to all nodes", datagram(own, packet.AllNodes, ServerPort, m), NotServed},
		{"to servers of the site", datagram(own, netip.MustParseAddr("ff05::1:3"), ServerPort, m), NotServed},
		{"to another port", datagram(own, DHCPServers, 53, m), NotServed},
		{"transaction cut short", datagram(own, DHCPServers, ServerPort, m[:3]), DHCPMalformed},
		{"empty", datagram(own, DHCPServers, ServerPort, nil), DHCPMalformed},
		{"damaged", changed(60, 0xff), BadChecksum},
		{"length of UDP beyond the packet", long, Malformed},
		{"header cut short", packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 0, own, DHCPServers), Malformed},
	} {
		var s State
		if _, v := router(t).Answer(nil, terminal, &s, row.p, start); v != row.want {
			t.Errorf("%s: %v, want %v", row.name, v, row.want)
		}
	}
	s := settings()
	s.DHCP = false
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	var state State
	if _, v := r.Answer(nil, terminal, &state, datagram(own, DHCPServers, ServerPort, m), start); v != NotServed {
		t.Errorf("without DHCP: %v", v)
	}
}

// TestDHCPWithoutNameServers does not tell of an empty list.
func TestDHCPWithoutNameServers(t *testing.T) {
	r, err := New(Settings{MTU: 1400, DHCP: true})
	if err != nil {
		t.Fatal(err)
	}
	var s State
	b, _ := r.Answer(nil, terminal, &s, question6(DHCPServers, 11, testutil.Unhex(t, wantsAll)), start)
	if got, want := dhcpOf(t, b)[26:], testutil.Unhex(t, toldRefresh+toldRepeat); string(got) != string(want) {
		t.Errorf("%x, want %x", got, want)
	}
}
