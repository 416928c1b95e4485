// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var noon = time.Unix(0, 0x1112131415161718)

// golden are messages with their octets.
var golden = []struct {
	name  string
	m     Message
	bytes string
}{
	{"request", &Request{Transfer: 7, Streams: 4, Report: 100, Size: 1000, Rate: 50, Offset: 2, Limit: 3, Name: "a/b"},
		"01010007" + "0004" + "0000" + "00000064" + "000003e8" + "00000032" + "0000000000000002" + "0000000000000003" + "03" + "612f62"},
	{"answer", &Answer{Transfer: 7, Streams: 4, Size: 1000, Rate: 50, Total: 65536},
		"01020007" + "0000" + "0004" + "000003e8" + "00000032" + "0000000000010000" + "00"},
	{"refusal", &Answer{Transfer: 7, Status: NotFound, Text: "no"},
		"01020007" + "0001" + "0000" + "00000000" + "00000000" + "0000000000000000" + "02" + "6e6f"},
	{"data", &Data{Transfer: 7, Offset: 1000, Written: noon, Media: []byte{1, 2, 3}},
		"01030007" + "00000000000003e8" + "1112131415161718" + "010203"},
	{"end", &End{Transfer: 7, Octets: 3, Messages: 2, Digest: [32]byte{0xaa, 31: 0xbb}},
		"01040007" + "0000" + "0000" + "0000000000000003" + "0000000000000002" + "aa" + strings.Repeat("00", 30) + "bb"},
	{"cancel", &Cancel{7}, "01050007"},
	{"list", &List{7, "a"}, "01060007" + "01" + "61"},
	{"entries", &Entries{7, true, []Entry{{"a", 9, 0}, {"b", 1, 5}}},
		"01070007" + "01" + "02" + "0000000000000009" + "00000000" + "0161" + "0000000000000001" + "00000005" + "0162"},
	{"report", &Report{
		Transfer: 7, At: noon, NextTSN: 0x01020304, Sent: 1, Late: 2, Fast: 3, Copies: 4, Moved: 5, Lost: 6,
		Paths: []PathReport{{
			Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddr("192.0.2.2"), State: 1, Current: true, Confirmed: true, Errors: 2,
			RTO: time.Second, SRTT: time.Millisecond, RTTVar: time.Microsecond, CWND: 4380, Flight: 1000,
		}},
		Marks: []Mark{{Kind: Down, Local: netip.MustParseAddr("2001:db8::1"), Remote: netip.MustParseAddr("2001:db8::2"), At: noon, TSN: 9, RTO: time.Second}},
	},
		"01080007" + "1112131415161718" + "01020304" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000004" + "0000000000000005" +
			"01" + "01" + "0006" +
			"04c0000201" + "04c0000202" + "01" + "05" + "02" + "000f4240" + "000003e8" + "00000001" + "0000111c" + "000003e8" +
			"03" + "1020010db8000000000000000000000001" + "1020010db8000000000000000000000002" + "1112131415161718" + "00000009" + "000f4240"},
}

// TestGolden has messages written and read as the document has them; none of their beginnings is a message, and nothing
// may follow, but behind data.
func TestGolden(t *testing.T) {
	for _, tt := range golden {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.m.Append(nil)
			if got := hex.EncodeToString(b); got != tt.bytes {
				t.Errorf("octets\n%s, want\n%s", got, tt.bytes)
			}
			m, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.m, m, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			least := len(b)
			if tt.m.kind() == KindData {
				least = DataHeader + 1
			} else if _, err := Parse(append(b, 0)); !errors.Is(err, ErrMessage) {
				t.Errorf("with an octet more: %v", err)
			}
			for n := range least {
				if _, err := Parse(b[:n]); !errors.Is(err, ErrMessage) {
					t.Errorf("cut to %d octets: %v", n, err)
				}
			}
		})
	}
}

// TestFaults are messages that cannot be.
func TestFaults(t *testing.T) {
	name := func(s string) []byte { return (&Request{Name: s}).Append(nil) }
	for what, b := range map[string][]byte{
		"another version":          {2, 5, 0, 0},
		"another kind":             {1, 9, 0, 0},
		"no kind":                  {1, 0, 0, 0},
		"large control":            append([]byte{1, 5, 0, 0}, make([]byte, MaxControl)...),
		"large data":               (&Data{Media: make([]byte, MaxData+1)}).Append(nil),
		"no data":                  (&Data{}).Append(nil),
		"data behind the last":     (&Data{Offset: 1<<64 - 1, Media: []byte{1, 2}}).Append(nil),
		"no name":                  name(""),
		"a name above":             name("../etc/passwd"),
		"a name from the root":     name("/etc/passwd"),
		"a name through the above": name("a/../../b"),
		"a hidden name":            name("a/.ssh"),
		"a name with a zero":       name("a\x00b"),
		"a name of two lines":      name("a\nb"),
		"a name of other slashes":  name("..\\a"),
		"a name of no text":        name("a\xff"),
		"a name with CSI":          name("a\u009bb"),
		"a name that runs back":    name("a\u202eb"),
		"large messages asked":     (&Request{Name: "a", Size: MaxData + 1}).Append(nil),
		"streams of no number":     (&Answer{Size: 1}).Append(nil),
		"a status of no meaning":   (&Answer{Status: numStatuses}).Append(nil),
		"an end of no meaning":     (&End{Status: numStatuses}).Append(nil),
		"entries for ever":         (&Entries{More: true}).Append(nil),
		"too many entries":         {1, 7, 0, 0, 0, MaxEntries + 1},
		"an entry from above":      (&Entries{List: []Entry{{Name: "../a"}}}).Append(nil),
		"a path without addresses": (&Report{Paths: []PathReport{{}}}).Append(nil),
		"a mark of no meaning":     (&Report{Marks: []Mark{{Kind: NewRTO, Local: netip.IPv6Unspecified(), Remote: netip.IPv6Unspecified()}}}).Append(nil),
	} {
		if m, err := Parse(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s is read as %+v, error %v", what, m, err)
		}
	}
}

// FuzzParse reads anything; what it has read it writes as it was, and no name leads elsewhere.
func FuzzParse(f *testing.F) {
	for _, tt := range golden {
		f.Add(tt.m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Errorf("the error %v", err)
			}
			return
		}
		if got := m.Append(nil); string(got) != string(b) {
			t.Errorf("read %x, written %x", b, got)
		}
		if r, ok := m.(*Request); ok && (strings.Contains(r.Name, "..") && strings.Contains("/"+r.Name+"/", "/../") || strings.HasPrefix(r.Name, "/")) {
			t.Errorf("the name %q", r.Name)
		}
	})
}
