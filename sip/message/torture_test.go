// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// torture are the messages of RFC 4475, from the archive in its appendix, and of RFC 5118, whose
// lengths of bodies are put right, with what Parse has to say of them: nothing, or a fault and
// the status that it is answered with.
var torture = map[string]struct {
	fault  string
	status int
}{
	// Section 3.1.1: valid messages.
	"rfc4475/wsinv": {}, "rfc4475/intmeth": {}, "rfc4475/esc01": {}, "rfc4475/escnull": {}, "rfc4475/esc02": {}, "rfc4475/lwsdisp": {},
	"rfc4475/longreq": {}, "rfc4475/dblreq": {}, "rfc4475/semiuri": {}, "rfc4475/transports": {}, "rfc4475/mpart01": {},
	"rfc4475/unreason": {}, "rfc4475/noreason": {},
	// Section 3.1.2: invalid ones.
	"rfc4475/badinv01": {"via", 400}, "rfc4475/clerr": {"short_body", 400}, "rfc4475/ncl": {"content_length", 400},
	"rfc4475/scalar02": {"cseq", 400}, "rfc4475/scalarlg": {"malformed_response", 0}, "rfc4475/quotbal": {"address", 400},
	"rfc4475/ltgtruri": {"request_uri", 400}, "rfc4475/lwsruri": {"request_line", 400}, "rfc4475/lwsstart": {"request_line", 400},
	"rfc4475/trws": {"request_line", 400}, "rfc4475/escruri": {"request_uri", 400}, "rfc4475/baddate": {}, "rfc4475/regbadct": {"address", 400},
	"rfc4475/badaspec": {"address", 400}, "rfc4475/baddn": {"no_end_of_header", 400}, "rfc4475/badvers": {"version", 505},
	"rfc4475/mismatch01": {"cseq_method", 400}, "rfc4475/mismatch02": {"cseq_method_unknown", 501}, "rfc4475/bigcode": {"malformed_response", 0},
	// Sections 3.2 to 3.4: what the layers above look at is no fault here.
	"rfc4475/badbranch": {"branch", 400}, "rfc4475/insuf": {"missing_header", 400}, "rfc4475/unkscm": {}, "rfc4475/novelsc": {}, "rfc4475/unksm2": {},
	"rfc4475/bext01": {}, "rfc4475/invut": {}, "rfc4475/regaut01": {}, "rfc4475/multi01": {"duplicate_header", 400}, "rfc4475/mcl01": {"content_length", 400},
	"rfc4475/bcast": {}, "rfc4475/zeromf": {}, "rfc4475/cparam01": {}, "rfc4475/cparam02": {}, "rfc4475/regescrt": {}, "rfc4475/sdp01": {}, "rfc4475/inv2543": {},

	"rfc5118/ipv6-good": {}, "rfc5118/ipv6-bad": {"request_uri", 400}, "rfc5118/port-ambiguous": {}, "rfc5118/port-unambiguous": {},
	"rfc5118/via-received-param-with-delim": {}, "rfc5118/via-received-param-no-delim": {}, "rfc5118/ipv6-in-sdp": {}, "rfc5118/mult-ip-in-header": {},
	"rfc5118/mult-ip-in-sdp": {}, "rfc5118/ipv4-mapped-ipv6": {}, "rfc5118/ipv6-bug-abnf-3-colons": {}, "rfc5118/ipv6-correct-abnf-2-colons": {},
}

// read reads a message of testdata.
func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".sip"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTorture judges each message as its RFC asks for.
func TestTorture(t *testing.T) {
	files, err := filepath.Glob("testdata/rfc*/*.sip")
	if err != nil || len(files) != len(torture) {
		t.Fatalf("%d files for %d rows, %v", len(files), len(torture), err)
	}
	for name, want := range torture {
		t.Run(name, func(t *testing.T) {
			m, f := Parse(read(t, name))
			switch {
			case want.fault == "" && f != nil:
				t.Fatalf("refused as %s", f.Name)
			case want.fault != "" && (f == nil || f.Name != want.fault || f.Status != want.status):
				t.Fatalf("the fault is %+v, want %s, %d", f, want.fault, want.status)
			case want.fault == "":
				sameAgain(t, m)
			case want.status == 0:
				if m != nil {
					t.Errorf("a message that is dropped has come: %s", m)
				}
			default:
				r, ok := ReplyFault(m, f, "tag")
				if !ok || r.Status != want.status || len(r.All("Via")) != len(m.All("Via")) || r.Get("CSeq") != m.Get("CSeq") {
					t.Errorf("the answer is %s", r)
				}
			}
		})
	}
}

