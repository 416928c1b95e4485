// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// stranger is where hostile messages come from, and where their answers go.
const stranger = "[2001:db8:66::6]:5060"

// plain is an INVITE as it should be; rows change it.
func plain() []string {
	return []string{
		"INVITE sip:bob@[2001:db8:c::2] SIP/2.0", "Via: SIP/2.0/UDP " + stranger + ";branch=z9hG4bK1", "Max-Forwards: 70",
		"From: <sip:m@example.com>;tag=m", "To: <sip:bob@example.com>", "Call-ID: 1", "CSeq: 1 INVITE",
		"Contact: <sip:m@" + stranger + ">", "Content-Type: application/sdp", "Content-Length: 5", "", "offer",
	}
}

func TestRefusals(t *testing.T) {
	method := func(m string) func([]string) {
		return func(l []string) { l[0], l[6] = strings.Replace(l[0], "INVITE", m, 1), "CSeq: 1 "+m }
	}
	for _, row := range []struct {
		name   string
		change func([]string)
		want   string
		has    string
	}{
		{"as it should be", func([]string) {}, "180 200", ""},
		{"another version", func(l []string) { l[0] = strings.Replace(l[0], "2.0", "3.0", 1) }, "505", ""},
		{"another scheme", func(l []string) { l[0] = "INVITE tel:+123 SIP/2.0" }, "416", ""},
		{"an extension that no one knows", func(l []string) { l[2] = "Require: nothingSIPism" }, "420", "Unsupported: nothingSIPism"},
		{"a body that no one knows", func(l []string) { l[8] = "Content-Type: text/plain" }, "415", "Accept: application/sdp"},
		{"no tag, as in RFC 2543", func(l []string) { l[3] = "From: <sip:m@example.com>" }, "180 200", ""},
		{"an answer that no one would read", func(l []string) { l[2] = "Accept: text/nobodyKnowsThis" }, "406", ""},
		{"an answer as one kind among others", func(l []string) { l[2] = "Accept: text/plain, Application/SDP;level=1" }, "180 200", ""},
		{"no Call-ID", func(l []string) { l[5] = "Subject: x" }, "400", ""},
		{"a number for another method", func(l []string) { l[6] = "CSeq: 1 BYE" }, "400", ""},
		{"a body that is cut", func(l []string) { l[9] = "Content-Length: 500" }, "400", ""},
		{"a dialog that is not there", func(l []string) { l[4] += ";tag=none" }, "481", ""},
		{"BYE outside a dialog", method("BYE"), "481", ""},
		{"CANCEL of nothing", method("CANCEL"), "481", ""},
		{"a method that is not for us", method("REGISTER"), "405", "Allow: INVITE, ACK"},
		{"a method that no one knows", method("NEWMETHOD"), "501", "Allow: INVITE, ACK"},
		{"OPTIONS", method("OPTIONS"), "200", "Accept: application/sdp"},
		{"an ACK of nothing", method("ACK"), "", ""},
		{"an interval that is too short", func(l []string) { l[2] = "Supported: timer\r\nSession-Expires: 60" }, "422", "Min-SE: 90"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			bob := w.agent("bob", bobA, nil)
			lines := plain()
			row.change(lines)
			w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")), nil)
			w.seen = nil
			w.pass(delay)
			all := ""
			for _, f := range w.seen {
				all += string(f.data)
			}
			expect(t, "answers", w.sent(), strings.Fields(row.want)...)
			if !strings.Contains(all, row.has) {
				t.Errorf("no %q in\n%s", row.has, all)
			}
		})
	}
}

