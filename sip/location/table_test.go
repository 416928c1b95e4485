// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package location

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a contact: a URI, with a lifetime in seconds behind a blank, and what else there is.
func at(t testing.TB, contact string, seconds int, set ...func(*Contact)) Contact {
	t.Helper()
	a, err := message.ParseAddress(contact)
	if err != nil {
		t.Fatal(err)
	}
	c := Contact{URI: a.URI, Params: a.Params, Q: 1000, Lifetime: time.Duration(seconds) * time.Second}
	for _, f := range set {
		f(&c)
	}
	return c
}

func flow(instance string, reg uint32) func(*Contact) {
	return func(c *Contact) { c.Instance, c.RegID = instance, reg }
}

func q(q uint16) func(*Contact) { return func(c *Contact) { c.Q = q } }

// show writes bindings in their order of preference, with what is left of their lifetimes.
func show(table *Table, aor string, now time.Time) string {
	var words []string
	for _, b := range table.Lookup(aor, now) {
		words = append(words, fmt.Sprintf("%s/%.0f", b.URI.HostPort(), b.Expires.Sub(now).Seconds()))
	}
	return strings.Join(words, " ")
}

const alice = "sip:alice@example.com"

// TestRegister applies registrations one after the other.
func TestRegister(t *testing.T) {
	table := New(Limits{Bindings: 5, PerAOR: 3, BindingSize: 200})
	for i, tt := range []struct {
		name  string
		call  string
		cseq  uint32
		all   bool
		with  []Contact
		after int // seconds from the start
		err   error
		want  string
	}{
		{name: "the first", call: "1", cseq: 1, with: []Contact{at(t, "<sip:a>", 60)}, want: "a/60"},
		{name: "the same again later", call: "1", cseq: 2, with: []Contact{at(t, "<sip:a>", 60)}, after: 10, want: "a/60"},
		{name: "the same number", call: "1", cseq: 2, with: []Contact{at(t, "<sip:a>", 600)}, after: 10, err: ErrOutOfOrder, want: "a/60"},
		{name: "a lower number removes nothing", call: "1", cseq: 1, with: []Contact{at(t, "<sip:a>", 0)}, after: 10, err: ErrOutOfOrder, want: "a/60"},
		{name: "a lower number of another Call-ID", call: "2", cseq: 1, with: []Contact{at(t, "<sip:a;x=y>", 90)}, after: 10, want: "a/90"},
		{name: "a second contact, preferred", call: "2", cseq: 2, with: []Contact{at(t, "<sip:b>", 60), at(t, "<sip:a>", 60, q(500))}, after: 10, want: "b/60 a/60"},
		{name: "a move: the new contact, and the old one removed", call: "2", cseq: 3, with: []Contact{at(t, "<sip:c>", 60), at(t, "<sip:b>", 0)}, after: 10, want: "c/60 a/60"},
		{name: "one more of another Call-ID", call: "1", cseq: 9, with: []Contact{at(t, "<sip:d>", 60)}, after: 10, want: "c/60 d/60 a/60"},
		{name: "one of two out of order changes nothing", call: "2", cseq: 3, with: []Contact{at(t, "<sip:d>", 0), at(t, "<sip:c>", 0)}, after: 10, err: ErrOutOfOrder, want: "c/60 d/60 a/60"},
		{name: "one too many", call: "3", cseq: 1, with: []Contact{at(t, "<sip:e>", 60)}, after: 10, err: ErrPerAOR, want: "c/60 d/60 a/60"},
		{name: "one for another", call: "3", cseq: 1, with: []Contact{at(t, "<sip:e>", 60), at(t, "<sip:a>", 0)}, after: 11, want: "e/60 c/59 d/59"},
		{name: "a contact twice", call: "3", cseq: 2, with: []Contact{at(t, "<sip:e>", 60), at(t, "<sip:e>", 0)}, after: 11, err: ErrTwice, want: "e/60 c/59 d/59"},
		{name: "a contact that is too long", call: "3", cseq: 2, with: []Contact{at(t, "<sip:"+strings.Repeat("e", 200)+">", 60)}, after: 11, err: ErrTooLarge, want: "e/60 c/59 d/59"},
		{name: "long ones are not compared", call: "3", cseq: 2, with: []Contact{at(t, "<sip:e>", 60), at(t, "<sip:e>", 0), at(t, "<sip:"+strings.Repeat("e", 200)+">", 60)}, after: 11, err: ErrTooLarge, want: "e/60 c/59 d/59"},
		{name: "more contacts than there could be", call: "3", cseq: 2, with: make([]Contact, 7), after: 11, err: ErrPerAOR, want: "e/60 c/59 d/59"},
		{name: "what is not there is removed", call: "3", cseq: 2, with: []Contact{at(t, "<sip:z>", 0)}, after: 11, want: "e/60 c/59 d/59"},
		{name: "all, out of order", call: "3", cseq: 1, all: true, after: 11, err: ErrOutOfOrder, want: "e/60 c/59 d/59"},
		{name: "two have expired", call: "4", cseq: 1, with: nil, after: 70, want: "e/1"},
		{name: "all", call: "3", cseq: 3, all: true, after: 70, want: ""},
		{name: "all of nothing", call: "3", cseq: 1, all: true, after: 70, want: ""},
	} {
		now := start.Add(time.Duration(tt.after) * time.Second)
		err := table.Register(alice, &Registration{CallID: tt.call, CSeq: tt.cseq, All: tt.all, Contacts: tt.with}, now)
		if !errors.Is(err, tt.err) || show(table, alice, now) != tt.want {
			t.Errorf("%d, %s: %v, %q; want %v, %q", i, tt.name, err, show(table, alice, now), tt.err, tt.want)
		}
	}
	if aors, bindings := table.Len(); aors != 0 || bindings != 0 || !table.Next().IsZero() {
		t.Errorf("%d addresses of record and %d bindings are left", aors, bindings)
	}
}

