// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// check fails if a dialogue holds more than it may.
func (t *talk) check(tb testing.TB) {
	tb.Helper()
	d := t.dialogue
	// A Telnet command of two bytes may be the last of a line.
	for side, l := range map[string]*lines{"client": &d.commands, "server": &d.replies} {
		if len(l.line) > maxLine+1 {
			tb.Fatalf("%d bytes of the %s are held", len(l.line), side)
		}
	}
	if d.pending.size < 0 || d.pending.size > maxPending {
		tb.Fatalf("%d commands are without a reply", d.pending.size)
	}
	if (d.mode == undecided) != (d.mode != transparent && d.pending.find(0, authReply) >= 0) {
		tb.Fatalf("the mode is %d, but AUTH is awaited at %d", d.mode, d.pending.find(0, authReply))
	}
}

// plain reports whether bytes have nothing in them that a dialogue changes.
func plain(data []byte, words ...string) bool {
	upper := strings.ToUpper(string(data))
	for _, w := range words {
		if strings.Contains(upper, w) {
			return false
		}
	}
	return bytes.IndexByte(data, telnetIAC) < 0
}

// said is what one side says in a script: whole lines, and by a capital letter parts of lines.
func said(script, side string) string {
	var all strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, side+" "); ok {
			all.WriteString(unquote(text) + "\r\n")
		} else if text, ok := strings.CutPrefix(line, strings.ToUpper(side)+" "); ok {
			all.WriteString(unquote(text))
		}
	}
	return all.String()
}

// FuzzCommands has a hostile client, whose server takes every command, or none.
func FuzzCommands(f *testing.F) {
	for _, c := range dialogues {
		f.Add([]byte(said(c.script, "c")), uint8(1), true)
		f.Add([]byte(said(c.script, "c")), uint8(7), false)
	}
	f.Fuzz(func(t *testing.T, said []byte, piece uint8, willing bool) {
		reply := "200 ok\r\n"
		if !willing {
			reply = "500 no\r\n"
		}
		var results []string
		for _, size := range []int{max(int(piece), 1), 1} {
			talk := newTalk(&poolPort)
			talk.say('s', "220 hello\r\n", 100)
			var heard, told strings.Builder
			for rest := string(said); ; {
				part := rest[:min(size, len(rest))]
				// In full pieces or byte by byte, replies come at line ends alone.
				if i := strings.IndexByte(part, '\n'); i >= 0 {
					part = part[:i+1]
				}
				server, client, _ := talk.say('c', part, len(part)+1)
				heard.WriteString(server)
				told.WriteString(client)
				talk.check(t)
				rest = rest[len(part):]
				if rest == "" {
					break
				}
				if !strings.HasSuffix(part, "\n") {
					continue
				}
				server, client, end := talk.say('s', reply, 100)
				heard.WriteString(server)
				told.WriteString(client)
				talk.check(t)
				if end != 0 {
					fmt.Fprintf(&told, "[%s]", end)
					break
				}
			}
			var out output
			talk.dialogue.endOfClient(&out)
			heard.Write(out.server)
			if plain(said, "EPSV", "EPRT", "ALGS") && heard.String() != string(said) {
				t.Fatalf("the client said %q, the server heard %q", said, heard.String())
			}
			results = append(results, heard.String()+"\n---\n"+told.String())
		}
		if diff := cmp.Diff(results[1], results[0]); diff != "" {
			t.Fatalf("in pieces of %d it differs from byte by byte (-bytes +pieces):\n%s", piece, diff)
		}
	})
}

// commandsForFuzz are what a client has said when a hostile server begins.
var commandsForFuzz = []string{
	"USER x\r\nSYST\r\nRETR y\r\nABOR\r\n",
	"EPSV\r\nRETR x\r\nEPSV 2\r\nSTOR y\r\n",
	"ALGS STATUS64\r\nEPSV ALL\r\nEPSV\r\nEPSV 1\r\n",
	"EPRT |2|2001:db8:2::31|5282|\r\nRETR x\r\nPASV\r\nEPSV\r\n",
	"EPSV\r\nAUTH TLS\r\nEPSV\r\nAUTH SSL\r\nEPS",
}

// FuzzReplies has a hostile server.
func FuzzReplies(f *testing.F) {
	for _, c := range dialogues {
		for i := range commandsForFuzz {
			f.Add([]byte("220 hello\r\n"+said(c.script, "s")), uint8(3*i+1), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, piece, which uint8) {
		commands := commandsForFuzz[int(which)%len(commandsForFuzz)]
		var results []string
		for _, size := range []int{max(int(piece), 1), 1} {
			talk := newTalk(&poolPort)
			talk.say('c', commands, 100)
			var heard, told strings.Builder
			for rest := string(said); rest != ""; {
				part := rest[:min(size, len(rest))]
				server, client, end := talk.say('s', part, len(part))
				heard.WriteString(server)
				told.WriteString(client)
				talk.check(t)
				if end != 0 {
					fmt.Fprintf(&told, "[%s]", end)
					break
				}
				rest = rest[len(part):]
			}
			if which == 0 {
				var out output
				talk.dialogue.endOfServer(&out)
				told.Write(out.client)
				if plain(said) && told.String() != string(said) {
					t.Fatalf("the server said %q, the client heard %q", said, told.String())
				}
			}
			// Each reply becomes at most one of ours, each byte at most one answer.
			if told.Len() > 64*maxPending+2*len(said) || heard.Len() > 3*len(said) {
				t.Fatalf("%d bytes became %d for the client, %d for the server", len(said), told.Len(), heard.Len())
			}
			results = append(results, heard.String()+"\n---\n"+told.String())
		}
		if diff := cmp.Diff(results[1], results[0]); diff != "" {
			t.Fatalf("in pieces of %d it differs from byte by byte (-bytes +pieces):\n%s", piece, diff)
		}
	})
}
