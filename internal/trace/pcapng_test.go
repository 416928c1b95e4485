// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// goldenFile is a file with one packet; tshark reads it so: interface e0, comment
// "fast: drop no", verdict 1 of XDP, 64 bytes of which 5 are there.
const goldenFile = "" +
	// Section: byte order, version 1.0, no length, application.
	"0a0d0d0a" + "30000000" + "4d3c2b1a" + "01000000" + "ffffffffffffffff" +
	"04000900" + "697374686d75732031000000" + "00000000" + "30000000" +
	// Interface: Ethernet, snap length, name, description, nanoseconds.
	"01000000" + "48000000" + "01000000" + "00010000" + "02000200" + "65300000" +
	"03001900" + "697374686d757320722c206661737420706174682c20786470000000" +
	"09000100" + "09000000" + "00000000" + "48000000" +
	// Packet: interface, time, lengths, data, comment, verdict.
	"06000000" + "50000000" + "00000000" + "30e88618" + "004a4ccf" + "05000000" + "40000000" +
	"0102030405000000" + "01000d00" + "666173743a2064726f70206e6f000000" +
	"07000900" + "020100000000000000000000" + "00000000" + "50000000"

func golden(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, "isthmus 1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sample{
		Time: noon, Instance: "r", Path: Fast, Hook: "xdp", Device: "e0", Verdict: Drop, Reason: "no",
		Link: Ethernet, Length: 64, Data: []byte{1, 2, 3, 4, 5},
	}
	if err := w.Write(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGoldenFile(t *testing.T) {
	if got := hex.EncodeToString(golden(t)); got != goldenFile {
		t.Errorf("file\n got %s\nwant %s", got, goldenFile)
	}
}

// TestInterfaces has one interface block for each place, however many packets.
func TestInterfaces(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, device := range []string{"eth0", "eth1"} {
			s := sample(IP, inner6())
			s.Device = device
			if err := w.Write(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	kinds := map[byte]int{}
	for rest := b.Bytes(); len(rest) > 0; {
		n := int(rest[4]) | int(rest[5])<<8
		if n%4 != 0 || n > len(rest) || !bytes.Equal(rest[n-4:n], rest[4:8]) {
			t.Fatalf("a block's two lengths differ or do not fit: %x", rest)
		}
		kinds[rest[0]]++
		rest = rest[n:]
	}
	if kinds[blockInterface] != 2 || kinds[blockPacket] != 6 {
		t.Errorf("%d interfaces and %d packets, want 2 and 6", kinds[blockInterface], kinds[blockPacket])
	}
}
