// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// TestListInSteps lists more addresses of record than one step has, while others come and go, and looks at no more
// than a step at once.
func TestListInSteps(t *testing.T) {
	const n = 4 * step
	now := time.Unix(0, 0)
	table := location.New(location.Limits{Bindings: 2 * n, PerAOR: 1, BindingSize: 100})
	name := func(i int) string { return fmt.Sprintf("sip:%04d@example.net", i) }
	add := func(i int) {
		uri, err := message.ParseURI(name(i))
		if err != nil {
			t.Fatal(err)
		}
		contact := location.Contact{URI: uri, Lifetime: time.Hour}
		if err := table.Register(name(i), &location.Registration{CallID: "1", Contacts: []location.Contact{contact}}, now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		add(i)
	}
	holds := 0
	hold := func(f func(*location.Table)) {
		f(table)
		add(n + holds)
		table.Remove(name(holds), func(*location.Binding) bool { return true })
		holds++
	}
	all := addresses(hold)
	if want := n/step + 1; holds < want {
		t.Errorf("all addresses in %d steps, want %d at least", holds, want)
	}
	gone := holds
	holds = 0
	quiet := func(f func(*location.Table)) { f(table); holds++ }
	var list Bindings
	list.fill(all, 1, n/2, quiet)
	if len(list.Bindings) != n/2 || list.From != n/2+1 || holds < 2 {
		t.Fatalf("%d bindings up to %d, in %d steps", len(list.Bindings), list.From, holds)
	}
	var got, want []string
	for i, b := range list.Bindings {
		got, want = append(got, b.Address), append(want, name(gone+1+i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