// sameAgain writes a message and reads it again.
func sameAgain(t *testing.T, m *Message) {
	t.Helper()
	again, f := Parse(m.Append(nil))
	if f != nil {
		t.Fatalf("refused as %s when written:\n%s", f.Name, m)
	}
	if again.Method != m.Method || again.URI != m.URI || again.Status != m.Status || again.Reason != m.Reason || !bytes.Equal(again.Body, m.Body) {
		t.Errorf("written, it reads\n%s\nwant\n%s", again, m)
	}
	for _, h := range m.Headers {
		if h.Name != "Content-Length" && again.Get(h.Name) != m.Get(h.Name) {
			t.Errorf("%s has become %q of %q", h.Name, again.Get(h.Name), m.Get(h.Name))
		}
	}
}

// TestMeaning reads what the valid messages of RFC 4475 and RFC 5118 are about.
func TestMeaning(t *testing.T) {
	parse := func(name string) *Message {
		m, f := Parse(read(t, name))
		if f != nil {
			t.Fatalf("%s: %v", name, f)
		}
		return m
	}
	for _, tt := range []struct{ name, got, want string }{
		{"a method of odd tokens keeps its capitals", parse("rfc4475/intmeth").Method, "!interesting-Method0123456789_*+`.%indeed'~"},
		{"a method with escapes is no REGISTER", parse("rfc4475/esc02").Method, "RE%47IST%45R"},
		{"folded Via", via(t, parse("rfc4475/wsinv")).String(), "SIP/2.0/UDP 192.0.2.2;branch=390skdjuw"},
		{"three Vias of two fields", strings.Join(branches(t, parse("rfc4475/wsinv")), " "), "390skdjuw z9hG4bK9ikj8 z9hG4bK30239"},
		{"a display name without a blank", from(t, parse("rfc4475/lwsdisp")).Display, "caller"},
		{"a user with a semicolon", uri(t, parse("rfc4475/semiuri")).User, "user;par=u%40example.net"},
		{"the first of two requests in a datagram", parse("rfc4475/dblreq").Method + " " + parse("rfc4475/dblreq").Get("Call-ID"), "REGISTER dblreq.0ha0isndaksdj99sdfafnl3lk233412"},
		{"an empty reason", parse("rfc4475/noreason").Reason, ""},
		{"a reason in UTF-8", parse("rfc4475/unreason").Reason, "= 2**3 * 5**2 но сто девяносто девять - простое"},
		{"a parameter of a contact, not of its URI", contact(t, parse("rfc4475/cparam01")).Params.String(), ";unknownparam"},
		{"a parameter of a URI", contact(t, parse("rfc4475/cparam02")).URI.Params.String(), ";unknownparam"},
		{"a header in a contact", contact(t, parse("rfc4475/regescrt")).URI.Headers, "Route=%3Csip:sip.example.com%3E"},
		{"another scheme", uri(t, parse("rfc4475/unkscm")).Opaque, "totallyopaquecontent"},
		{"an address whose end is no port", uri(t, parse("rfc5118/port-ambiguous")).HostPort(), "[2001:db8::10:5070]"},
		{"an address with a port", uri(t, parse("rfc5118/port-unambiguous")).HostPort(), "[2001:db8::10]:5070"},
		{"three colons", uri(t, parse("rfc5118/ipv6-bug-abnf-3-colons")).HostPort(), "[2001:db8::c000:201]"},
		{"two colons", uri(t, parse("rfc5118/ipv6-correct-abnf-2-colons")).HostPort(), "[2001:db8::c000:201]"},
		{"an IPv4-mapped address", via(t, parse("rfc5118/ipv4-mapped-ipv6")).SentBy(), "[::ffff:192.0.2.10]:19823"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	for _, name := range []string{"rfc5118/via-received-param-with-delim", "rfc5118/via-received-param-no-delim"} {
		v := via(t, parse(name))
		if received, _ := v.Params.Get("received"); strings.Trim(received, "[]") != "2001:db8::9:255" {
			t.Errorf("%s: received from %q", name, received)
		}
	}
}

func via(t *testing.T, m *Message) Via {
	t.Helper()
	v, ok := m.Via()
	if !ok {
		t.Fatalf("no Via in\n%s", m)
	}
	return v
}

func branches(t *testing.T, m *Message) (all []string) {
	t.Helper()
	for _, value := range m.All("Via") {
		v, err := ParseVia(value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v.Branch())
	}
	return all
}

func from(t *testing.T, m *Message) Address {
	t.Helper()
	a, ok := m.From()
	if !ok {
		t.Fatalf("no From in\n%s", m)
	}
	return a
}

func contact(t *testing.T, m *Message) Address {
	t.Helper()
	a, err := ParseAddress(m.Get("Contact"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func uri(t *testing.T, m *Message) URI {
	t.Helper()
	u, err := ParseURI(m.URI)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
