// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	ownAddress = netip.MustParseAddr("2001:db8:2::31")
	poolPort   = netip.MustParseAddrPort("192.0.2.31:60192")
)

// talk is a dialogue and what has come of it.
type talk struct {
	dialogue *dialogue
	counts   map[string]int
	expected []uint16
}

// newTalk lets EPRT make ports of the pool, unless it is nil.
func newTalk(mapped *netip.AddrPort) *talk {
	t := &talk{counts: make(map[string]int)}
	t.dialogue = newDialogue(ownAddress, func(port uint16) (netip.AddrPort, error) {
		t.expected = append(t.expected, port)
		if mapped == nil {
			return netip.AddrPort{}, errors.New("no port is free")
		}
		return *mapped, nil
	}, func(c Counter) { t.counts[c.String()]++ })
	return t
}

// say feeds bytes of the client (c) or server (s) in pieces and returns all that
// comes of it.
func (t *talk) say(who byte, data string, piece int) (server, client string, end Counter) {
	var out output
	for len(data) > 0 && end == 0 {
		part := data[:min(piece, len(data))]
		taken := len(part)
		out.reset()
		if who == 'c' {
			taken = t.dialogue.fromClient([]byte(part), &out)
		} else {
			t.dialogue.fromServer([]byte(part), &out)
		}
		server, client, end = server+string(out.server), client+string(out.client), out.end
		if taken == 0 {
			break
		}
		data = data[taken:]
	}
	return server, client, end
}

// unquote gives the escapes of a script their meaning.
func unquote(s string) string {
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\0`, "\x00", `\IAC`, "\xff", `\IP`, "\xf4", `\DM`, "\xf2",
		`\DONT`, "\xfe", `\DO`, "\xfd", `\WONT`, "\xfc", `\WILL`, "\xfb", `\SB`, "\xfa", `\SE`, "\xf0").Replace(s)
}

// run plays a script in pieces of some size and returns it as it went. Its lines:
//
//	c TEXT    the client says a line; C without an end of line
//	s TEXT    the server does; S without
//	> TEXT    the server hears a line
//	< TEXT    the client does
//	end WHY   the connection is closed
func (t *talk) run(script string, piece int) string {
	var record []string
	hears := func(mark, text string) {
		for line := range strings.SplitAfterSeq(text, "\r\n") {
			if line != "" {
				record = append(record, mark+" "+strings.TrimSuffix(fmt.Sprintf("%+q", line), `\r\n"`))
			}
		}
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsRune("<>e", rune(line[0])) {
			continue
		}
		record = append(record, line)
		_, text, _ := strings.Cut(line, " ")
		text = unquote(text)
		if line[0] == 'c' || line[0] == 's' {
			text += "\r\n"
		}
		server, client, end := t.say(line[0]|0x20, text, piece)
		hears(">", server)
		hears("<", client)
		if end != 0 {
			record = append(record, "end "+end.String())
		}
	}
	return strings.Join(record, "\n")
}

// expectation is a script in the form in which run returns it.
func expectation(script string) string {
	var lines []string
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if mark := line[:1]; mark == "<" || mark == ">" {
			text := fmt.Sprintf("%+q", unquote(strings.TrimPrefix(line[1:], " ")))
			if strings.HasSuffix(text, `\r\n"`) || strings.HasSuffix(text, `$"`) {
				text = strings.TrimSuffix(text, `$"`) + `"` // not the end of a line
			} else {
				text = strings.TrimSuffix(text, `"`)
			}
			line = mark + " " + text
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// play checks a script, in one piece for each line and byte by byte.
func play(t *testing.T, mapped *netip.AddrPort, script string, prepare func(*talk)) map[string]int {
	t.Helper()
	var counts map[string]int
	for _, piece := range []int{1 << 20, 1, 2, 3} {
		talk := newTalk(mapped)
		if prepare != nil {
			prepare(talk)
		}
		got := talk.run(script, piece)
		if diff := cmp.Diff(expectation(script), got); diff != "" {
			t.Fatalf("in pieces of %d (-want +got):\n%s", piece, diff)
		}
		if counts != nil {
			if diff := cmp.Diff(counts, talk.counts); diff != "" {
				t.Fatalf("counters depend on the pieces, of %d (-want +got):\n%s", piece, diff)
			}
		}
		counts = talk.counts
	}
	return counts
}

// TestModes plays each way to ask for a data connection, with a server that knows
// it and one that does not, before AUTH, behind one in vain and behind one that
// was accepted.
func TestModes(t *testing.T) {
	type mode struct {
		name           string
		said, heard    string
		yes, yesClient string
		no             string
	}
	modes := []mode{
		{"EPSV", "EPSV", "PASV", "227 Entering Passive Mode (192,0,2,31,237,19)", "229 Entering Extended Passive Mode (|||60691|)", "502 No."},
		{"EPRT", "EPRT |2|2001:db8:2::31|5282|", "PORT 192,0,2,31,235,32", "200 PORT done", "200 PORT done", "500 What?"},
		{"PASV", "PASV", "PASV", "227 Entering Passive Mode (192,0,2,31,237,19)", "227 Entering Passive Mode (192,0,2,31,237,19)", "421 Bye"},
		{"PORT", "PORT 192,0,2,9,20,162", "PORT 192,0,2,9,20,162", "200 PORT done", "200 PORT done", "500 Illegal PORT"},
	}
	auths := []struct {
		name, script string
		transparent  bool
	}{
		{"without AUTH", "", false},
		{"AUTH refused", "c AUTH TLS\n> AUTH TLS\ns 530 Please login first.\n< 530 Please login first.\n", false},
		{"AUTH accepted", "c auth tls\n> auth tls\ns 234 Go ahead.\n< 234 Go ahead.\n", true},
	}
	for _, m := range modes {
		for _, server := range []string{"knows", "refuses"} {
			for _, a := range auths {
				t.Run(m.name+"/"+server+"/"+a.name, func(t *testing.T) {
					heard, reply, replyClient := m.heard, m.yes, m.yesClient
					if a.transparent {
						heard, replyClient = m.said, m.yes
					}
					if server == "refuses" {
						reply, replyClient = m.no, m.no
					}
					play(t, &poolPort, "s 220 hello\n< 220 hello\n"+a.script+
						"c "+m.said+"\n> "+heard+"\ns "+reply+"\n< "+replyClient+"\n"+
						"c QUIT\n> QUIT\ns 221 Bye\n< 221 Bye", nil)
				})
			}
		}
	}
}
