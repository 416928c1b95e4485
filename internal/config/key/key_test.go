// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// values are what the keys of these tests are bound to.
type values struct {
	Name, Alias string
	Port        uint16
	Wait        time.Duration
	Words       []string
	On          bool
	Entries     []entry
}

// entry is one of a list of tables.
type entry struct {
	Name string
	Size int
}

func (v *values) keys() []Key {
	return []Key{
		Of("name", &v.Name, "x", InstanceName, Identity, "Its name."),
		Of("alias", &v.Alias, &v.Name, InstanceName, Live, "Its other name."),
		Of("port", &v.Port, MustSet(7), Integer[uint16](1, 65535), Restart, "Its port."),
		Of("wait", &v.Wait, "2s", Duration(time.Second, time.Minute), Live, "How long."),
		Of("words", &v.Words, []string{"a"}, List(InstanceName), Live, "What it says."),
		Of("on", &v.On, true, Bool, Restart, "Whether."),
		Tables("entry", &v.Entries, "entry", `{ name = "a" }`, (*entry).keys, Restart, "What there is."),
	}
}

func (e *entry) keys() []Key {
	return []Key{
		Of("name", &e.Name, MustSet("a"), InstanceName, Identity, "Its name."),
		Of("size", &e.Size, 10, Count(1), Live, "Its size."),
	}
}

// heard collects what is wrong.
type heard []string

func (h *heard) Wrong(path string, f *Fault) {
	*h = append(*h, fmt.Sprintf("%s[%d] %s", path, f.Element-1, f.Problem))
}

func (h *heard) Unknown(path string, known []string) {
	*h = append(*h, path+" is none of "+strings.Join(known, " "))
}

// list is a list as the decoder of TOML has it.
type list = []any

