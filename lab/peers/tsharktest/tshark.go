// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package tsharktest has tshark dissect packets that a test made.
package tsharktest

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Complaints is the filter of packets in which tshark finds something malformed or wrong.
const Complaints = "_ws.malformed || _ws.expert.severity >= 0x400000"

// Capture writes IP packets of either family into a file of the form that tcpdump began,
// of link type 101 (raw IP), and returns its path.
func Capture(t testing.TB, packets [][]byte) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint32(b, 0x00040002)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0xffff)
	b = le.AppendUint32(b, 101)
	for i, p := range packets {
		b = le.AppendUint32(b, uint32(i))
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, uint32(len(p)))
		b = le.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	file := filepath.Join(t.TempDir(), "packets.pcap")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Run returns what tshark prints of a capture. Without tshark the test is skipped.
func Run(t testing.TB, capture string, args ...string) string {
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
