// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
)

// Path is a translator's fast path.
type Path interface {
	runtest.Source
	Programs() fastpath.Programs
}

// Leaves fails unless a packet passes as it came, counted by a reason; "": not at all.
func (h *Host) Leaves(t *testing.T, at runtest.Hook, by Path, ip []byte, reason string) {
	t.Helper()
	frame := h.Frame(ip)
	verdict, out := h.Run(t, at, by.Programs(), frame)
	want, counters := fastpath.Punt, map[string]uint64{}
	if reason != "" {
		counters[reason] = 1
	}
	if reason == "bad_header_checksum" {
		want = fastpath.Drop
	}
	if diff := cmp.Diff(counters, h.Counted(t, by)); diff != "" || verdict != want {
		t.Errorf("%s, want %s; counters (-want +got):\n%s", verdict, want, diff)
	}
	if !bytes.Equal(out, frame) {
		t.Errorf("it was changed:\n%x\n%x", frame, out)
	}
}

// LeavesRows does so for each row, at each hook.
func (h *Host) LeavesRows(t *testing.T, by Path, rows []LeftRow) {
	for _, tt := range rows {
		for _, at := range runtest.Hooks {
			t.Run(string(at)+"/"+tt.Name, func(t *testing.T) {
				ip := bytes.Clone(tt.Packet)
				if tt.Change != nil {
					ip = tt.Change(ip)
				}
				h.Leaves(t, at, by, ip, tt.Want)
			})
		}
	}
}