// TestDecode sets fields by a table, and all others to their defaults.
func TestDecode(t *testing.T) {
	type table = map[string]any
	standard := func(change func(*values)) values {
		v := values{Name: "x", Alias: "x", Wait: 2 * time.Second, Words: []string{"a"}, On: true, Entries: []entry{}}
		change(&v)
		return v
	}
	for _, tt := range []struct {
		name  string
		table table
		want  values
		heard []string
	}{
		{"nothing", table{}, standard(func(*values) {}), nil},
		{"a name that another key follows", table{"name": "y"}, standard(func(v *values) { v.Name, v.Alias = "y", "y" }), nil},
		{"every kind", table{"alias": "z", "port": int64(8), "wait": "3s", "words": list{}, "on": false},
			standard(func(v *values) { v.Alias, v.Port, v.Wait, v.Words, v.On = "z", 8, 3*time.Second, []string{}, false }), nil},
		{"a value that is wrong", table{"wait": "1h", "port": int64(8)}, standard(func(v *values) { v.Port = 8 }), []string{"s.wait[-1] 1h0m0s is out of range"}},
		{"an element that is wrong", table{"words": list{"a", "B"}}, standard(func(*values) {}), []string{`s.words[1] "B" cannot be a name`}},
		{"a key that is not there", table{"prot": int64(8)}, standard(func(*values) {}), []string{"s.prot is none of name alias port wait words on entry"}},
		{"tables", table{"entry": list{table{"name": "b"}, table{"name": "c", "size": int64(3)}}},
			standard(func(v *values) { v.Entries = []entry{{"b", 10}, {"c", 3}} }), nil},
		{"tables that are wrong", table{"entry": list{"b", table{"size": int64(0), "colour": "red"}}},
			standard(func(v *values) { v.Entries = []entry{{}, {Size: 10}} }),
			[]string{"s.entry[0] this is text where a entry is wanted", "s.entry[1].size[-1] 0 is out of range", "s.entry[1].colour is none of name size"}},
		{"no tables", table{"entry": "b"}, standard(func(*values) {}), []string{"s.entry[-1] this is text where a list of entrys is wanted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got values
			var faults heard
			Decode(got.keys(), tt.table, At("s", &faults))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.heard, []string(faults)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecoder makes values of table after table: each is as if it were alone, and shares nothing with another.
func TestDecoder(t *testing.T) {
	type table = map[string]any
	full := table{"name": "y", "port": int64(8), "wait": "3s", "words": list{"b"}, "on": false, "entry": list{table{"name": "b", "size": int64(3)}, table{}}}
	d := NewDecoder((*values).keys)
	var made, want []values
	for _, one := range []table{full, {}, {"wait": "1h", "entry": list{"b"}}, full, {"entry": list{table{}}}, {}} {
		var alone values
		Decode(alone.keys(), one, At("s", new(heard)))
		want = append(want, alone)
		made = append(made, d.Decode(one, At("s", new(heard))))
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("(-each alone +one after the other):\n%s", diff)
	}
	made[1].Words[0] = "changed"
	made[0].Entries[0].Name = "changed"
	if got := []string{made[2].Words[0], made[5].Words[0], made[3].Entries[0].Name, d.Decode(table{}, At("s", new(heard))).Words[0]}; !slices.Equal(got, []string{"a", "a", "b", "a"}) {
		t.Errorf("what is changed in one value is seen in another: %v", got)
	}
}

// TestMerge takes the new values of live keys, and names the others that differ.
func TestMerge(t *testing.T) {
	running := values{Name: "x", Alias: "x", Port: 7, Wait: time.Second, Words: []string{"a"}, Entries: []entry{{"a", 1}, {"b", 2}}}
	with := func(change func(*values)) values {
		v := running
		change(&v)
		return v
	}
	for _, tt := range []struct {
		name         string
		next, want   values
		needsRestart []string
	}{
		{"nothing", running, running, nil},
		{"live keys and one that waits", with(func(v *values) { v.Alias, v.Port, v.Words = "y", 8, []string{"b"} }),
			with(func(v *values) { v.Alias, v.Words = "y", []string{"b"} }), []string{"port"}},
		{"a live key of an entry, in another order", with(func(v *values) { v.Entries = []entry{{"b", 5}, {"a", 1}} }),
			with(func(v *values) { v.Entries = []entry{{"b", 5}, {"a", 1}} }), nil},
		{"entries that come and go", with(func(v *values) { v.Entries = []entry{{"c", 3}, {"a", 9}} }),
			with(func(v *values) { v.Entries = []entry{{"a", 9}, {"b", 2}} }), []string{"entry c", "entry b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var merged values
			needsRestart := Merge(merged.keys(), running.keys(), tt.next.keys())
			if diff := cmp.Diff(tt.want, merged); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.needsRestart, needsRestart); diff != "" {
				t.Errorf("needs a restart (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMergeUnless has a live key wait with the one that it hangs on.
func TestMergeUnless(t *testing.T) {
	type pair struct{ at, shown string }
	keys := func(p *pair) []Key {
		return []Key{
			Of("at", &p.at, "a", InstanceName, Restart, "Where."),
			Of("shown", &p.shown, "a", InstanceName, Live, "What is seen.").Unless("at"),
		}
	}
	for _, tt := range []struct {
		name       string
		next, want pair
		waits      []string
	}{
		{"alone", pair{"a", "c"}, pair{"a", "c"}, nil},
		{"with the other", pair{"b", "c"}, pair{"a", "a"}, []string{"at", "shown"}},
	} {
		running, merged := pair{"a", "a"}, pair{}
		if waits := Merge(keys(&merged), keys(&running), keys(&tt.next)); merged != tt.want || !slices.Equal(waits, tt.waits) {
			t.Errorf("%s: %+v, waiting %v", tt.name, merged, waits)
		}
	}
	if got, want := keys(new(pair))[1].help(""), "What is seen. Live, unless at changes too."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTablesToFill are written in full below all other keys, and in the least that a section
// needs with what they need.
func TestTablesToFill(t *testing.T) {
	keys := func() []Key {
		v := new(values)
		return []Key{
			Tables("entry", &v.Entries, "entry", "{ name = \"a\" }", (*entry).keys, Live, "What there is.").MustFill(),
			Of("on", &v.On, true, Bool, Restart, "Whether."),
		}
	}
	const name = "# Its name. Must be set.\nname = \"a\"\n"
	const header = "# What there is. There must be one. Live.\n[[x.entry]]\n" + name
	for _, tt := range []struct {
		got, want string
	}{
		{Reference("x", keys()), "# Whether.\non = true\n" + header + "# Its size. Live.\nsize = 10\n"},
		{Smallest("x", keys()), header},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestDefaultIsChecked: a default goes through the parser of its key.
func TestDefaultIsChecked(t *testing.T) {
	defer func() {
		if problem := fmt.Sprint(recover()); !strings.Contains(problem, "the default of the key port: 0 is out of range") {
			t.Errorf("panic %s", problem)
		}
	}()
	var port uint16
	SetDefaults([]Key{Of("port", &port, 0, Integer[uint16](1, 65535), Restart, "Its port.")})
}

// TestComment wraps texts, and keeps what begins on a line of its own there.
func TestComment(t *testing.T) {
	long := strings.Repeat("word ", 40)
	for line := range strings.Lines(Comment(long)) {
		if len(strings.TrimRight(line, "\n")) > referenceWidth || !strings.HasPrefix(line, "# word") {
			t.Errorf("the line %q", line)
		}
	}
	if got := Comment("One.\nTwo."); got != "# One.\n# Two.\n" {
		t.Errorf("%q", got)
	}
}

// TestNearest guesses what was meant.
func TestNearest(t *testing.T) {
	words := []string{"address", "rate_total", "on"}
	for word, want := range map[string]string{"adress": "address", "rate-total": "rate_total", "ADDRESS": "address", "colour": "", "up": ""} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%s is near %q, want %q", word, got, want)
		}
	}
}

// TestNames lists keys in their order.
func TestNames(t *testing.T) {
	if got := Names(new(entry).keys()); !slices.Equal(got, []string{"name", "size"}) {
		t.Errorf("%v", got)
	}
}
