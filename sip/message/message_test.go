// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// request is a small one, with a further field and a body.
func request(field, body string) string {
	if field != "" {
		field += "\r\n"
	}
	return "OPTIONS sip:bob@example.com SIP/2.0\r\nv: SIP/2.0/UDP client.example.com;branch=z9hG4bK1\r\nf: <sip:alice@example.com>;tag=1\r\n" +
		"t: <sip:bob@example.com>\r\ni: 1@client\r\nCSEQ: 7 OPTIONS\r\n" + field + "\r\n" + body
}

// TestFoldedOften reads a field of thousands of folds, and copies it but a few times.
func TestFoldedOften(t *testing.T) {
	text := []byte(request("Subject: a"+strings.Repeat("\r\n a", 15_000), ""))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, f := Parse(text)
	runtime.ReadMemStats(&after)
	if f != nil || len(m.Get("Subject")) != 30_001 {
		t.Fatal(f)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 100*uint64(len(text)) {
		t.Errorf("%d octets are taken for %d", n, len(text))
	}
}

// TestFaults finds what RFC 4475 does not try.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, text, fault string
		status            int
	}{
		{"good", request("", ""), "", 0},
		{"behind keep-alives", "\r\n\r\n" + request("", ""), "", 0},
		{"empty", "", "not_sip", 0},
		{"another protocol", "GET / HTTP/1.1\r\n\r\n", "not_sip", 0},
		{"noise", "\x00\x01\r\n\r\n", "not_sip", 0},
		{"no end", strings.TrimRight(request("", ""), "\r\n"), "no_end_of_header", 400},
		{"a line feed that hides a field", request("X: y\nRoute: <sip:evil>", ""), "line_end", 400},
		{"a carriage return that hides a field", request("X: y\rRoute: <sip:evil>", ""), "line_end", 400},
		{"a line without a colon", request("Foobar", ""), "header_line", 400},
		{"a name that is no token", request("Foo bar: x", ""), "header_line", 400},
		{"too many parameters", request("Route: <sip:a"+strings.Repeat(";b", maxParams+1)+">", ""), "address", 400},
		{"a fold before the first field", strings.Replace(request("", ""), "\r\nv:", "\r\n v:", 1), "header_line", 400},
		{"too many fields", request(strings.Repeat("X: y\r\n", MaxHeaders)+"X: y", ""), "many_headers", 400},
		{"a field twice", request("Expires: 1\r\nExpires: 1", ""), "duplicate_header", 400},
		{"no Via", strings.Replace(request("", ""), "v:", "x-v:", 1), "missing_header", 400},
		{"an empty Call-ID", strings.Replace(request("", ""), "1@client", "", 1), "missing_header", 400},
		{"a route that is none", request("Route: sip:a@b c", ""), "address", 400},
		{"an open bracket", request("Contact: <sip:a@b", ""), "address", 400},
		{"a display name of words that are no tokens", request("Contact: Bell, Alexander <sip:a@b>", ""), "address", 400}, // RFC 4475 section 3.1.2.15
		{"words behind a bracket", request("Contact: <sip:a@b> x", ""), "address", 400},
		{"an empty parameter", request("Contact: <sip:a@b>;", ""), "address", 400},
		{"a quoted parameter", request(`Contact: <sip:a@b>;+sip.instance="<urn:uuid:f;,>"`, ""), "", 0},
		{"all contacts", request("Contact: *", ""), "", 0},
		{"a sequence number at its limit", strings.Replace(request("", ""), "7 OPT", "2147483647 OPT", 1), "", 0},
		{"a sequence number above", strings.Replace(request("", ""), "7 OPT", "2147483648 OPT", 1), "cseq", 400},
		{"a negative sequence number", strings.Replace(request("", ""), "7 OPT", "-7 OPT", 1), "cseq", 400},
		{"a method of the CSeq in other capitals", strings.Replace(request("", ""), "7 OPTIONS", "7 options", 1), "cseq_method", 400},
		{"Max-Forwards above its limit", request("Max-Forwards: 256", ""), "max_forwards", 400},
		{"a length without a number", request("Content-Length: five", "hello"), "content_length", 400},
		{"a length with a sign", request("Content-Length: +5", "hello"), "content_length", 400},
		{"the same length twice", request("Content-Length: 5\r\nl: 5", "hello"), "", 0},
		{"a length above all bounds", request("Content-Length: 99999999999999999999", "hello"), "content_length", 400},
		{"a body that is cut", request("Content-Length: 6", "hello"), "short_body", 400},
		{"a version to come", strings.Replace(request("", ""), "SIP/2.0\r\nv", "SIP/2.1\r\nv", 1), "version", 505},
		{"a URI without a host", strings.Replace(request("", ""), "sip:bob@example.com SIP", "sip:bob@ SIP", 1), "request_uri", 400},
		{"a URI with an escape that is none", strings.Replace(request("", ""), "sip:bob@example.com SIP", "sip:b%zzb@example.com SIP", 1), "request_uri", 400},
		{"a URI with port 0", strings.Replace(request("", ""), "sip:bob@example.com SIP", "sip:bob@example.com:0 SIP", 1), "request_uri", 400},
		{"a URI with a zone", strings.Replace(request("", ""), "sip:bob@example.com SIP", "sip:[fe80::1%25eth0] SIP", 1), "request_uri", 400},
		{"a response without a reason", strings.Replace(request("", ""), "OPTIONS sip:bob@example.com SIP/2.0", "SIP/2.0 200", 1), "malformed_response", 0},
		{"a response of four digits", strings.Replace(request("", ""), "OPTIONS sip:bob@example.com SIP/2.0", "SIP/2.0 0200 OK", 1), "malformed_response", 0},
		{"too large", request("", strings.Repeat("x", MaxSize)), "too_large", 0},
	} {
		m, f := Parse([]byte(tt.text))
		switch {
		case f == nil && tt.fault != "", f != nil && (f.Name != tt.fault || f.Status != tt.status):
			t.Errorf("%s: %+v, want %s", tt.name, f, tt.fault)
		case (m == nil) != (tt.fault != "" && tt.status == 0):
			t.Errorf("%s: the message is %v", tt.name, m)
		case f != nil && !slices.Contains(FaultNames(), f.Name):
			t.Errorf("%s: %s is not counted", tt.name, f.Name)
		}
	}
}