// TestFlows replaces bindings by instance and reg-id (RFC 5626 section 6).
func TestFlows(t *testing.T) {
	table := New(DefaultLimits())
	const phone, desk = "<urn:uuid:1>", "<urn:uuid:2>"
	for i, tt := range []struct {
		name string
		with []Contact
		want string
	}{
		{"a flow", []Contact{at(t, "<sip:a>", 60, flow(phone, 1))}, "a/60"},
		{"the flow from elsewhere replaces it", []Contact{at(t, "<sip:b>", 61, flow(phone, 1))}, "b/61"},
		{"another flow of the same phone", []Contact{at(t, "<sip:c>", 60, flow(phone, 2))}, "b/61 c/60"},
		{"the same contact of another phone", []Contact{at(t, "<sip:c>", 60, flow(desk, 2))}, "b/61 c/60 c/60"},
		{"a contact without a flow removes the first of that URI", []Contact{at(t, "<sip:b>", 0)}, "c/60 c/60"},
		{"a flow is removed", []Contact{at(t, "<sip:x>", 0, flow(desk, 2))}, "c/60"},
		{"a flow that is not there", []Contact{at(t, "<sip:c>", 0, flow(desk, 2))}, "c/60"},
	} {
		err := table.Register(alice, &Registration{CallID: "1", CSeq: uint32(i), Contacts: tt.with}, start)
		if err != nil || show(table, alice, start) != tt.want {
			t.Errorf("%s: %v, %q, want %q", tt.name, err, show(table, alice, start), tt.want)
		}
	}
}

// TestFull refuses what is above the bound of all, and takes what changes nothing in number.
func TestFull(t *testing.T) {
	table := New(Limits{Bindings: 2, PerAOR: 2, BindingSize: 1000})
	register := func(aor string, cseq uint32, after int, contacts ...Contact) error {
		return table.Register(aor, &Registration{CallID: "1", CSeq: cseq, Contacts: contacts}, start.Add(time.Duration(after)*time.Second))
	}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"two", register(alice, 1, 0, at(t, "<sip:a>", 60), at(t, "<sip:b>", 30)), nil},
		{"a third of another", register("sip:bob@example.com", 1, 0, at(t, "<sip:c>", 60)), ErrFull},
		{"a refresh", register(alice, 2, 1, at(t, "<sip:a>", 60)), nil},
		{"when one has expired", register("sip:bob@example.com", 2, 30, at(t, "<sip:c>", 60)), nil},
		{"a fourth", register("sip:carol@example.com", 1, 30, at(t, "<sip:d>", 60)), ErrFull},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	// With lower limits what is there stays, and can be refreshed and removed.
	table.Reconfigure(Limits{Bindings: 1, PerAOR: 1, BindingSize: 1000})
	if err := register(alice, 3, 31, at(t, "<sip:a>", 60)); err != nil {
		t.Error(err)
	}
	if aors, bindings := table.Len(); aors != 2 || bindings != 2 {
		t.Errorf("%d addresses of record, %d bindings", aors, bindings)
	}
}

