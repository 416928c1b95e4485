// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/sip/location"
)

// TestState goes on in another process: with the bindings and the numbers of SIMs, and without
// its nonces, which are asked for again without asking the user.
func TestState(t *testing.T) {
	first := engine(t)
	alice, bob, s := newPhone(t, first, "alice"), newPhone(t, first, "bob"), newSIM(t, first)
	alice.register("Contact: <sip:a>")
	bob.flow = "connection 7"
	bob.register(`Contact: <sip:b>;+sip.instance="<urn:uuid:1>";reg-id=1`)
	c := s.challenged()
	if r, _ := s.respond(&c, 1, "Contact: <sip:sim>"); r.Status != 200 {
		t.Fatal(r)
	}
	old := alice.challenged()
	records := map[string][]byte{}
	first.Changed(func(key string, record []byte) { records[key] = slices.Clone(record) })
	again := 0
	if first.Changed(func(string, []byte) { again++ }); len(records) != 5 || again != 0 {
		t.Fatalf("%d records, and %d that have not changed", len(records), again)
	}

	first.ChangeAll()
	if first.Changed(func(string, []byte) { again++ }); again != len(records) {
		t.Errorf("%d of %d records again", again, len(records))
	}

	second, err := New(settings(t), source(2))
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for key, record := range records {
		n, err := second.Restore(key, record, func(string) bool { return false }, start)
		if lost += n; err != nil {
			t.Fatal(key, err)
		}
	}
	if lost != 1 {
		t.Fatalf("%d lost", lost)
	}
	alice.e, bob.e, s.e = second, second, second
	r := alice.answer(&old, 1)
	if !stale(t, r) {
		t.Errorf("a nonce of the first is answered by\n%s", r)
	}
	if r := alice.register(); r.Get("Contact") != "<sip:a>;expires=3600" {
		t.Errorf("alice has\n%s", r)
	}
	if r := bob.register(); r.Has("Contact") {
		t.Errorf("bob's connection is gone:\n%s", r)
	}
	c = s.challenged()
	if r, fresh := s.respond(&c, 1); r.Status != 200 || !fresh {
		t.Errorf("the SIM's number is fresh: %t\n%s", fresh, r)
	}
	if string(second.routes.key[:]) != string(first.routes.key[:]) || string(second.auth.key[:]) == string(first.auth.key[:]) {
		t.Error("the keys of routes and of nonces")
	}
	for name, r := range map[string][2]string{
		"nothing": {"bindings sip:a", ""}, "another kind": {"of another kind", ""}, "no number": {"sqn alice", "x"}, "a number too large": {"sqn alice", "281474976710656"}, "no key": {"routes", "short"},
	} {
		if _, err := second.Restore(r[0], []byte(r[1]), func(string) bool { return true }, start); !errors.Is(err, location.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, bindings := second.Table().Len(); bindings != 2 {
		t.Errorf("after states that cannot be used, %d bindings", bindings)
	}
}

// TestSkipNumbers leaves out what a crash may have used, also of who has had no challenge yet.
func TestSkipNumbers(t *testing.T) {
	e := engine(t)
	before := e.auth.last(&e.directory.byName["sim@"+realm].Account)
	e.SkipNumbers()
	s := newSIM(t, e)
	c := s.challenged()
	if r, fresh := s.respond(&c, 1); r.Status != 200 || !fresh {
		t.Errorf("the number is fresh: %t\n%s", fresh, r)
	}
	if after := e.auth.last(&e.directory.byName["sim@"+realm].Account); after>>5 != before>>5+skipped+1 {
		t.Errorf("%d after %d", after, before)
	}
	// A name that comes back goes on where it was.
	if err := e.Reconfigure(func() Settings { s := settings(t); s.Accounts = nil; return s }()); err != nil {
		t.Fatal(err)
	}
	if err := e.Reconfigure(settings(t)); err != nil {
		t.Fatal(err)
	}
	if c := s.challenged(); c.Nonce == "" {
		t.Fatal(c)
	}
	if after := e.auth.last(&e.directory.byName["sim@"+realm].Account); after>>5 != before>>5+skipped+2 {
		t.Errorf("after a reload %d", after)
	}
}
