// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		{"an extension that no one knows", func(l []string) { l[2] = "Require: nothingSIPism" }, "420", "Unsupported: nothingsipism"},
		{"a body that no one knows", func(l []string) { l[8] = "Content-Type: text/plain" }, "415", "Accept: application/sdp"},
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
			w.send(bob.paths[1], bob.paths[1], transaction.UDP, []byte(strings.Join(lines, "\r\n")), nil, 0)
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

func TestMergedRequest(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, nil)
	bob.answer = false
	for _, branch := range []string{"z9hG4bK1", "z9hG4bK2"} {
		lines := plain()
		lines[1] = strings.Replace(lines[1], "z9hG4bK1", branch, 1)
		w.send(bob.paths[1], bob.paths[1], transaction.UDP, []byte(strings.Join(lines, "\r\n")), nil, 0)
	}
	w.seen = nil
	w.pass(delay)
	expect(t, "answers", w.sent(), "180", "482")
}

func TestCallsAreBounded(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, func(s *Settings) { s.MaxCalls = 2 })
	bob.answer = false
	for _, id := range []string{"1", "2", "3"} {
		lines := plain()
		lines[1], lines[5] = lines[1]+id, "Call-ID: "+id
		w.send(bob.paths[1], bob.paths[1], transaction.UDP, []byte(strings.Join(lines, "\r\n")), nil, 0)
	}
	w.seen = nil
	w.pass(delay)
	expect(t, "answers", w.sent(), "180", "180", "486")
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
			w.send(bob.paths[1], bob.paths[1], transaction.UDP, []byte(strings.Join(lines, "\r\n")), nil, 0)
			w.seen = nil
			w.pass(delay)
			expect(t, "answers", w.sent(), row.want)
			if strings.Contains(target(bob), "66") || bob.only().State != Up || alice.only().State != Up {
				t.Errorf("the call is with %s", target(bob))
			}
		})
	}
}

// The messages of RFC 4475 and RFC 5118, to an agent with a call: none ends it, and none is
// answered by more than one message at once.
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
		w.seen = nil
		bob.engine.Handle(data, transaction.Hop{Socket: 1, Remote: bob.paths[1]}, w.now, &bob.out)
		bob.flush()
		if len(w.seen) > 1 {
			t.Errorf("%s: %v", name, w.sent())
		}
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
			a.engine.Handle(data, transaction.Hop{Socket: 1, Remote: bob.paths[1]}, w.now, &a.out)
			a.flush()
		}
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(10 * time.Minute)
	})
}