// TestFields finds fields by any name, parts lists, and changes them.
func TestFields(t *testing.T) {
	m, f := Parse([]byte(request("k: path, outbound\r\nSupported: gruu\r\nRoute: <sip:a;lr>, \"b, c\" <sip:b?x=%2c>;x=\"<,\"\r\nSubject: a\r\n\t folded  \r\n line", "body")))
	if f != nil {
		t.Fatal(f)
	}
	if got := fmt.Sprint(m.Tokens("supported")); got != "[path outbound gruu]" {
		t.Errorf("supported are %s", got)
	}
	if got := m.All("route"); len(got) != 2 || got[1] != `"b, c" <sip:b?x=%2c>;x="<,"` {
		t.Errorf("routes are %q", got)
	}
	if m.Get("Subject") != "a folded line" || string(m.Body) != "body" {
		t.Errorf("subject %q, body %q", m.Get("Subject"), m.Body)
	}
	if got := m.Unsupported("Supported", "PATH", "gruu"); len(got) != 1 || got[0] != "outbound" {
		t.Errorf("not supported are %q", got)
	}
	c := m.Clone()
	c.Prepend("Via", "SIP/2.0/TCP new")
	c.Set("Subject", "b")
	c.RemoveFirst("Route")
	c.Remove("Supported")
	if got := c.All("Via"); len(got) != 2 || got[0] != "SIP/2.0/TCP new" || c.Headers[0].Value != got[0] {
		t.Errorf("Vias are %q", got)
	}
	if len(c.All("Route")) != 1 || c.Has("Supported") || c.Get("Subject") != "b" || m.Get("Subject") != "a folded line" || len(m.All("Route")) != 2 {
		t.Errorf("the copy is\n%s\nof\n%s", c, m)
	}
	short := m.Clone()
	short.Compact()
	if text := short.String(); !strings.Contains(text, "\r\ni: 1@client\r\n") || !strings.HasSuffix(text, "Content-Length: 4\r\n\r\nbody") {
		t.Errorf("compact:\n%s", text)
	}
}

// TestURIEquality compares the URIs of RFC 3261 section 19.1.4, and others.
func TestURIEquality(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp", true},
		{"sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5", true},
		{"sip:carol@chicago.com;newparam=5", "sip:carol@chicago.com;security=on", true},
		{"sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com", "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com", true},
		{"sip:alice@atlanta.com?subject=project%20x&priority=urgent", "sip:alice@atlanta.com?priority=urgent&subject=project%20x", true},
		{"SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP", false},
		{"sip:bob@biloxi.com", "sip:bob@biloxi.com:5060", false},
		{"sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp", false},
		{"sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp", false},
		{"sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting", false},
		{"sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4", false},
		{"sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off", false},
		{"sip:bob@biloxi.com", "sips:bob@biloxi.com", false},
		{"sip:bob@biloxi.com", "sip:biloxi.com", false},
		{"sip:bob:pass@biloxi.com", "sip:bob@biloxi.com", false},
		{"sip:bob@[2001:DB8:0::1]", "sip:bob@[2001:db8::1]", true},
		{"tel:+1555", "tel:+1555", true},
		{"tel:+1555", "tel:+1556", false},
	} {
		a, err := ParseURI(tt.a)
		b, errB := ParseURI(tt.b)
		if err != nil || errB != nil {
			t.Fatalf("%s, %s: %v, %v", tt.a, tt.b, err, errB)
		}
		if a.Equal(&b) != tt.want || b.Equal(&a) != tt.want {
			t.Errorf("%s and %s: equal %t and %t, want %t", tt.a, tt.b, a.Equal(&b), b.Equal(&a), tt.want)
		}
	}
}

