// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAsk has the question and its answer come through, and orders refused to strangers
// by the same guard as a reload.
func TestAsk(t *testing.T) {
	source := new(source)
	client := start(t, source)
	q := Question{Role: "nat64", Instance: "gate", What: "sessions", Arguments: json.RawMessage(`{"limit":5,"inside":"2001:db8::/64"}`)}
	var got map[string]string
	if err := client.Ask(t.Context(), q, &got); err != nil || got["done"] != "ask sessions" {
		t.Errorf("answer %v, error %v", got, err)
	}
	if diff := cmp.Diff(q, source.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	q.What = "static_add"
	if err := client.Order(t.Context(), q, &got); err != nil || got["done"] != "order static_add" {
		t.Errorf("answer %v, error %v", got, err)
	}
	q.Instance = "missing"
	if err := client.Ask(t.Context(), q, &got); !errors.Is(err, ErrNoInstance) {
		t.Errorf("error %v, want ErrNoInstance", err)
	}
	q.Instance, q.What = "gate", "nonsense"
	if err := client.Order(t.Context(), q, &got); err == nil || err.Error() != "nonsense cannot be done" {
		t.Errorf("error %v", err)
	}
}
