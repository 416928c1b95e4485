// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPcapGolden(t *testing.T) {
	var file bytes.Buffer
	file.Write(appendPcapHeader(nil, linkTypeRaw))
	err := writePcapPacket(&file, nil, time.Unix(0x01020304, 5), []byte{0x60, 0, 0}, 40)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{
		0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0,
		4, 3, 2, 1, 5, 0, 0, 0, 3, 0, 0, 0, 40, 0, 0, 0, 0x60, 0, 0,
	}
	if diff := cmp.Diff(want, file.Bytes()); diff != "" {
		t.Errorf("file differs (-want +got):\n%s", diff)
	}
}

func TestCaptureHoldsBothDirections(t *testing.T) {
	a, b := newPair(t)
	path := filepath.Join(t.TempDir(), "deep", "a.pcap")
	c, err := a.Lab().Capture(a, "eth0", path)
	if err != nil {
		t.Fatal(err)
	}
	watched := 0
	w, err := a.Lab().Watch(a, "eth0", func(time.Time, []byte) { watched++ })
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Ping(t.Context(), Ping{To: netip.MustParseAddr("2001:db8::1"), Count: 10, Interval: time.Millisecond, Timeout: mustArrive})
	if err != nil || r.Lost() != 0 {
		t.Fatalf("ping: %v, %d lost", err, r.Lost())
	}
	if err := errors.Join(c.Stop(), w.Stop()); err != nil {
		t.Fatal(err)
	}
	if watched < 20 || watched != w.Packets() {
		t.Errorf("%d packets were seen as they passed, and %d counted", watched, w.Packets())
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	echoes := map[byte]int{}
	for b := file[pcapFileHeader:]; len(b) > 0; {
		size := binary.LittleEndian.Uint32(b[8:])
		frame := b[pcapPacketHeader:][:size]
		const icmpv6Type = 14 + 40
		if len(frame) > icmpv6Type && frame[14]>>4 == 6 && frame[20] == 58 {
			echoes[frame[icmpv6Type]]++
		}
		b = b[pcapPacketHeader+size:]
	}
	if echoes[echoRequest6] != 10 || echoes[echoReply6] != 10 {
		t.Errorf("captured %d requests and %d answers, want 10 of each", echoes[echoRequest6], echoes[echoReply6])
	}
}
