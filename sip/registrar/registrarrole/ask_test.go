// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/role"
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
	first := Place{Address: name(gone), Contact: name(gone)}
	list.fill(all, &first, n/2, quiet)
	if len(list.Bindings) != n/2 || list.After == nil || *list.After != list.Bindings[n/2-1].place() || holds < 2 {
		t.Fatalf("%d bindings up to %+v, in %d steps", len(list.Bindings), list.After, holds)
	}
	var got, want []string
	for i, b := range list.Bindings {
		got, want = append(got, b.Address), append(want, name(gone+1+i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// changing answers questions about a table that changes behind each part.
type changing struct {
	role.Asker
	table  *location.Table
	parts  int
	change func()
	shown  Bindings
}

func (c *changing) Ask(_ role.To, _ bool, arguments, answer any) error {
	a, list := arguments.(listArguments), answer.(*Bindings)
	if c.parts++; c.parts > 100 {
		return errors.New("asked without end")
	}
	a.Limit = min(a.Limit, 2) // as if a part had no more
	hold := func(f func(*location.Table)) { f(c.table) }
	list.fill(addresses(hold), a.After, a.Limit, hold)
	c.change()
	return nil
}

func (c *changing) Show(_ role.To, answer role.Table) error {
	c.shown = answer.(Bindings)
	return nil
}

// TestListWhileBindingsComeAndGo shows each binding that stays once, whatever comes and goes between two parts.
func TestListWhileBindingsComeAndGo(t *testing.T) {
	contacts := func(list ...string) (r []location.Contact) {
		for _, one := range list {
			a, err := message.ParseAddress(one)
			if err != nil {
				t.Fatal(err)
			}
			r = append(r, location.Contact{URI: a.URI, Lifetime: time.Hour})
			if instance, ok := a.Params.Get("+sip.instance"); ok {
				r[len(r)-1].Instance, r[len(r)-1].RegID = instance, uint32(len(r))
			}
		}
		return r
	}
	now := time.Unix(0, 0)
	for _, tt := range []struct {
		name   string
		limit  int
		change func(table *location.Table)
		want   string
		more   bool
	}{
		{"nothing", 0, func(*location.Table) {}, "a1 b1 b2 b2 b3 c1 d1", false},
		{"at most four", 4, func(*location.Table) {}, "a1 b1 b2 b2", true},
		{"all that there are", 7, func(*location.Table) {}, "a1 b1 b2 b2 b3 c1 d1", false},
		{"what was listed goes", 0, func(table *location.Table) {
			table.Remove("sip:a@example.net", func(*location.Binding) bool { return true })
			table.Remove("sip:b@example.net", func(b *location.Binding) bool { return b.URI.User == "b1" })
		}, "a1 b1 b2 b2 b3 c1 d1", false},
		{"what was listed last goes", 0, func(table *location.Table) {
			table.Remove("sip:b@example.net", func(*location.Binding) bool { return true })
		}, "a1 b1 c1 d1", false},
		{"others come before", 0, func(table *location.Table) {
			for i, aor := range []string{"sip:0@example.net", "sip:b@example.net"} {
				_ = table.Register(aor, &location.Registration{CallID: "other", CSeq: uint32(i), Contacts: contacts("<sip:b0@h>", "<sip:0@h>")}, now)
			}
		}, "a1 b1 b2 b2 b3 c1 d1", false},
	} {
		table := location.New(location.Limits{Bindings: 100, PerAOR: 10, BindingSize: 1000})
		for aor, list := range map[string][]location.Contact{
			"a": contacts("<sip:a1@h>"), "c": contacts("<sip:c1@h>"), "d": contacts("<sip:d1@h>"),
			"b": contacts("<sip:b3@h>", `<sip:b2@h>;+sip.instance="1"`, "<sip:b1@h>", `<sip:b2@h>;+sip.instance="1"`),
		} {
			if err := table.Register("sip:"+aor+"@example.net", &location.Registration{CallID: aor, Contacts: list}, now); err != nil {
				t.Fatal(err)
			}
		}
		c := &changing{table: table}
		c.change = func() { tt.change(table) }
		if err := (&listing{Arguments: listArguments{Limit: tt.limit}}).Run(c); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var got []string
		for _, b := range c.shown.Bindings {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(b.Contact, "sip:"), "@h"))
		}
		if strings.Join(got, " ") != tt.want || (c.shown.After != nil) != tt.more {
			t.Errorf("%s: %v, and %+v; want %s", tt.name, got, c.shown.After, tt.want)
		}
	}
}

// TestAddressesOfRecord are read as people write them, of sips as of sip (RFC 5630 section 5.2).
func TestAddressesOfRecord(t *testing.T) {
	for text, want := range map[string]string{
		"alice@example.net": "sip:alice@example.net", "SIP:alice@EXAMPLE.net:5060": "sip:alice@example.net",
		"sips:alice@example.net": "sip:alice@example.net", "tel:+1-555-0100": "tel:+15550100", "alice@": "",
	} {
		if got, err := aor(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
