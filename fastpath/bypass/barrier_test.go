// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestBarriers(t *testing.T) {
	const base = "type filter hook forward priority 0;"
	for _, tt := range []struct {
		name, ruleset string
		want          []Barrier
	}{
		{"none", "", nil},
		{"accepts by its policy", "table inet t { chain c { " + base + " } }", nil},
		{"drops by its policy", "table inet t { chain c { " + base + " policy drop; } }", []Barrier{{"chain c of table inet t", true}}},
		{"drops all by a rule", "table ip t { chain c { " + base + "\ncounter drop\n } }", []Barrier{{"chain c of table ip t", true}}},
		{"rejects all", "table ip6 t { chain c { " + base + "\nreject\n } }", []Barrier{{"chain c of table ip6 t", true}}},
		{"drops some", "table inet t { chain c { " + base + "\ntcp dport 25 drop\n } }", nil},
		{"accepts some", "table inet t { chain c { " + base + " policy drop;\niifname \"lan\" accept\n } }", []Barrier{{"chain c of table inet t", false}}},
		{"accepts by a map", "table inet t { chain c { " + base + " policy drop;\ntcp dport vmap { 80 : accept }\n } }", []Barrier{{"chain c of table inet t", false}}},
		{"accepts in another chain", "table inet t { chain d {\naccept\n }\nchain c { " + base + " policy drop;\njump d\n } }", []Barrier{{"chain c of table inet t", false}}},
		{"another table accepts", "table inet a { chain c { " + base + "\naccept\n } }\ntable inet t { chain c { " + base + " policy drop; } }", []Barrier{{"chain c of table inet t", true}}},
		{"drops what is for the host", "table inet t { chain c { type filter hook input priority 0; policy drop; } }", nil},
		{"drops frames of a bridge", "table bridge t { chain c { " + base + " policy drop; } }", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := testutil.NewNetns(t)
			if tt.ruleset != "" {
				ns.Do(t, nft(t, tt.ruleset))
			}
			ns.Do(t, func() error {
				got, err := Barriers()
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return err
			})
		})
	}
}