// TestAOR makes one key of all forms of an address of record.
func TestAOR(t *testing.T) {
	for uri, want := range map[string]string{
		"sip:alice@example.com":                            "sip:alice@example.com",
		"SIP:%61lice:secret@EXAMPLE.com:5060;user=phone?a": "sip:alice@example.com",
		"sip:Alice@example.com":                            "sip:Alice@example.com",
		"sips:alice@example.com:5061":                      "sips:alice@example.com",
		"sip:alice@example.com:5061":                       "sip:alice@example.com:5061",
		"sip:alice@[2001:DB8::0:1]:5060":                   "sip:alice@[2001:db8::1]",
		"sip:example.com":                                  "sip:example.com",
		"tel:+1(555)01-00;phone-context=x":                 "tel:+15550100",
		"mailto:alice@example.com":                         "",
	} {
		u, err := ParseURI(uri)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := u.AOR(); got != want || ok != (want != "") {
			t.Errorf("%s: %q, ok %t, want %q", uri, got, ok, want)
		}
	}
}

// TestReceive notes where a request came from, and where its response goes (RFC 3261 section 18.2,
// RFC 3581 section 4).
func TestReceive(t *testing.T) {
	four, six := netip.MustParseAddrPort("192.0.2.9:40000"), netip.MustParseAddrPort("[2001:db8::9]:40000")
	for _, tt := range []struct {
		name, via string
		from      netip.AddrPort
		want      string
		reply     string
	}{
		{"the same address", "192.0.2.9;branch=1", four, "192.0.2.9;branch=1", "192.0.2.9:5060"},
		{"the same address with a port", "192.0.2.9:5070;branch=1", four, "192.0.2.9:5070;branch=1", "192.0.2.9:5070"},
		{"another address", "192.0.2.1:5070", four, "192.0.2.1:5070;received=192.0.2.9", "192.0.2.9:5070"},
		{"a name", "client.example.com", four, "client.example.com;received=192.0.2.9", "192.0.2.9:5060"},
		{"rport", "192.0.2.9;rport;branch=1", four, "192.0.2.9;rport=40000;branch=1;received=192.0.2.9", "192.0.2.9:40000"},
		{"an IPv6 address, without brackets", "[2001:db8::1]:5070;rport", six, "[2001:db8::1]:5070;rport=40000;received=2001:db8::9", "[2001:db8::9]:40000"},
		{"what the sender claims", "192.0.2.9;received=203.0.113.5;maddr=203.0.113.5", four, "192.0.2.9;maddr=203.0.113.5", "192.0.2.9:5060"},
		{"an IPv4 address of an IPv6 socket", "192.0.2.9", netip.MustParseAddrPort("[::ffff:192.0.2.9]:40000"), "192.0.2.9", "[::ffff:192.0.2.9]:5060"},
	} {
		m := &Message{Method: "OPTIONS"}
		m.Add("Via", "SIP/2.0/UDP "+tt.via)
		m.Add("Via", "SIP/2.0/UDP below")
		m.Receive(tt.from)
		if got := m.Get("Via"); got != "SIP/2.0/UDP "+tt.want || len(m.All("Via")) != 2 {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := m.ReplyTo(tt.from); got.String() != tt.reply {
			t.Errorf("%s: the response goes to %s, want %s", tt.name, got, tt.reply)
		}
	}
}

// TestReply copies what a response has of its request.
func TestReply(t *testing.T) {
	m, _ := Parse([]byte(request("Timestamp: 5\r\nRoute: <sip:a;lr>\r\nContact: <sip:alice@c>", "")))
	for _, tt := range []struct {
		status int
		tag    string
		to     string
		stamp  bool
	}{
		{100, "x", "<sip:bob@example.com>", true}, {200, "x", "<sip:bob@example.com>;tag=x", false}, {404, "", "<sip:bob@example.com>", false},
	} {
		r := Reply(m, tt.status, "Reason", tt.tag)
		if r.Get("To") != tt.to || r.Has("Timestamp") != tt.stamp || r.Has("Route") || r.Has("Contact") || r.Get("Call-ID") != "1@client" || r.Get("Via") != m.Get("Via") || len(r.Body) > 0 {
			t.Errorf("%d:\n%s", tt.status, r)
		}
	}
	m.Set("To", "<sip:bob@example.com>;tag=own")
	if r := Reply(m, 200, "OK", "x"); r.Get("To") != m.Get("To") {
		t.Errorf("a tag was changed: %s", r.Get("To"))
	}
	m.Method = "ACK"
	if _, ok := ReplyFault(m, faultVia, "x"); ok {
		t.Error("an ACK is answered")
	}
}

// TestFrame finds messages in a stream, octet by octet.
func TestFrame(t *testing.T) {
	one := request("Content-Length: 4", "body")
	for _, tt := range []struct {
		name, data string
		want       string // what was found: M for a message, P for a keep-alive, B for blank
		fault      string
	}{
		{"one message", one, "M", ""},
		{"two messages", one + one, "MM", ""},
		{"a blank line between", one + "\r\n" + one, "MBM", ""},
		{"a keep-alive", "\r\n\r\n" + one, "PM", ""},
		{"half a message", one[:len(one)-1], "", ""},
		{"no length", request("", ""), "", "content_length"},
		{"a negative length", request("l: -5", ""), "", "content_length"},
		{"two lengths", request("l: 5\r\nContent-Length: 6", ""), "", "content_length"},
		{"a body above the bound", request("l: 2000", ""), "", "too_large"},
		{"a header without an end", strings.Repeat("x", 1000), "", "too_large"},
	} {
		for _, step := range []int{1, 7, len(tt.data)} {
			found, fault, buffer := "", "", []byte(nil)
			for i := 0; i < len(tt.data) && fault == ""; i += step {
				buffer = append(buffer, tt.data[i:min(i+step, len(tt.data))]...)
				for {
					n, ping, f := Frame(buffer, 1000)
					if f != nil {
						fault = f.Name
					}
					if n == 0 {
						break
					}
					switch {
					case ping:
						found += "P"
					case n == 2:
						found += "B"
					default:
						found += "M"
						if m, f := Parse(buffer[:n]); f != nil || string(m.Body) != "body" {
							t.Errorf("%s: %v", tt.name, f)
						}
					}
					buffer = buffer[n:]
				}
			}
			if found != tt.want || fault != tt.fault {
				t.Errorf("%s in steps of %d: %q, fault %q, want %q, %q", tt.name, step, found, fault, tt.want, tt.fault)
			}
		}
	}
}

// TestMaxDatagram parts UDP from TCP (RFC 3261 section 18.1.1).
func TestMaxDatagram(t *testing.T) {
	for mtu, want := range map[int]int{0: 1300, 1500: 1300, 1280: 1080, 100: 0} {
		if got := MaxDatagram(mtu); got != want {
			t.Errorf("MTU %d: %d, want %d", mtu, got, want)
		}
	}
}

// TestValues reads what fields have beside their addresses.
func TestValues(t *testing.T) {
	for _, tt := range []struct {
		contact string
		q       uint16
		ok      bool
		port    uint16
	}{
		{"<sip:a@h>", DefaultQ, true, 5060},
		{"<sip:a@h:5070>;q=0.5", 500, true, 5070},
		{"<sip:a@h;transport=TLS>;q=0", 0, true, 5061},
		{"<sips:a@h>;q=1.000", 1000, true, 5061},
		{"<sip:a@h>;q=1.001", 0, false, 5060},
		{"<sip:a@h>;q=0.1234", 0, false, 5060},
		{"<sip:a@h>;q=.5", 0, false, 5060},
		{"<sip:a@h>;q=x", 0, false, 5060},
	} {
		m := new(Message)
		m.Add("Contact", "*")
		m.Add("Contact", tt.contact)
		list := m.Addresses("contact")
		if len(list) != 1 {
			t.Fatalf("%s: %v", tt.contact, list)
		}
		q, ok := list[0].Q()
		if ok != tt.ok || q != tt.q || list[0].URI.ServicePort() != tt.port {
			t.Errorf("%s: q %d, %t, port %d", tt.contact, q, ok, list[0].URI.ServicePort())
		}
	}
	for _, tt := range []struct{ value, head, name, param string }{
		{"600;refresher=uac", "600", "refresher", "uac"},
		{"1@host ; To-Tag = a;from-tag=b", "1@host", "to-tag", "a"},
		{"600", "600", "refresher", ""},
		{`600;a="b`, "600", "a", ""},
	} {
		head, p := Parameters(tt.value)
		if value, _ := p.Get(tt.name); head != tt.head || value != tt.param {
			t.Errorf("%s: %q with %s %q", tt.value, head, tt.name, value)
		}
	}
	m := new(Message)
	m.Add("Supported", "timer, 100REL")
	m.Add("Supported", "path")
	if !m.HasToken("Supported", "100rel") || !m.HasToken("Supported", "path") || m.HasToken("Supported", "100") {
		t.Errorf("the elements are %q", m.Tokens("Supported"))
	}
}
