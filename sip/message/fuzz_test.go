// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"net/netip"
	"testing"
)

// FuzzParse writes what it reads so that it reads the same again, and can answer whatever is to
// be answered.
func FuzzParse(f *testing.F) {
	for name := range torture {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, fault := Parse(data)
		switch {
		case fault != nil && fault.Status == 0:
			return
		case fault != nil:
			m.Receive(netip.MustParseAddrPort("[2001:db8::1]:5060"))
			if r, ok := ReplyFault(m, fault, "tag"); ok {
				_ = r.Append(nil)
			}
			return
		}
		text := m.Append(nil)
		again, fault := Parse(text)
		if fault != nil {
			if len(text) > MaxSize || len(m.Headers) >= MaxHeaders-1 { // the length that was added
				return
			}
			t.Fatalf("%q\nis written as\n%q\nand refused as %s", data, text, fault.Name)
		}
		if !bytes.Equal(again.Append(nil), text) {
			t.Errorf("%q\nis written as\n%q\nand then as\n%q", data, text, again.Append(nil))
		}
	})
}

// FuzzFrame takes no more out of a stream than there is, and nothing that Parse cannot judge.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(request("Content-Length: 4", "body")))
	f.Add([]byte("\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, ping, fault := Frame(data, 4096)
		if n < 0 || n > len(data) || fault != nil && n != 0 || ping && n != 4 {
			t.Fatalf("%d of %d, ping %t, %v", n, len(data), ping, fault)
		}
		if n > 4 {
			_, _ = Parse(data[:n])
		}
	})
}
