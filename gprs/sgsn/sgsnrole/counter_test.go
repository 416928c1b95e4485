// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/kept"
)

// TestRestartCounter: each start tells GGSNs one more than the last, also one that came at once,
// or behind one that told others than its own.
func TestRestartCounter(t *testing.T) {
	configtest.InEffect(t, "sgsn", "state_file")
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "folder", "one.state")
	s := w.settings(t, ue(1, "v4")+fmt.Sprintf("state_file = %q\n", file))
	told := func() uint8 {
		t.Helper()
		r := w.last(t, gtp.TypeCreateRequest).message.(*gtp.CreateRequest).Recovery
		if !r.Present {
			t.Fatal("no counter was told")
		}
		return r.Value
	}
	w.start(t, s)
	first := told()
	other, err := New(s, w.sgsn.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.count(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a second one has the file, too: %v", err)
	}
	if other.saved != nil || other.uncount() != nil {
		t.Error("it has a file all the same")
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start(t, s)
	if told() != first+1 {
		t.Errorf("%d, and then %d", first, told())
	}
	must[Misdone](t)(w.sgsn.misbehaveOrder(Misbehaved{What: sgsn.MisdeedRestart, Which: Which{IMSI: "240010123456789", NSAPI: 5}, Times: 3}))
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start(t, s)
	if told() != first+5 {
		t.Errorf("behind a misdeed: %d, and then %d", first, told())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	// What others than this role have written is no less a counter.
	saved, err := kept.OpenSaved(file)
	if err != nil || saved.Counter != first+5 || saved.Close() != nil {
		t.Errorf("the file has %+v: %v", saved, err)
	}
}
