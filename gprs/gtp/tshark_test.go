// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
)

// TestTshark has tshark dissect every sample that our encoder makes: it finds nothing
// malformed and reads the same values.
func TestTshark(t *testing.T) {
	all := samples()
	var datagrams []datagram
	var c Codec
	fields := map[string]bool{}
	for _, s := range all {
		var b []byte
		var err error
		if s.message == nil {
			b, err = Encapsulate(nil, &s.header, testutil.Unhex(t, ipv4Packet))
		} else {
			b, err = c.Append(nil, s.header, s.message)
		}
		if err != nil {
			t.Fatal(s.name, err)
		}
		datagrams = append(datagrams, datagram{s.port(), b})
		for f := range s.tshark {
			fields[f] = true
		}
	}
	capture := writeCapture(t, datagrams)
	if out := tsharktest.Run(t, capture, "-Y", tsharktest.Complaints, "-T", "fields",
		"-e", "frame.number", "-e", "_ws.expert.message", "-e", "_ws.malformed"); out != "" {
		t.Errorf("tshark complains of:\n%s", out)
		for line := range strings.Lines(out) {
			number, _, _ := strings.Cut(line, "\t")
			if n, err := strconv.Atoi(number); err == nil {
				t.Logf("%d is %q", n, all[n-1].name)
			}
		}
	}
	names := slices.Sorted(maps.Keys(fields))
	args := []string{"-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=/t"}
	for _, f := range names {
		args = append(args, "-e", f)
	}
	lines := strings.Split(strings.TrimSuffix(tsharktest.Run(t, capture, args...), "\n"), "\n")
	if len(lines) != len(all) {
		t.Fatalf("%d lines for %d datagrams", len(lines), len(all))
	}
	for i, s := range all {
		values := strings.Split(lines[i], "\t")
		for f, want := range s.tshark {
			if got := values[slices.Index(names, f)]; got != want {
				t.Errorf("%s: tshark reads %s as %q, want %q", s.name, f, got, want)
			}
		}
	}
}

// datagram is what is sent to a port of GTP.
type datagram struct {
	port    uint16
	payload []byte
}

// writeCapture writes datagrams into a file, in packets of IPv4, and returns its path.
func writeCapture(t *testing.T, datagrams []datagram) string {
	t.Helper()
	var packets [][]byte
	for i, d := range datagrams {
		n := 28 + len(d.payload)
		b := []byte{0x45, 0, byte(n >> 8), byte(n), 0, byte(i), 0, 0, 64, 17, 0, 0, 198, 51, 100, 2, 192, 0, 2, 1}
		b = binary.BigEndian.AppendUint16(b, d.port)
		b = binary.BigEndian.AppendUint16(b, d.port)
		b = binary.BigEndian.AppendUint16(b, uint16(n-20))
		packets = append(packets, append(append(b, 0, 0), d.payload...))
	}
	return tsharktest.Capture(t, packets)
}
