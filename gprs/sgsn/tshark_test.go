// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
)

// TestTsharkReadsDialogues has tshark dissect what TestDialogue compares: it finds nothing
// malformed.
func TestTsharkReadsDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/gtpv*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	var packets [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if words[0] == "#" {
				continue
			}
			payload, err := hex.DecodeString(words[3])
			if err != nil {
				t.Fatal(err)
			}
			packets = append(packets, datagram(netip.MustParseAddrPort(words[0]), netip.MustParseAddrPort(words[2]), payload))
		}
	}
	capture := tsharktest.Capture(t, packets)
	if out := tsharktest.Run(t, capture, "-Y", tsharktest.Complaints, "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message"); out != "" {
		t.Errorf("tshark complains of:\n%s", out)
	}
	if out := tsharktest.Run(t, capture, "-Y", "gtp", "-T", "fields", "-e", "frame.number"); strings.Count(out, "\n") != len(packets) {
		t.Errorf("of %d datagrams tshark takes %d for GTP", len(packets), strings.Count(out, "\n"))
	}
}

// datagram is one of UDP.
func datagram(from, to netip.AddrPort, payload []byte) []byte {
	b := udp4(from.Addr(), to.Addr(), to.Port(), 0)
	b[20], b[21] = byte(from.Port()>>8), byte(from.Port())
	n := len(b) + len(payload)
	b[2], b[3], b[24], b[25] = byte(n>>8), byte(n), byte((n-20)>>8), byte(n-20)
	return append(b, payload...)
}
