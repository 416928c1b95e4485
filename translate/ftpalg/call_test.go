// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newCallTalk is the talk of an IPv4 client with an IPv6 server.
func newCallTalk(mapped *netip.AddrPort) *talk {
	t := &talk{counts: make(map[string]int)}
	parties := call{
		announce: func(uint16) error {
			if mapped == nil {
				return errors.New("no port is free")
			}
			return nil
		},
		client: netip.MustParseAddr("198.51.100.9"), seen: netip.MustParseAddr("2001:db8:64::198.51.100.9"),
		called: netip.MustParseAddr("192.0.2.31"),
	}
	t.dialogue = newCall(parties, func(port uint16) (netip.AddrPort, error) {
		t.expected = append(t.expected, port)
		if mapped == nil {
			return netip.AddrPort{}, errors.New("no port is free")
		}
		return *mapped, nil
	}, func(c Counter) { t.counts[c.String()]++ })
	return t
}

var otherPool = netip.MustParseAddrPort("192.0.2.32:60192")

// calls are scripts, behind the greeting.
var calls = []struct {
	name   string
	mapped *netip.AddrPort
	script string
	counts string
}{
	{"PASV", &poolPort, `
		c PASV
		> EPSV
		s 229 Entering Extended Passive Mode (|||6446|)
		< 227 Entering Passive Mode (192,0,2,31,235,32).`, "pasv_translated"},
	{"PASV in small letters", &otherPool, `
		c pasv
		> EPSV
		s 229 ok (|||21|).
		< 227 Entering Passive Mode (192,0,2,32,235,32).`, "pasv_translated"},
	{"229 of several lines, with another delimiter", &poolPort, `
		c PASV
		> EPSV
		s 229-Here you are
		s 229 (!!!6446!)
		< 227 Entering Passive Mode (192,0,2,31,235,32).`, "pasv_translated"},
	{"PASV, no port free", nil, `
		c PASV
		> EPSV
		s 229 (|||6446|)
		< 425 Can't open data connection`, "pasv_unmapped"},
	{"229 without a port", &poolPort, `
		c PASV
		> EPSV
		s 229 (||||)
		< 425 Can't open data connection`, "bad_passive_reply"},
	{"229 with a port that is none", &poolPort, `
		c PASV
		> EPSV
		s 229 (|||65536|)
		< 425 Can't open data connection`, "bad_passive_reply"},
	{"PASV refused", &poolPort, `
		c PASV
		> EPSV
		s 530 Please login first.
		< 530 Please login first.`, "epsv_failed"},
	{"EPSV answered with another code: what follows stays in step", &poolPort, `
		c PASV
		> EPSV
		s 200 ok
		< 200 ok
		c PORT 198,51,100,10,20,162
		> PORT 198,51,100,10,20,162
		s 500 Illegal
		< 500 Illegal
		c EPSV 2
		> NOOP
		s 200 ok
		< 522 Network protocol not supported, use (1)`, "epsv_unsupported"},
	{"EPSV", &poolPort, `
		c EPSV
		> EPSV
		s 229 (|||6446|)
		< 229 Entering Extended Passive Mode (|||60192|)`, "epsv_translated"},
	{"EPSV 1", &poolPort, `
		c EPSV 1
		> EPSV
		s 229 (|||6446|)
		< 229 Entering Extended Passive Mode (|||60192|)`, "epsv_translated"},
	{"EPSV where the port is of another address", &otherPool, `
		c EPSV
		> EPSV
		s 229 (|||6446|)
		< 425 Can't open data connection`, "pasv_unmapped"},
	{"EPSV 2", &poolPort, `
		c EPSV 2
		> NOOP
		s 200 ok
		< 522 Network protocol not supported, use (1)`, "epsv_unsupported"},
	{"EPSV ALL", &poolPort, `
		c EPSV ALL
		> NOOP
		s 200 ok
		< 504 Command not implemented for that parameter`, "epsv_unsupported"},
	{"PORT, no port free", nil, `
		c PORT 198,51,100,9,20,162
		> NOOP
		s 200 ok
		< 425 Can't open data connection`, "port_unmapped"},
	{"PORT", &poolPort, `
		c PORT 198,51,100,9,20,162
		> EPRT |2|2001:db8:64::c633:6409|5282|
		s 200 EPRT command successful
		< 200 EPRT command successful`, "port_translated"},
	{"PORT refused", &poolPort, `
		c PORT 198,51,100,9,20,162
		> EPRT |2|2001:db8:64::c633:6409|5282|
		s 500 Illegal
		< 500 Illegal`, "port_translated"},
	{"EPRT", &poolPort, `
		c EPRT |1|198.51.100.9|5282|
		> EPRT |2|2001:db8:64::c633:6409|5282|
		s 200 ok
		< 200 ok`, "port_translated"},
	{"PORT of another host is the server's to refuse", &poolPort, `
		c PORT 198,51,100,10,20,162
		> PORT 198,51,100,10,20,162
		s 500 Illegal
		< 500 Illegal`, ""},
	{"PORT that is none", &poolPort, `
		c PORT 198,51,100,9,20
		> PORT 198,51,100,9,20
		s 500 Illegal
		< 500 Illegal
		c PORT 198,51,100,9,0,0
		> PORT 198,51,100,9,0,0
		s 500 Illegal
		< 500 Illegal
		c PORT 198,51,100,9,256,1
		> PORT 198,51,100,9,256,1
		s 500 Illegal
		< 500 Illegal`, ""},
	{"EPRT for IPv6 in the client's name", &poolPort, `
		c EPRT |2|2001:db8:64::c633:6409|5282|
		> EPRT |2|2001:db8:64::c633:6409|5282|
		s 200 ok
		< 200 ok`, ""},
	{"ALGS is the server's", &poolPort, `
		c ALGS STATUS64
		> ALGS STATUS64
		s 500 What?
		< 500 What?`, ""},
	{"a 227 means nothing here", &poolPort, `
		c SITE x
		> SITE x
		s 227 (10,0,0,1,4,1)
		< 227 (10,0,0,1,4,1)`, ""},
	{"a 229 that no one has asked for", &poolPort, `
		c SITE x
		> SITE x
		s 229 (|||6446|)
		< 229 (|||6446|)`, ""},
	{"AUTH accepted", &poolPort, `
		c AUTH TLS
		> AUTH TLS
		s 234 Go ahead
		< 234 Go ahead
		c PASV
		> PASV`, "auth_accepted"},
	{"AUTH refused", &poolPort, `
		c AUTH TLS
		> AUTH TLS
		s 530 No
		< 530 No
		c PASV
		> EPSV
		s 229 (|||6446|)
		< 227 Entering Passive Mode (192,0,2,31,235,32).`, "auth_refused pasv_translated"},
	{"commands ahead of replies", &poolPort, `
		c PASV
		> EPSV
		c RETR x
		> RETR x
		s 229 (|||6446|)
		< 227 Entering Passive Mode (192,0,2,31,235,32).
		s 150 Here
		< 150 Here
		s 226 Done
		< 226 Done`, "pasv_translated"},
}