// A stream in which no message can be found any more is answered, as far as it has come, and ends.
func TestBrokenStreams(t *testing.T) {
	for _, row := range []struct {
		name, data string
		want       string
	}{
		{"no length", strings.Join(append(plain()[:9], "", ""), "\r\n"), "400"},
		{"too large", "OPTIONS sip:bob@[2001:db8:c::2] SIP/2.0\r\n" + strings.Join(plain()[1:6], "\r\n") + "\r\nCSeq: 1 OPTIONS\r\nSubject: " + strings.Repeat("x", message.MaxSize), "513"},
		{"an ACK has no answer", strings.Replace(strings.Join(append(plain()[:9], "", ""), "\r\n"), "INVITE", "ACK", 2), ""},
		{"nor has a response", "SIP/2.0 200 OK\r\n" + strings.Join(plain()[1:7], "\r\n") + "\r\n\r\n", ""},
		{"nor what is no SIP", "GET / HTTP/1.1\r\n\r\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			bob := w.agent("bob", bobA, nil)
			_, _, fault := message.Frame([]byte(row.data), message.MaxSize)
			if fault == nil {
				t.Fatal("the stream goes on")
			}
			from := netip.MustParseAddrPort("[2001:db8:66::6]:40000")
			bob.engine.Broken([]byte(row.data), fault, transaction.Target{Transport: "TCP", Local: bob.paths[1], Remote: from}, w.now, &bob.out)
			bob.flush()
			for _, f := range w.seen {
				if f.to != from || f.transport != "TCP" {
					t.Errorf("answered to %v by %s", f.to, f.transport)
				}
			}
			expect(t, "answers", w.sent(), strings.Fields(row.want)...)
			if n := bob.engine.Stats().Malformed; n != 1 {
				t.Errorf("counted %d", n)
			}
		})
	}
}

func TestMergedRequest(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, nil)
	bob.answer = false
	for _, branch := range []string{"z9hG4bK1", "z9hG4bK2"} {
		lines := plain()
		lines[1] = strings.Replace(lines[1], "z9hG4bK1", branch, 1)
		w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")), nil)
	}
	w.seen = nil
	w.pass(delay)
	expect(t, "answers", w.sent(), "180", "482")
}

// Somebody who knows Call-ID and tags of a call, but not the name under which its peer speaks, or cannot prove
// to a proxy that it is his, neither changes the call nor ends it, nor keeps the peer from doing so.
func TestImpostors(t *testing.T) {
	w, alice, bob := pair(t, nil)
	d := bob.engine.calls[1].dialog
	ask := func(method, number, from string) {
		lines := plain()
		lines[0] = strings.Replace(lines[0], "INVITE", method, 1)
		lines[1] += method + number
		lines[3] = "From: " + from + ";tag=" + d.dialogKey.remote
		lines[4] += ";tag=" + d.dialogKey.local
		lines[5], lines[6] = "Call-ID: "+d.callID, "CSeq: "+number+" "+method
		w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")), nil)
		w.seen = nil
		w.pass(delay)
	}
	for i, method := range []string{"UPDATE", "BYE", "PRACK", "OPTIONS", "ACK", "INVITE"} {
		for j, from := range []string{"<sip:m@evil.example.org>", "<sip:alice@evil.example.org>", "<sip:m@example.com>", "<tel:+15550100>"} {
			ask(method, fmt.Sprint(1000+10*i+j), from)
			want := []string{"403"}
			if method == "ACK" {
				want = nil
			}
			expect(t, method+" of "+from, w.sent(), want...)
		}
	}
	if n := bob.engine.Stats().Impostors; n != 24 {
		t.Errorf("%d are counted", n)
	}
	if got := target(bob); got != "sip:alice@"+aliceA || len(bob.events) > 0 {
		t.Errorf("bob calls %s, %v", got, bob.kinds())
	}
	alice.do(alice.engine.Hold(1, true, w.now, &alice.out)) // its number is lower, and good
	w.pass(time.Second)
	expect(t, "alice", alice.kinds(), "held")
	ask("BYE", "9000", "\"Alice\" <SIP:%61lice@EXAMPLE.com:5060;x=y>")
	expect(t, "the peer in another spelling", w.sent(), "200")
}

