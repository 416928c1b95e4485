// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
)

// nodeWith is a node whose engine has so many contexts, and no host; steps counts how often the
// engine was taken from its packets.
func nodeWith(t *testing.T, contexts int) (g *GGSN, steps *int) {
	t.Helper()
	b := benchOf(t, "", "")
	for n := range contexts {
		if r := b.create(sgsn, request(n+1, sgsn, gtp.PDPTypeIPv4)); !r.Cause.Accepted() {
			t.Fatal(r.Cause)
		}
	}
	g, err := New(written(t, "", ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	steps = new(int)
	g.loop.Settled = func(*ggsn.Output) { *steps++ }
	g.loop.Engine = b.Engine
	g.engine.Store(b.Engine)
	return g, steps
}

// TestArgumentsOverTheSocket: who asks without the command line is held to the same.
func TestArgumentsOverTheSocket(t *testing.T) {
	g, _ := nodeWith(t, 3)
	for _, tt := range []struct {
		name, what, arguments string
		order                 bool
		want                  string // of the answer, or of the error
	}{
		{"no NSAPI is any", "contexts", `{"limit":10}`, false, `"nsapi":5`},
		{"an NSAPI", "contexts", `{"limit":10,"nsapi":5}`, false, `"nsapi":5`},
		{"an NSAPI that no context has", "contexts", `{"limit":10,"nsapi":0}`, false, `{"contexts":[]}`},
		{"an NSAPI beyond 15", "contexts", `{"limit":10,"nsapi":16}`, false, "0 to 15"},
		{"an NSAPI beyond an octet", "contexts", `{"limit":10,"nsapi":300}`, false, "cannot be read"},
		{"an NSAPI below 0", "contexts", `{"limit":10,"nsapi":-1}`, false, "cannot be read"},
		{"no limit", "contexts", `{}`, false, "limit"},
		{"to end an NSAPI beyond an octet", "delete", `{"nsapi":261}`, true, "cannot be read"},
		{"to end an NSAPI beyond 15", "delete", `{"nsapi":21}`, true, "0 to 15"},
		{"to end nothing that is named", "delete", `{}`, true, "say which contexts"},
		{"to end one, and all", "delete", `{"nsapi":5,"all":true}`, true, "say which contexts"},
		{"to end an NSAPI that no context has", "delete", `{"nsapi":0}`, true, `"deleted":0`},
		{"to end an NSAPI", "delete", `{"nsapi":5}`, true, `"deleted":3`},
	} {
		answer, err := role.List{Role}.Ask(g, tt.order, tt.what, json.RawMessage(tt.arguments))
		text, _ := json.Marshal(answer)
		if err != nil {
			text = []byte(err.Error())
		}
		if !strings.Contains(string(text), tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

// TestListInSteps: a short list of rare contexts takes the engine no more often than a long
// one, and has the rows that were asked for.
func TestListInSteps(t *testing.T) {
	g, steps := nodeWith(t, 200)
	rare := contextArguments{IMSI: request(150, sgsn, gtp.PDPTypeIPv4).IMSI.Value.String()}
	list, err := g.contexts(listArguments{role.Part{Limit: 1}, rare})
	if err != nil || len(list.Contexts) != 1 || list.Contexts[0].IMSI != rare.IMSI || *steps != 1 {
		t.Errorf("%+v in %d steps, %v", list, *steps, err)
	}
	seen := map[string]bool{}
	for part := (role.Part{Limit: 7}); ; part.From = list.From {
		if list, err = g.contexts(listArguments{part, contextArguments{}}); err != nil || len(list.Contexts) > part.Limit {
			t.Fatalf("%d rows, %v", len(list.Contexts), err)
		}
		for _, c := range list.Contexts {
			seen[c.IMSI] = true
		}
		if list.From == 0 {
			break
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d contexts in parts", len(seen))
	}
}

// TestCausesAsReasons: what was answered has names like those of drops.
func TestCausesAsReasons(t *testing.T) {
	g, _ := nodeWith(t, 2)
	b := &bench{Engine: g.engine.Load(), t: t, now: time.Now()}
	b.create(sgsn, request(9, rnc, gtp.PDPTypeIPv4))
	got := map[string]float64{}
	g.Collect(func(m role.Metric) {
		if m.Name == "answers_total" {
			got[m.Reason] = m.Value
		}
	})
	if want := map[string]float64{"request_accepted": 2, "mandatory_ie_incorrect": 1}; !maps.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}
