// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
)

// TestTshark has tshark dissect every chunk that is written here: it finds checksums right and nothing
// malformed, and reads the same types.
func TestTshark(t *testing.T) {
	var packets [][]byte
	var want strings.Builder
	for i, g := range golden {
		tag := uint32(3)
		if g.tshark == "1" { // INIT
			tag = 0
		}
		packet := write(Begin(nil, Header{uint16(10_000 + i), 2, tag}), g.value)
		Seal(packet)
		n := 20 + len(packet)
		packets = append(packets, append([]byte{0x45, 0, byte(n >> 8), byte(n), 0, 0, 0, 0, 64, Protocol, 0, 0, 198, 51, 100, 2, 192, 0, 2, 1}, packet...))
		want.WriteString(g.tshark + "\t1\n")
	}
	capture := tsharktest.Capture(t, packets)
	verify := []string{"-o", "sctp.checksum:CRC 32c", "-T", "fields"}
	if out := tsharktest.Run(t, capture, append(verify, "-Y", tsharktest.Complaints, "-e", "frame.number", "-e", "_ws.expert.message")...); out != "" {
		t.Errorf("tshark complains of:\n%s", out)
	}
	if out := tsharktest.Run(t, capture, append(verify, "-e", "sctp.chunk_type", "-e", "sctp.checksum.status")...); out != want.String() {
		t.Errorf("tshark reads\n%s\nwant\n%s", out, want.String())
	}
}
