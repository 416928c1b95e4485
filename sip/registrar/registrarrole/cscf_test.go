// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/message"
)

// core is a network of three configurations of the same server:
//
//	terminals -- P-CSCF 2001:db8::6 -- I-CSCF 2001:db8::4 -- S-CSCF 2001:db8::5
type core struct {
	*world
	p, i, s *server
}

const pcscf = "2001:db8::6"

func newCore(t *testing.T) *core {
	t.Helper()
	c := &core{world: newWorld(t)}
	c.file("subscribers.toml", strings.ReplaceAll(subscribers, "[[subscriber]]", "[[subscriber]]\nscscf = \"sip:[2001:db8::5]:5060\""))
	c.s = c.serve("name = \"s\"\nlisten = [\"2001:db8::5\"]\nlisten_tls = []\nservice_route = [\"sip:[2001:db8::5]:5060\"]\nkeep_state = false")
	c.i = c.serve("name = \"i\"\nlisten = [\"2001:db8::4\"]\nlisten_tls = []\nprove_callers = false\nkeep_state = false")
	c.p = c.serve("name = \"p\"\nlisten = [\"2001:db8::6\"]\nlisten_tls = [\"2001:db8::6\"]\nsubscribers_file = \"\"\nnext_hop = \"sip:[2001:db8::4]:5060\"\ntrusted = [\"2001:db8::5\"]\nkeep_state = false")
	return c
}

// routes are what a terminal of the network sends by.
func routes(p *phone, registered string) []string {
	transport := strings.ToLower(p.transport)
	return []string{fmt.Sprintf("Route: <sip:[%s]:5060;lr;transport=%s>", pcscf, transport), "Route: " + registered}
}

// TestCSCFs registers terminals through P- and I-CSCF at the S-CSCF, one of them with a SIM, and has
// them call each other: all that reaches a terminal comes by its P-CSCF, on the connection that the
// terminal holds open.
func TestCSCFs(t *testing.T) {
	configtest.InEffect(t, "registrar", "next_hop")
	c := newCore(t)
	for _, transport := range []string{"UDP", "TCP"} {
		t.Run(transport, func(t *testing.T) {
			c.t = t
			sim, bob := c.phone("sim@example.net", transport, pcscf, 1), c.phone("bob", transport, pcscf, 2)
			var window aka.Window
			sim.sim(&window)
			for _, one := range []*phone{sim, bob} {
				if r := one.mustRegister("Supported: path"); r.Get("Service-Route") != "<sip:[2001:db8::5]:5060;lr>" || !r.Has("Path") {
					t.Errorf("%s has registered:\n%s", one.name, r)
				}
			}
			if n := len(c.p.has(t, "")) + len(c.i.has(t, "")); n != 0 {
				t.Errorf("P- and I-CSCF have %d bindings", n)
			}
			list := c.s.has(t, "sip:bob@example.net")
			if len(list) != 1 || len(list[0].Path) != 1 || !strings.Contains(list[0].Path[0], "@["+pcscf+"]:5060") {
				t.Fatalf("the S-CSCF has %+v", list)
			}
			_, early := sim.call("sip:bob@example.net", routes(sim, "<sip:[2001:db8::5]:5060;lr>")...)
			if early != nil {
				t.Fatalf("the S-CSCF asks for no proof:\n%s", early)
			}
			got := bob.expect("INVITE")
			if n := len(got.All("Record-Route")); n < 3 {
				t.Errorf("%d servers stay in the path:\n%s", n, got)
			}
			answer := bob.reply(got, 200)
			sim.send(sim.inDialog("ACK", sim.expect("200")))
			bob.expect("ACK")
			bob.send(bob.back("BYE", got, answer))
			sim.reply(sim.expect("BYE"), 200)
			bob.expect("200")
			for _, one := range []*phone{sim, bob} {
				one.register("Expires: 0")
			}
		})
	}
}

