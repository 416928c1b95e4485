// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/role"
)

// fixed is an instance whose values stand still.
type fixed struct {
	role, name string
	values     []role.Metric
}

func (f fixed) Name() string              { return f.name }
func (f fixed) Role() string              { return f.role }
func (f fixed) Run(context.Context) error { return nil }
func (f fixed) Ready() <-chan struct{}    { return nil }
func (f fixed) Status() any               { return nil }
func (f fixed) Collect(emit func(role.Metric)) {
	for _, value := range f.values {
		emit(value)
	}
}

func scrape(t *testing.T, instances ...role.Instance) (code int, isthmus string) {
	t.Helper()
	answer := httptest.NewRecorder()
	NewServer("1.0", instances).Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var ours []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.Contains(line, "isthmus_") {
			ours = append(ours, line)
		}
	}
	return answer.Code, strings.Join(ours, "")
}

func TestValues(t *testing.T) {
	code, got := scrape(t,
		fixed{"teredo_relay", "north", []role.Metric{
			role.Dropped("not_global", 3), role.Dropped("truncated", 1),
			{Name: role.DroppedName, Help: "Packets dropped, by reason.", Reason: "truncated", Path: "fast", Value: 7},
			{Name: "fastpath_packets_total", Help: "Packets of the fast path.", Verdict: "punt", Reason: "bubble", Value: 4},
			role.Count("rx_packets_total", "Packets received.", 12),
			role.Level("peers", "Peers known.", 2),
		}},
		fixed{"teredo_relay", "south", []role.Metric{role.Dropped("truncated", 5)}},
		fixed{"teredo_client", "home", []role.Metric{role.Dropped("truncated", 1)}},
	)
	want := `# HELP isthmus_build_info Always 1; the label tells the version.
# TYPE isthmus_build_info gauge
isthmus_build_info{version="1.0"} 1
# HELP isthmus_teredo_client_dropped_total Packets dropped, by reason.
# TYPE isthmus_teredo_client_dropped_total counter
isthmus_teredo_client_dropped_total{instance="home",reason="truncated"} 1
# HELP isthmus_teredo_relay_dropped_total Packets dropped, by reason.
# TYPE isthmus_teredo_relay_dropped_total counter
isthmus_teredo_relay_dropped_total{instance="north",reason="not_global"} 3
isthmus_teredo_relay_dropped_total{instance="north",reason="truncated"} 1
isthmus_teredo_relay_dropped_total{instance="south",reason="truncated"} 5
isthmus_teredo_relay_dropped_total{instance="north",path="fast",reason="truncated"} 7
# HELP isthmus_teredo_relay_fastpath_packets_total Packets of the fast path.
# TYPE isthmus_teredo_relay_fastpath_packets_total counter
isthmus_teredo_relay_fastpath_packets_total{instance="north",reason="bubble",verdict="punt"} 4
# HELP isthmus_teredo_relay_peers Peers known.
# TYPE isthmus_teredo_relay_peers gauge
isthmus_teredo_relay_peers{instance="north"} 2
# HELP isthmus_teredo_relay_rx_packets_total Packets received.
# TYPE isthmus_teredo_relay_rx_packets_total counter
isthmus_teredo_relay_rx_packets_total{instance="north"} 12
`
	if code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOneFaultyValue checks that a name that Prometheus refuses hides nothing
// else.
func TestOneFaultyValue(t *testing.T) {
	code, got := scrape(t,
		fixed{"teredo_relay", "faulty", []role.Metric{role.Dropped("truncated", 1), role.Dropped("truncated", 1)}},
		fixed{"teredo_server", "good", []role.Metric{role.Dropped("truncated", 1)}},
	)
	if code != http.StatusOK || !strings.Contains(got, `isthmus_teredo_server_dropped_total{instance="good",reason="truncated"} 1`) {
		t.Errorf("status %d, values:\n%s", code, got)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	answer := httptest.NewRecorder()
	NewServer("1.0", nil).Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if answer.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.Code)
	}
}
