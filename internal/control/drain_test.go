// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

func TestDrain(t *testing.T) {
	s := &source{}
	client := start(t, s)
	for _, tt := range []struct {
		instance string
		on       bool
	}{{"live", true}, {"live", false}, {"", true}, {"", false}} {
		drained, err := client.Drain(t.Context(), tt.instance, tt.on)
		if err != nil || !slices.Equal(drained.Instances, []string{"live"}) || s.drained != tt.on {
			t.Errorf("drain %q %v: %v, %v; drained %v", tt.instance, tt.on, drained, err, s.drained)
		}
	}
	if _, err := client.Drain(t.Context(), "dead", true); !errors.Is(err, ErrNoInstance) {
		t.Errorf("error %v", err)
	}
	s.refuse = errors.New("the kernel refuses: try again")
	if _, err := client.Drain(t.Context(), "live", true); err == nil || err.Error() != s.refuse.Error() {
		t.Errorf("error %v", err)
	}
}

// TestDrainIsGuarded asks without the mark that the peer may change anything.
func TestDrainIsGuarded(t *testing.T) {
	s := &source{}
	for _, path := range []string{pathDrain, pathUndrain} {
		w := httptest.NewRecorder()
		NewServer(s).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code != http.StatusForbidden || s.drained {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}
