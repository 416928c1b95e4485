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
	g = nodeOf(t, b, written(t, "", ""))
	steps = new(int)
	g.loop.Settled = func(*ggsn.Output) { *steps++ }
	return g, steps
}

// nodeOf is a node with the engine of a bench, and no host.
func nodeOf(t *testing.T, b *bench, cfg Settings) *GGSN {
	t.Helper()
	g, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	g.loop.Engine = b.Engine
	g.engine.Store(b.Engine)
	return g
}

// nodeOfTwo is a node whose terminals of two VRFs have one address; a third is in none.
func nodeOfTwo(t *testing.T) *GGSN {
	t.Helper()
	b := benchOf(t, "", twoVRFs)
	for n, apn := range []string{"red", "blue", "main"} {
		m := request(n, sgsn, gtp.PDPTypeIPv4)
		name, err := gtp.ParseAPN(apn)
		if err != nil {
			t.Fatal(err)
		}
		m.APN = gtp.Some(name)
		if r := b.create(sgsn, m); !r.Cause.Accepted() {
			t.Fatal(r.Cause)
		}
	}
	return nodeOf(t, b, written(t, "", twoVRFs))
}

// TestAddressOfTwoNetworks: an address may be of a terminal in each, of which an order is for the one that
// is named alone.
func TestAddressOfTwoNetworks(t *testing.T) {
	g := nodeOfTwo(t)
	const which = "contexts of 2 networks have addresses of 10.45.0.9: say of which one, by --vrf or --apn"
	for _, tt := range []struct {
		name, what, arguments string
		order                 bool
		contexts              int    // in a list
		want                  string // of the answer, or of the error
	}{
		{"all that have it", "contexts", `{"limit":10,"address":"10.45.0.9"}`, false, 2, `"vrf":"red"`},
		{"those of a VRF", "contexts", `{"limit":10,"vrf":"blue"}`, false, 1, `"vrf":"blue"`},
		{"those of another", "contexts", `{"limit":10,"vrf":"blue","apn":"red"}`, false, 0, `[]`},
		{"of no VRF that there is", "contexts", `{"limit":10,"vrf":"green"}`, false, 0, "no access point is in a VRF green"},
		{"to end those of any", "delete", `{"address":"10.45.0.9"}`, true, 0, which},
		{"to close the records of any", "close-records", `{"address":"10.45.0.9"}`, true, 0, which},
		{"to end those of a prefix", "delete", `{"address":"10.0.0.0/8"}`, true, 0, "contexts of 3 networks"},
		{"to end those of a VRF", "delete", `{"address":"10.45.0.9","vrf":"red"}`, true, 0, `"deleted":1`},
		{"to end those of an access point", "delete", `{"address":"10.45.0.9","apn":"blue"}`, true, 0, `"deleted":1`},
		{"to end those of one network", "delete", `{"address":"10.46.0.0/16"}`, true, 0, `"deleted":1`},
		{"to end those of one subscriber", "delete", `{"address":"10.45.0.9","imsi":"240010000000000"}`, true, 0, `"deleted":1`},
	} {
		answer, err := role.List{Role}.Ask(g, tt.order, tt.what, json.RawMessage(tt.arguments))
		text, _ := json.Marshal(answer)
		if err != nil {
			text = []byte(err.Error())
		}
		if n := strings.Count(string(text), `"imsi"`); n != tt.contexts || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s: %s, want %d contexts and %s", tt.name, text, tt.contexts, tt.want)
		}
	}
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
