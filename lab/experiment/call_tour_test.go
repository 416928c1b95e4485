// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// TestHearing writes two calls to a file, the first with packets missing.
func TestHearing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, err := newHearing("")
	if err != nil {
		t.Fatal(err)
	}
	loud := bytes.Repeat([]byte{0}, media.Samples) // of PCMU
	for _, packets := range [][]int64{{0, 1, 2, 8, 9, -3}, {0, 1, 3}} {
		_, sink := h.sound()
		for _, p := range packets {
			sink.Write(p*media.Samples, g711.PCMU, loud)
		}
	}
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	s, err := h.read()
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 14*media.Samples {
		t.Errorf("the file has %d samples, want 14 packets", s.Len())
	}
	if begin, length := longestSilence(s); begin != 60*time.Millisecond || length != 100*time.Millisecond {
		t.Errorf("silent for %v from %v on, want 100ms from 60ms on", length, begin)
	}
	if info, err := os.Stat(h.file.Name()); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := h.remove(); err != nil {
		t.Error(err)
	}
}

func TestSIPText(t *testing.T) {
	for _, row := range []struct {
		situation, want string
		payload         []byte
	}{
		{"within a call", "re-INVITE", signal("INVITE sip:b@x SIP/2.0", "4 INVITE")},
		{"an answer", "200 to INVITE", signal("SIP/2.0 200 OK", "4 INVITE")},
		{"not yet one", "", signal("SIP/2.0 180 Ringing", "4 INVITE")},
		{"an end", "BYE", signal("BYE sip:b@x SIP/2.0", "5 BYE")},
		{"what nothing hangs on", "", signal("ACK sip:b@x SIP/2.0", "4 ACK")},
		{"a new call", "INVITE", bytes.Replace(signal("INVITE sip:b@x SIP/2.0", "4 INVITE"), []byte(";tag=2"), nil, 1)},
		{"media", "", sound(1)},
		{"nothing", "", nil},
	} {
		if got := sipText(row.payload); got != row.want {
			t.Errorf("%s: %q, want %q", row.situation, got, row.want)
		}
	}
}