// TestExpiry forgets each binding at its time.
func TestExpiry(t *testing.T) {
	table := New(DefaultLimits())
	for i, seconds := range []int{50, 10, 40, 20, 30} {
		aor := fmt.Sprintf("sip:%d@example.com", i%3)
		if err := table.Register(aor, &Registration{CallID: fmt.Sprint(i), CSeq: 1, Contacts: []Contact{at(t, fmt.Sprintf("<sip:%d>", i), seconds)}}, start); err != nil {
			t.Fatal(err)
		}
	}
	for left := 5; left > 0; left-- {
		next := table.Next()
		if want := start.Add(time.Duration(6-left) * 10 * time.Second); !next.Equal(want) {
			t.Fatalf("with %d left, the next is at %v, want %v", left, next, want)
		}
		if n := table.Tick(next.Add(-1)); n != 0 {
			t.Errorf("%d expired too early", n)
		}
		if n := table.Tick(next); n != 1 {
			t.Errorf("%d expired, want 1", n)
		}
		if _, bindings := table.Len(); bindings != left-1 {
			t.Errorf("%d bindings, want %d", bindings, left-1)
		}
	}
	// What has expired and was not ticked is not found.
	_ = table.Register(alice, &Registration{CallID: "1", CSeq: 1, Contacts: []Contact{at(t, "<sip:a>", 5)}}, start)
	if got := table.Lookup(alice, start.Add(5*time.Second)); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// TestRemove removes chosen bindings, such as those of a connection that was closed.
func TestRemove(t *testing.T) {
	table := New(DefaultLimits())
	for i, f := range []string{"1", "2", "1"} {
		_ = table.Register(alice, &Registration{CallID: fmt.Sprint(i), CSeq: 1, Flow: f, Contacts: []Contact{at(t, fmt.Sprintf("<sip:%d>", i), 60)}}, start)
	}
	if n := table.Remove(alice, func(b *Binding) bool { return b.Flow == "1" }); n != 2 || show(table, alice, start) != "1/60" {
		t.Errorf("%d removed, left %s", n, show(table, alice, start))
	}
	if n := table.Remove("sip:nobody@example.com", func(*Binding) bool { return true }); n != 0 {
		t.Errorf("%d of nobody's", n)
	}
}

// TestState goes on in another table.
func TestState(t *testing.T) {
	table := New(DefaultLimits())
	for i, r := range []Registration{
		{Contacts: []Contact{at(t, `<sip:a%20b@[2001:db8::1]:5070;transport=tcp?x=y>;+sip.instance="<urn:uuid:1>"`, 60, flow("<urn:uuid:1>", 7), q(300))}, Path: []string{"<sip:p;lr>"}, Flow: "udp"},
		{Contacts: []Contact{at(t, "<sip:b>", 5)}},
		{Contacts: []Contact{at(t, "<sip:c>", 60, flow("<urn:uuid:2>", 1))}, Flow: "tcp"},
		{Contacts: []Contact{at(t, "<sip:d>", 60)}, Flow: "tcp"},
		{Contacts: []Contact{at(t, "<tel:+1555>", 60)}},
	} {
		r.CallID, r.CSeq = fmt.Sprint(i), uint32(i)
		if err := table.Register(alice, &r, start); err != nil {
			t.Fatal(err)
		}
	}
	var text []byte
	changed := func() (n int) {
		table.Changed(func(aor string, state []byte) {
			n++
			if text = state; aor != alice {
				t.Errorf("%s has changed", aor)
			}
		})
		return n
	}
	if first, again := changed(), changed(); first != 1 || again != 0 || text == nil {
		t.Fatalf("changed: %d, then %d", first, again)
	}
	before := string(text)
	if table.ChangeAll(); changed() != 1 || string(text) != before {
		t.Errorf("all again: %s", text)
	}
	now := start.Add(10 * time.Second)
	resumed := New(DefaultLimits())
	lost, err := resumed.Restore(alice, text, func(flow string) bool { return flow == "udp" }, now)
	if err != nil || lost != 1 {
		t.Fatalf("%d lost, %v", lost, err)
	}
	table.Remove(alice, func(b *Binding) bool { return b.Flow == "tcp" && b.RegID != 0 })
	got, want := resumed.Lookup(alice, now), table.Lookup(alice, now)
	for i := range want {
		if want[i].Flow == "tcp" { // reached by its contact from now on
			want[i].Flow = ""
		}
	}
	if len(got) != 3 || fmt.Sprint(got) != fmt.Sprint(want) || !resumed.Next().Equal(start.Add(time.Minute)) {
		t.Errorf("resumed\n%v\nwant\n%v", got, want)
	}
	if lost, err := New(Limits{Bindings: 1, PerAOR: 1, BindingSize: 1000}).Restore(alice, text, func(string) bool { return true }, now); err != nil || lost != 3 {
		t.Errorf("with room for one: %d lost, %v", lost, err)
	}
	for name, text := range map[string]string{"nothing": "", "a contact that is none": `[{"contact":"<"}]`} {
		if _, err := New(DefaultLimits()).Restore(alice, []byte(text), func(string) bool { return true }, now); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	table.Remove(alice, func(*Binding) bool { return true })
	if n := changed(); n != 1 || text != nil {
		t.Errorf("when all are gone %d have changed, to %q", n, text)
	}
}

// BenchmarkRegister refreshes a binding among a hundred thousand.
func BenchmarkRegister(b *testing.B) {
	table := New(Limits{Bindings: 200_000, PerAOR: 10, BindingSize: 2048})
	c := at(b, "<sip:a>", 3600)
	names := make([]string, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("sip:%d@example.com", i)
		if err := table.Register(names[i], &Registration{CallID: "1", Contacts: []Contact{c}}, start); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r := Registration{CallID: "1", CSeq: uint32(i + 1), Contacts: []Contact{c}}
		if err := table.Register(names[i%len(names)], &r, start.Add(time.Duration(i)*time.Microsecond)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStateOfTwo goes on with what two tables had of one address of record: of one contact the later binding stays, and
// what has no room is lost.
func TestStateOfTwo(t *testing.T) {
	stateOf := func(at time.Time, list ...Contact) (state []byte) {
		table := New(DefaultLimits())
		if err := table.Register(alice, &Registration{CallID: "1", Contacts: list, Flow: "udp"}, at); err != nil {
			t.Fatal(err)
		}
		table.Changed(func(_ string, s []byte) { state = s })
		return state
	}
	earlier := stateOf(start, at(t, "<sip:a>", 60), at(t, "<sip:both>", 60), at(t, "<sip:flow1>", 60, flow("<urn:uuid:1>", 1)))
	later := stateOf(start.Add(time.Second), at(t, "<sip:b>", 60), at(t, "<sip:both>", 60), at(t, "<sip:flow2>", 60, flow("<urn:uuid:1>", 1)))
	for _, tt := range []struct {
		name         string
		limits       Limits
		states       [2][]byte
		lost, number int
	}{
		{"the earlier first", DefaultLimits(), [2][]byte{earlier, later}, 0, 4},
		{"the later first", DefaultLimits(), [2][]byte{later, earlier}, 0, 4},
		{"no room of the address", Limits{Bindings: 9, PerAOR: 3}, [2][]byte{earlier, later}, 1, 3},
		{"no room of the table", Limits{Bindings: 3, PerAOR: 9}, [2][]byte{earlier, later}, 1, 3},
	} {
		table, lost := New(tt.limits), 0
		for _, state := range tt.states {
			n, err := table.Restore(alice, state, func(string) bool { return true }, start)
			if lost += n; err != nil {
				t.Fatal(tt.name, err)
			}
		}
		got := show(table, alice, start)
		if _, n := table.Len(); n != tt.number || lost != tt.lost || !strings.Contains(got, "both/61") || !strings.Contains(got, "flow2/61") {
			t.Errorf("%s: %d bindings, %d lost: %s", tt.name, n, lost, got)
		}
	}
}
