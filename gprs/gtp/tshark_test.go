// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
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
			b, err = Encapsulate(nil, &s.header, unhex(t, ipv4Packet))
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
	if out := tshark(t, capture, "-Y", "_ws.malformed || _ws.expert.severity >= 0x400000", "-T", "fields",
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
	lines := strings.Split(strings.TrimSuffix(tshark(t, capture, args...), "\n"), "\n")
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

// tshark returns what it prints of a capture.
func tshark(t *testing.T, capture string, args ...string) string {
	t.Helper()
	p, err := peers.Find()
	if err != nil {
		testutil.Missing(t, err)
	}
	command, err := p.Tshark(capture, nil, args...)
	if err != nil {
		testutil.Missing(t, err)
	}
	var complaints bytes.Buffer
	run := exec.Command(command.Path, command.Args...)
	run.Stderr = &complaints
	out, err := run.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, complaints.String())
	}
	return string(out)
}

// writeCapture writes IPv4 packets with UDP into a file of the form that tcpdump began,
// of link type 101 (raw IP), and returns its path.
func writeCapture(t *testing.T, datagrams []datagram) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint32(b, 0x00040002)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0xffff)
	b = le.AppendUint32(b, 101)
	for i, d := range datagrams {
		n := 28 + len(d.payload)
		b = le.AppendUint32(b, uint32(i))
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, uint32(n))
		b = le.AppendUint32(b, uint32(n))
		b = append(b, 0x45, 0, byte(n>>8), byte(n), 0, byte(i), 0, 0, 64, 17, 0, 0, 198, 51, 100, 2, 192, 0, 2, 1)
		b = binary.BigEndian.AppendUint16(b, d.port)
		b = binary.BigEndian.AppendUint16(b, d.port)
		b = binary.BigEndian.AppendUint16(b, uint16(n-20))
		b = append(append(b, 0, 0), d.payload...)
	}
	file := filepath.Join(t.TempDir(), "gtp.pcap")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
