// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
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
	bob.register("Contact: <sip:b>")
	c := s.challenged()
	if r, _ := s.respond(&c, 1, "Contact: <sip:sim>"); r.Status != 200 {
		t.Fatal(r)
	}
	old := alice.challenged()
	text, err := first.State()
	if err != nil {
		t.Fatal(err)
	}

	second, err := New(settings(t), source(2))
	if err != nil {
		t.Fatal(err)
	}
	lost, err := second.Resume(text, func(string) bool { return false }, start)
	if err != nil || lost != 1 {
		t.Fatalf("%d lost, %v", lost, err)
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
	for name, text := range map[string]string{"nothing": "", "another version": `{"bindings":{"version":7}}`} {
		if _, err := second.Resume([]byte(text), func(string) bool { return true }, start); !errors.Is(err, location.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, bindings := second.Table().Len(); bindings != 2 {
		t.Errorf("after states that cannot be used, %d bindings", bindings)
	}
}
