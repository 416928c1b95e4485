// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func loadForTest(t testing.TB, cfg TeredoConfig) *Teredo {
	t.Helper()
	testutil.NeedRoot(t)
	fast, err := LoadTeredo(cfg)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := fast.Close(); err != nil {
			t.Error(err)
		}
	})
	return fast
}

func TestLoad(t *testing.T) {
	fast := loadForTest(t, TeredoConfig{Name: "test", Buckets: 1 << 10, Foreign: 100})
	if fast.Adopted() {
		t.Error("tables were taken over from nobody")
	}
	if got := len(fast.Peers()); got != 1<<16 {
		t.Errorf("the peer table has %d bytes", got)
	}
	p := fast.Programs()
	if p.XDP == nil || p.Ingress == nil {
		t.Errorf("programs are missing: %+v", p)
	}
}
