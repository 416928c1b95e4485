// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// TestServiceRelay has a relay with a fast path that survives: it looks for what it would
// skip, attaches, and takes over what a process before has left.
func TestServiceRelay(t *testing.T) {
	s := newSpan(t)
	r := program.NewService(t, s.relay, "[[teredo_relay]]\nfast_path_devices = [\"v4\", \"v6\"]\n")
	p := r.Start(t)
	s.establish(t, p)
	end := s.flow(t, 1)
	r.Stop(t, p, syscall.SIGUSR2)
	p = r.Start(t)
	if sent, lost := end(); len(lost) > 0 {
		t.Errorf("of %d packets %d are lost, the first of them %v\n%s", sent, len(lost), lost[:min(len(lost), 5)], p.Log())
	}
	code, out := program.Call(t, "status", "--socket", r.Socket)
	for _, want := range []string{"tc by v4, v6", "survives a restart", "peers taken over"} {
		if !strings.Contains(out, want) {
			t.Errorf("isthmus status says nothing of %q: %d\n%s\n%s", want, code, out, p.Log())
		}
	}
	r.End(t, p)
}