// TestICSCF has a terminal of one S-CSCF call one of another: the call goes by the I-CSCF, which knows
// where, and alone is trusted there to have seen who calls. Nobody calls by it but such servers.
func TestICSCF(t *testing.T) {
	configtest.InEffect(t, "registrar", "icscf")
	c := newCore(t)
	const first, other = "2001:db8::5", "2001:db8::3"
	c.file("subscribers.toml", strings.NewReplacer(
		`private_id = "alice"`, `private_id = "alice"`+"\nscscf = \"sip:[2001:db8::5]:5060\"", `private_id = "bob"`, `private_id = "bob"`+"\nscscf = \"sip:[2001:db8::3]:5060\"",
	).Replace(subscribers))
	serving := func(at string) string {
		return fmt.Sprintf("listen = [%[1]q]\nlisten_tls = []\nservice_route = [\"sip:[%[1]s]:5060\"]\nkeep_state = false\nicscf = \"sip:[2001:db8::4]:5060\"\ntrusted = [\"2001:db8::4\"]", at)
	}
	c.reload(c.s, "name = \"s\"\n"+serving(first))
	c.reload(c.i, fmt.Sprintf("name = \"i\"\nlisten = [\"2001:db8::4\"]\nlisten_tls = []\nkeep_state = false\nrecord_route = false\ntrusted = [%q, %q]", first, other))
	c.serve("name = \"s2\"\n" + serving(other))
	alice, bob := c.phone("alice", "UDP", pcscf, 1), c.phone("bob", "UDP", pcscf, 2)
	for _, one := range []*phone{alice, bob} {
		one.mustRegister("Supported: path")
	}
	if len(c.s.has(t, "sip:alice@example.net")) != 1 || len(c.s.has(t, "sip:bob@example.net")) != 0 {
		t.Fatal("the I-CSCF has not chosen by the file")
	}
	invite, early := alice.call("sip:bob@example.net", routes(alice, "<sip:[2001:db8::5]:5060;lr>")...)
	if early != nil {
		t.Fatalf("the S-CSCF asks for no proof:\n%s", early)
	}
	got := bob.expect("INVITE")
	var hops []string
	for _, value := range got.All("Via") {
		v, err := message.ParseVia(value)
		if err != nil {
			t.Fatal(err)
		}
		hops = append(hops, v.Host)
	}
	if want := []string{pcscf, other, "2001:db8::4", first, pcscf, "2001:db8::1"}; !slices.Equal(hops, want) {
		t.Errorf("it has come by %v, the last first; want %v", hops, want)
	}
	bob.reply(got, 486)
	alice.acknowledge(invite, alice.expect("486"))
	if _, early := alice.call("sip:bob@example.net", "Route: <sip:[2001:db8::6]:5060;lr>"); early != nil {
		t.Errorf("the I-CSCF asks a terminal for no proof:\n%s", early)
	}
}

// TestEdge has a P-CSCF carry nothing but to its network, and nothing back that has no token.
func TestEdge(t *testing.T) {
	c := newCore(t)
	alice := c.phone("alice", "UDP", pcscf, 1)
	for _, tt := range []struct {
		name, first string
		status      int
	}{
		{"a route elsewhere", "Route: <sip:[2001:db8::6]:5060;lr>", 403},
		{"a token that was made up", "Route: <sip:0123456789abcdef@[2001:db8::6]:5060;lr>", 403},
		{"by the next hop, which wants proof", "Route: <sip:[2001:db8::4]:5060;lr>", 407},
	} {
		alice.send(alice.request("OPTIONS", "sip:victim@[2001:db8::2]:5060", tt.first, "Route: <sip:[2001:db8::2]:5060;lr>"))
		if r := alice.final(); r.Status != tt.status {
			t.Errorf("%s:\n%s", tt.name, r)
		}
	}
	alice.send(alice.request("REGISTER", "sip:example.com"))
	if r := alice.final(); r.Status != 403 {
		t.Errorf("another network's registrar:\n%s", r)
	}
	if n := c.p.value("requests_total", "foreign_target"); n != 3 {
		t.Errorf("%v were refused at the edge", n)
	}
}
