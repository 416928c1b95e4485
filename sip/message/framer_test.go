// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"strings"
	"testing"
)

// TestFramer finds the same messages in whatever pieces they come.
func TestFramer(t *testing.T) {
	head := "OPTIONS sip:a SIP/2.0\r\nX: y\r\nContent-Length: "
	one, two := head+"0\r\n\r\n", head+"5\r\n\r\nabcde"
	text := "\r\n\r\n" + one + "\r\n" + two + two + "\r\n\r\n" + one
	for size := 1; size <= len(text); size++ {
		var f Framer
		var got []string
		pings := 0
		for from := strings.NewReader(text); ; {
			for {
				m, ping, _, fault := f.Next()
				if fault != nil {
					t.Fatalf("in pieces of %d: %v", size, fault)
				}
				if ping {
					pings++
				}
				if m == nil {
					break
				}
				got = append(got, string(m))
			}
			if f.Read(&pieces{from, size}) != nil {
				break
			}
		}
		if strings.Join(got, "|") != strings.Join([]string{one, two, two, one}, "|") || pings != 2 || len(f.Rest()) != 0 {
			t.Fatalf("in pieces of %d: %d pings, %q left, %q", size, pings, f.Rest(), got)
		}
	}
}

// TestPongs tells answers to keep-alives of ours from keep-alives of the other end.
func TestPongs(t *testing.T) {
	const one = "OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n"
	for _, tt := range []struct {
		name  string
		reads []string
		want  string
	}{
		{"alone", []string{"\r\n", "\r\n"}, "pong pong"},
		{"before a message", []string{"\r\n" + one}, "pong message"},
		{"behind a message", []string{one + "\r\n"}, "message pong"},
		{"a keep-alive", []string{"\r\n\r\n"}, "ping"},
		{"a keep-alive and an answer", []string{"\r\n\r\n\r\n"}, "ping pong"},
		{"half a line end", []string{"\r", "\n"}, "pong"},
	} {
		f := Framer{Pongs: true}
		var got []string
		for _, text := range tt.reads {
			if err := f.Read(strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				m, ping, pong, fault := f.Next()
				if fault != nil {
					t.Fatal(fault)
				}
				if ping {
					got = append(got, "ping")
				}
				if pong {
					got = append(got, "pong")
				}
				if more = m != nil; more {
					got = append(got, "message")
				}
			}
		}
		if text := strings.Join(got, " "); text != tt.want || len(f.Rest()) > 0 {
			t.Errorf("%s: %s, and %q is left, want %s", tt.name, text, f.Rest(), tt.want)
		}
	}
}

// pieces reads at most size octets at a time.
type pieces struct {
	from *strings.Reader
	size int
}

func (p *pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.size)]) }

// FuzzFramer takes no more from a stream than there is, and the same in pieces as at once.
func FuzzFramer(f *testing.F) {
	f.Add("OPTIONS sip:a SIP/2.0\r\nContent-Length: 5\r\n\r\nabcde\r\n\r\n", 3)
	f.Add("\r\n\n\r\nx\r\n\r\n", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		all := func(size int) (found []string) {
			var f Framer
			for from := strings.NewReader(text); ; {
				for {
					m, _, _, fault := f.Next()
					if fault != nil {
						return append(found, fault.Name)
					}
					if m == nil {
						break
					}
					found = append(found, string(m))
				}
				if f.Read(&pieces{from, size}) != nil {
					return found
				}
			}
		}
		whole, parts := all(MaxSize), all(min(max(size, 1), 64))
		if strings.Join(whole, "|") != strings.Join(parts, "|") {
			t.Errorf("%q\nin pieces %q", whole, parts)
		}
	})
}
