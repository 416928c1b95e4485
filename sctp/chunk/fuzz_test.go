// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// FuzzChunks writes what it reads of the chunks of a packet, and reads the same again.
func FuzzChunks(f *testing.F) {
	for _, g := range golden {
		f.Add(testutil.Unhex(f, g.wire))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		for len(list) > 0 {
			c, rest, err := Next(list)
			if err != nil {
				return
			}
			if len(rest) >= len(list) || !bytes.Equal(c.Whole[chunkHeader:], c.Body) {
				t.Fatalf("%d of %d octets are left behind %+v", len(rest), len(list), c)
			}
			list = rest
			value, err := read(c)
			if err != nil {
				continue
			}
			if i, ok := value.(setup); ok { // what was not known, or is refused, is not written
				i.Unknown, i.HostName = nil, false
				value = i
			}
			again, _, err := Next(write(nil, value))
			if err != nil {
				t.Fatalf("%+v: %v", value, err)
			}
			back, err := read(again)
			if diff := cmp.Diff(value, back, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Fatalf("%v\n%s", err, diff)
			}
		}
	})
}

// FuzzOpen takes packets apart, right checksum or not.
func FuzzOpen(f *testing.F) {
	f.Add(write(Begin(nil, Header{1, 2, 3}), golden[0].value))
	f.Fuzz(func(t *testing.T, packet []byte) {
		_, _, err := Open(packet)
		if len(packet) < HeaderSize {
			if err != ErrShort {
				t.Fatal(err)
			}
			return
		}
		Seal(packet)
		if h, chunks, err := Open(packet); err != nil || len(chunks) != len(packet)-HeaderSize || !bytes.Equal(Begin(nil, h)[:8], packet[:8]) {
			t.Fatalf("%+v, %v", h, err)
		}
	})
}