// A re-INVITE with an old number, or of someone who does not know the tags, changes nothing.
func TestHijacking(t *testing.T) {
	w, alice, bob := pair(t, nil)
	d := bob.engine.calls[1].dialog
	for _, row := range []struct{ name, cseq, tag, want string }{
		{"an old number", "1 INVITE", d.dialogKey.local, "500"},
		{"another tag", "9 INVITE", "guess", "481"},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines := plain()
			lines[1] += row.want
			lines[3] = "From: <sip:alice@example.com>;tag=" + d.dialogKey.remote
			lines[4] = "To: <sip:bob@example.com>;tag=" + row.tag
			lines[5], lines[6] = "Call-ID: "+d.callID, "CSeq: "+row.cseq
			w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")), nil)
			w.seen = nil
			w.pass(delay)
			expect(t, "answers", w.sent(), row.want)
			if strings.Contains(target(bob), "66") || bob.only().State != Up || alice.only().State != Up {
				t.Errorf("the call is with %s", target(bob))
			}
		})
	}
}

// torture is what the messages of RFC 4475 and RFC 5118 that sip/message takes are answered with at
// once: nothing is for responses.
var torture = map[string]string{
	"wsinv": "481", "intmeth": "501", "esc01": "180", "escnull": "405", "esc02": "501", "lwsdisp": "200", "longreq": "180", "dblreq": "405",
	"semiuri": "200", "transports": "200", "mpart01": "405", "baddate": "180", "unkscm": "416", "novelsc": "416", "unksm2": "405",
	"bext01": "420", "invut": "415", "regaut01": "405", "zeromf": "200", "cparam01": "405", "cparam02": "405", "regescrt": "405",
	"sdp01": "406", "inv2543": "180",
	"ipv6-good": "405", "port-ambiguous": "405", "port-unambiguous": "405", "via-received-param-with-delim": "481",
	"via-received-param-no-delim": "200", "ipv6-in-sdp": "180", "mult-ip-in-header": "481", "mult-ip-in-sdp": "180",
	"ipv4-mapped-ipv6": "180", "ipv6-bug-abnf-3-colons": "200", "ipv6-correct-abnf-2-colons": "200",
}

// TestTortureMessages sends them to an agent with a call, on its path: none ends it, and those with
// faults are answered as the codec says.
func TestTortureMessages(t *testing.T) {
	files, err := filepath.Glob("../message/testdata/*/*")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d messages: %v", len(files), err)
	}
	w, _, bob := pair(t, nil)
	bob.answer = false
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want := torture[strings.TrimSuffix(filepath.Base(name), ".sip")]
		if _, fault := message.Parse(data); fault != nil && fault.Status != 0 {
			want = fmt.Sprint(fault.Status)
		}
		w.seen = nil
		bob.engine.Handle(data, transaction.Target{Transport: "UDP", Local: bob.paths[1], Remote: bob.paths[1]}, w.now, &bob.out)
		bob.flush()
		expect(t, name, w.sent(), strings.Fields(want)...)
	}
	w.pass(5 * time.Minute)
	if info, ok := bob.engine.Call(1); !ok || info.State != Up {
		t.Error("the call has ended")
	}
}

func FuzzHandle(f *testing.F) {
	for _, first := range []string{"INVITE", "BYE"} {
		lines := plain()
		lines[0], lines[6] = strings.Replace(lines[0], "INVITE", first, 1), "CSeq: 1 "+first
		f.Add([]byte(strings.Join(lines, "\r\n")))
	}
	files, _ := filepath.Glob("../message/testdata/*/*")
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t)
		alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
		alice.call(toBob)
		w.pass(time.Second)
		alice.answer, bob.answer = false, false
		for _, a := range w.agents {
			a.engine.Handle(data, transaction.Target{Transport: "UDP", Local: a.paths[1], Remote: bob.paths[1]}, w.now, &a.out)
			a.flush()
		}
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(10 * time.Minute)
	})
}
