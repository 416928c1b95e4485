// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// TestIdentities passes on what a trusted proxy says of a caller or callee, and of nobody else (RFC 3325 section 5).
func TestIdentities(t *testing.T) {
	said := []string{"P-Asserted-Identity: <sip:boss@example.com>", "p-preferred-identity: <sip:boss@example.com>", "Remote-Party-ID: <sip:boss@example.com>"}
	left := func(m *message.Message) (n int) {
		for _, name := range identities {
			n += len(m.All(name))
		}
		return n
	}
	for _, tt := range []struct {
		name, caller, callee string
		request, response    int // fields that are left
	}{
		{"strangers", "2001:db8::1", "2001:db8::2", 0, 0},
		{"a caller from a proxy", "2001:db8::8", "2001:db8::2", 3, 0},
		{"a callee behind a proxy", "2001:db8::1", "2001:db8::9", 0, 3},
	} {
		r := newRig(t, func(_ *Settings, p *ProxySettings) {
			p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/127")}
		})
		r.bind("bob", "<sip:["+tt.callee+"]>")
		r.send(r.make("INVITE", bob, "1", said...), "["+tt.caller+"]:5060")
		invite := r.got("INVITE", tt.callee)
		if n := left(invite); n != tt.request {
			t.Errorf("%s: %d fields are left in\n%s", tt.name, n, invite)
		}
		for _, status := range []int{180, 200} {
			answer := message.Reply(invite, status, "Reason", "b")
			for _, name := range identities {
				answer.Add(name, "<sip:boss@example.com>")
			}
			r.send(answer, "["+tt.callee+"]:5060")
			at := slices.IndexFunc(r.inbox, func(s transaction.Send) bool { return s.Message.Status == status })
			if n := left(r.inbox[at].Message); n != tt.response {
				t.Errorf("%s: %d fields are left in\n%s", tt.name, n, r.inbox[at].Message)
			}
		}
		r.told()
		r.send(r.make("ACK", "sip:["+tt.callee+"]", "2", append(said, "Route: "+invite.Get("Record-Route"))...), "["+tt.caller+"]:5060")
		if n := left(r.got("ACK", tt.callee)); n != tt.request {
			t.Errorf("%s: %d fields are left in the ACK", tt.name, n)
		}
	}
	r := edge(t)
	for from, want := range map[string]bool{"2001:db8::7": true, "2001:db8::8": true, "2001:db8::1": false} {
		if got := r.p.believes(netip.MustParseAddr(from)); got != want {
			t.Errorf("before a next hop, %s is believed: %v", from, got)
		}
	}
}

// private is what a trusted proxy says of somebody, and what is left of it for a terminal or another proxy.
type private struct {
	name    string
	to      string
	privacy []string
	kept    bool
	left    string // of Privacy
}

var privacies = []private{
	{"nothing is asked for", "2001:db8::2", nil, true, ""},
	{"id", "2001:db8::2", []string{"id"}, false, ""},
	{"id, to a proxy", "2001:db8::9", []string{"id"}, true, "id"},
	{"none", "2001:db8::2", []string{"none"}, true, "none"},
	{"other kinds", "2001:db8::2", []string{"header; user"}, true, "header; user"},
	{"several kinds", "2001:db8::2", []string{"Header ; ID;critical"}, false, "header;critical"},
	{"critical", "2001:db8::2", []string{"critical;id"}, false, ""},
	{"two fields", "2001:db8::2", []string{"user", "id"}, false, "user"},
	{"a comma", "2001:db8::2", []string{"user,id"}, false, "user"},
	{"a longer word", "2001:db8::2", []string{"identity"}, true, "identity"},
}

// trusting is a rig between two proxies that are trusted.
func trusting(t *testing.T) *rig {
	t.Helper()
	return newRig(t, func(_ *Settings, p *ProxySettings) {
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("2001:db8::8/127")}
	})
}

func (tt *private) fields() []string {
	list := []string{"P-Asserted-Identity: \"Boss\" <sip:boss@example.com>", "P-Asserted-Identity: tel:+15550100", "Remote-Party-ID: <sip:boss@example.com>"}
	for _, one := range tt.privacy {
		list = append(list, "Privacy: "+one)
	}
	return list
}

