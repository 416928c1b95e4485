// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers/tsharktest"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// captured reads the types of chunks in a capture.
func captured(t *testing.T, file string) map[string]int {
	t.Helper()
	types := map[string]int{}
	for _, one := range strings.FieldsFunc(tsharktest.Run(t, file, "-d", "udp.port==1-65535,sctp", "-T", "fields", "-e", "sctp.chunk_type"), func(r rune) bool { return r < '0' || r > '9' }) {
		types[one]++
	}
	return types
}

// TestCaptureOfAll: a capture has an association from its first packet to its last one.
func TestCaptureOfAll(t *testing.T) {
	media := []byte("octets of the media")
	file := filepath.Join(t.TempDir(), "packets.pcapng")
	r, err := NewRecorder("", file, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := serve(t, []said{
		{control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 100, Total: uint64(len(media))}},
		{1, &transfer.Data{Transfer: 1, Written: time.Now(), Media: media}},
		{control, &transfer.End{Transfer: 1, Octets: uint64(len(media)), Messages: 1, Digest: sha256.Sum256(media)}},
	})
	c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults(), Recorder: r}, server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if _, err := c.Get(t.Context(), Options{Request: transfer.Request{Name: "film"}}); err != nil {
		t.Error(err)
	}
	end, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	if err := c.Close(end); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	types := captured(t, file)
	for kind, name := range map[string]string{"1": "INIT", "2": "INIT ACK", "10": "COOKIE ECHO", "11": "COOKIE ACK", "0": "DATA", "7": "SHUTDOWN", "8": "SHUTDOWN ACK", "14": "SHUTDOWN COMPLETE"} {
		if types[kind] == 0 {
			t.Errorf("%s is missing in %v", name, types)
		}
	}
}

// TestCaptureOfSetup: where no one answers, a capture has what was asked.
func TestCaptureOfSetup(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no one reads there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	file := filepath.Join(t.TempDir(), "packets.pcapng")
	r, err := NewRecorder("", file, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	setup, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	server := fmt.Sprintf("127.0.0.1:5000/%d", silent.LocalAddr().(*net.UDPAddr).Port)
	if _, err := Dial(setup, Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults(), Recorder: r}, server); err == nil {
		t.Error("someone answers")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if types := captured(t, file); types["1"] == 0 {
		t.Errorf("no INIT in %v", types)
	}
}