// TestCalls plays IPv4 clients of IPv6 servers.
func TestCalls(t *testing.T) {
	for _, tt := range calls {
		t.Run(tt.name, func(t *testing.T) {
			script := "s 220 hello\n< 220 hello\n" + tt.script
			for _, piece := range []int{1 << 20, 1, 2, 3} {
				talk := newCallTalk(tt.mapped)
				if diff := cmp.Diff(expectation(script), talk.run(script, piece)); diff != "" {
					t.Fatalf("in pieces of %d (-want +got):\n%s", piece, diff)
				}
				want := make(map[string]int)
				for c := range strings.FieldsSeq(tt.counts) {
					want[c] = 1
				}
				if diff := cmp.Diff(want, talk.counts); diff != "" {
					t.Errorf("in pieces of %d (-want +got):\n%s", piece, diff)
				}
				for _, port := range talk.expected {
					if port != 6446 && port != 21 {
						t.Errorf("port %d was made reachable", port)
					}
				}
			}
		})
	}
}

// FuzzCalls has a hostile client and a hostile server.
func FuzzCalls(f *testing.F) {
	for _, tt := range calls {
		var client, server strings.Builder
		for line := range strings.Lines(tt.script) {
			line = strings.TrimSpace(line)
			if text, ok := strings.CutPrefix(line, "c "); ok {
				client.WriteString(unquote(text) + "\r\n")
			} else if text, ok := strings.CutPrefix(line, "s "); ok {
				server.WriteString(unquote(text) + "\r\n")
			}
		}
		f.Add([]byte(client.String()), []byte("220 hello\r\n"+server.String()), uint8(3))
	}
	f.Fuzz(func(t *testing.T, commands, replies []byte, piece uint8) {
		var results []string
		for _, size := range []int{max(int(piece), 1), 1} {
			talk := newCallTalk(&poolPort)
			server, client, _ := talk.say('c', string(commands), size)
			talk.check(t)
			heard, told, end := talk.say('s', string(replies), size)
			talk.check(t)
			if len(talk.expected) > maxPending {
				t.Fatalf("%d ports were made reachable for %d commands", len(talk.expected), maxPending)
			}
			if len(server)+len(heard) > 16*len(commands)+3*len(replies) || len(client)+len(told) > 64*maxPending+2*(len(commands)+len(replies)) {
				t.Fatalf("%d and %d bytes became %d and %d", len(commands), len(replies), len(server)+len(heard), len(client)+len(told))
			}
			results = append(results, server+"\n---\n"+client+"\n---\n"+heard+"\n---\n"+told+end.String())
		}
		if diff := cmp.Diff(results[1], results[0]); diff != "" {
			t.Fatalf("in pieces of %d it differs from byte by byte (-bytes +pieces):\n%s", piece, diff)
		}
	})
}