func (tt *private) check(t *testing.T, m *message.Message) {
	t.Helper()
	want := 0
	if tt.kept {
		want = 2
	}
	if n, p := len(m.All("P-Asserted-Identity")), strings.Join(m.All("Privacy"), "|"); n != want || m.Has("Remote-Party-ID") != tt.kept || p != tt.left {
		t.Errorf("%s: %d identities, privacy %q in\n%s", tt.name, n, p, m)
	}
}

// TestPrivacyOfCallers withholds from terminals and strangers what a proxy says of a caller who does not want it (RFC
// 3325 section 7).
func TestPrivacyOfCallers(t *testing.T) {
	for _, tt := range privacies {
		r := trusting(t)
		r.bind("bob", "<sip:["+tt.to+"]>")
		r.send(r.make("INVITE", bob, "1", tt.fields()...), "[2001:db8::8]:5060")
		invite := r.got("INVITE", tt.to)
		tt.check(t, invite)
		r.send(message.Reply(invite, 200, "OK", "b"), "["+tt.to+"]:5060")
		r.told()
		r.send(r.make("ACK", "sip:["+tt.to+"]", "2", append(tt.fields(), "Route: "+invite.Get("Record-Route"))...), "[2001:db8::8]:5060")
		tt.check(t, r.got("ACK", tt.to))
	}
}

// TestPrivacyOfCallees does so in responses.
func TestPrivacyOfCallees(t *testing.T) {
	for _, tt := range privacies {
		r := trusting(t)
		r.bind("bob", "<sip:[2001:db8::8]>")
		for _, status := range []int{180, 200, 486} {
			r.send(r.make("INVITE", bob, fmt.Sprint(status), "Contact: <sip:["+tt.to+"]>"), "["+tt.to+"]:5060")
			answer := message.Reply(r.got("INVITE", "2001:db8::8"), status, "Reason", "b")
			for _, f := range tt.fields() {
				name, value, _ := strings.Cut(f, ": ")
				answer.Add(name, value)
			}
			r.send(answer, "[2001:db8::8]:5060")
			at := slices.IndexFunc(r.inbox, func(s transaction.Send) bool { return s.Message.Status == status })
			tt.check(t, r.inbox[at].Message)
		}
	}
}

// TestNextHopByName is believed at the addresses that its name was found at last, for each transport.
func TestNextHopByName(t *testing.T) {
	r := newRig(t, func(_ *Settings, p *ProxySettings) { p.NextHop = "sip:Pbx.example.net" })
	believed := func(name, from string, want bool) {
		t.Helper()
		if got := r.p.believes(netip.MustParseAddr(from)); got != want {
			t.Errorf("%s: %s is believed: %v", name, from, got)
		}
	}
	branch := "a"
	register := func(host string, to ...string) {
		t.Helper()
		branch += "a"
		r.send(r.make("REGISTER", "sip:example.com", branch, "Contact: <sip:carol@10.0.0.1>"), caller)
		var found []transaction.Target
		for _, one := range to {
			found = append(found, transaction.Target{Transport: "UDP", Remote: netip.MustParseAddrPort(one)})
		}
		if len(r.named) != 1 || r.named[0].URI.Host != host {
			t.Fatalf("%+v is looked up", r.named)
		}
		r.p.Resolved(r.named[0].ID, found, r.now, &r.out)
		r.named = nil
		r.take()
	}
	believed("at first", "2001:db8::7", false)
	register("pbx.example.net", "[2001:db8::7]:5060", "[2001:db8::9]:5060")
	believed("found", "2001:db8::7", true)
	believed("found, too", "2001:db8::9", true)
	believed("another", "2001:db8::1", false)
	register("pbx.example.net")
	believed("not found once", "2001:db8::7", true)
	register("pbx.example.net", "[2001:db8::9]:5060")
	believed("no longer there", "2001:db8::7", false)
	believed("still there", "2001:db8::9", true)
	ps := r.p.settings
	ps.NextHop = "sip:other.example.net"
	if err := r.p.Reconfigure(r.p.Engine.settings, ps); err != nil {
		t.Fatal(err)
	}
	believed("another next hop", "2001:db8::9", false)
	r.empty()
}
