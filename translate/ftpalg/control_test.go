// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestDialogues plays each script in several sizes of pieces.
func TestDialogues(t *testing.T) {
	for _, c := range dialogues {
		t.Run(c.name, func(t *testing.T) {
			counts := play(t, &poolPort, "s 220 hello\n< 220 hello\n"+c.script, nil)
			var names []string
			for name := range counts {
				names = append(names, name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != c.counts {
				t.Errorf("counted: %q, want %q", got, c.counts)
			}
		})
	}
}

// TestStatelessEPRT has the example of section 7.1, where the port is kept.
func TestStatelessEPRT(t *testing.T) {
	mapped := netip.MustParseAddrPort("192.0.2.31:5282")
	play(t, &mapped, `
		s 220 hello
		< 220 hello
		c EPRT |2|2001:db8:2::31|5282|
		> PORT 192,0,2,31,20,162`, nil)
}

// TestNoPortForEPRT: the server hears nothing of it but a NOOP.
func TestNoPortForEPRT(t *testing.T) {
	counts := play(t, nil, `
		s 220 hello
		< 220 hello
		c EPRT |2|2001:db8:2::31|5282|
		> NOOP
		s 200 ok
		< 425 Can't open data connection`, nil)
	if counts["eprt_unmapped"] != 1 {
		t.Errorf("counted: %v", counts)
	}
}

// TestWithoutEPRT is a gateway that translates EPSV alone.
func TestWithoutEPRT(t *testing.T) {
	play(t, &poolPort, `
		s 220 hello
		< 220 hello
		c EPRT |2|2001:db8:2::31|5282|
		> EPRT |2|2001:db8:2::31|5282|
		s 522 no
		< 522 no
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSV
		c EPSV
		> PASV`, func(t *talk) { t.dialogue.expect = nil })
}

// TestLongLines go on unseen, in pieces, and what follows is seen again.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	counts := play(t, &poolPort, `
		s 220 hello
		< 220 hello
		c RETR `+long+`
		> RETR `+long+`
		c EPSV `+long+`
		> EPSV `+long+`
		s 550 `+long+`
		< 550 `+long+`
		s 501-`+long+`
		< 501-`+long+`
		s 501 no
		< 501 no
		c ALGS STATUS64
		> NOOP
		s 200 `+long+`
		< 216 EPSVEPRT
		c EPSV
		> PASV
		s 227 (192,0,2,31,237,19)`+long+`
		< 229 Entering Extended Passive Mode (|||60691|)
		c AUTH `+long+`
		> AUTH `+long+`
		s 500 no
		< 500 no
		c ALGS STATUS64
		> NOOP
		s 200 ok
		< 216 EPSVEPRT`, nil)
	if counts["line_too_long"] != 7 {
		t.Errorf("counted: %v", counts)
	}
}

// TestManyCommandsWithoutReply: the client is not read until the server catches up.
func TestManyCommandsWithoutReply(t *testing.T) {
	talk := newTalk(&poolPort)
	talk.say('s', "220 hello\r\n", 100)
	const noop = "NOOP\r\n"
	server, client, _ := talk.say('c', strings.Repeat(noop, 2*maxPending), 1<<20)
	if server != strings.Repeat(noop, maxPending) || client != "" || !talk.dialogue.full() {
		t.Fatalf("the server heard %d bytes, the client %q; full: %t", len(server), client, talk.dialogue.full())
	}
	if server, _, _ := talk.say('c', noop, 100); server != "" {
		t.Errorf("the server heard %q", server)
	}
	talk.say('s', "200 ok\r\n", 100)
	if server, _, _ := talk.say('c', noop+noop, 100); server != noop {
		t.Errorf("the server heard %q", server)
	}
}

// TestLastWords without an end of line arrive.
func TestLastWords(t *testing.T) {
	talk := newTalk(&poolPort)
	var out output
	talk.dialogue.fromServer([]byte("220 hel"), &out)
	talk.dialogue.fromClient([]byte("QUI"), &out)
	talk.dialogue.endOfClient(&out)
	talk.dialogue.endOfServer(&out)
	if string(out.client) != "220 hel" || string(out.server) != "QUI" {
		t.Errorf("the client heard %q, the server %q", out.client, out.server)
	}
	if talk.dialogue.full() {
		t.Error("a reply is still waited for")
	}
}

// TestTransferring tells when silence means nothing, and interruptible when a word
// of ours would not break another's.
func TestTransferring(t *testing.T) {
	talk := newTalk(&poolPort)
	check := func(when string, transferring, interruptible bool) {
		t.Helper()
		if got := talk.dialogue.transferring(); got != transferring {
			t.Errorf("%s: transferring is %t", when, got)
		}
		if got := talk.dialogue.interruptible(); got != interruptible {
			t.Errorf("%s: interruptible is %t", when, got)
		}
	}
	check("before the greeting", false, true)
	talk.say('s', "220-hello\r\n", 100)
	check("in the greeting", false, false)
	talk.say('s', "220 hello\r\n", 100)
	talk.say('c', "RETR file\r\n", 100)
	check("command sent", false, true)
	talk.say('s', "150 Opening\r\n", 100)
	check("transfer begun", true, true)
	talk.say('s', "226 Done\r\n", 100)
	check("transfer ended", false, true)
	talk.say('c', "AUTH TLS\r\n", 100)
	check("AUTH issued", false, false)
}
