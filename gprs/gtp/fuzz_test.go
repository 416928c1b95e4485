// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// seed adds every sample, and what the tests of refusals have shown to matter.
func seed(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.octets(f))
	}
	for _, wire := range []string{
		"34 ff 0008 00000001 0000 00 c0 00 1234 00",
		"34 ff 0028 00000001 0000 00 20 01000020 01000020 01000020 01000020 01000020 01000020 01000020 01000020 01000000",
		"32 10 0008 00000000 0001 00 00 80 ffff 00",
		"32 1f 0006 00000000 0001 00 00 8d ff",
		"32 11 0013 00000001 0001 00 00 01 d3 fb 0003 c00002 fb 0004 c0000201",         // a gap among repeated elements
		"37 1a 0017 30303030 3030 30 00 10 30303030 85 0004 30303030 ff 0004 30303030", // E without an extension header
		"32 03 0004 00000000 0001 00 00", "48 20 0004 00000000",
	} {
		f.Add(testutil.Unhex(f, wire))
	}
}

// FuzzHeader writes what it reads of a header, and reads the same again.
func FuzzHeader(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if _, ok := err.(*Refusal); !ok {
				t.Fatalf("error %v", err)
			}
			return
		}
		if v, kind, ok := Peek(b); !ok || v != h.Version || kind != h.Type {
			t.Fatalf("peeked at %d, %v, %v", v, kind, ok)
		}
		for e := range h.Extensions.All() {
			if e.Type == ExtensionNone || (len(e.Content)+2)%4 != 0 {
				t.Fatalf("extension header %+v", e)
			}
		}
		again, err := h.AppendTo(nil, len(h.Payload))
		if err != nil {
			if len(b) <= maxDatagram {
				t.Fatal(err)
			}
			return
		}
		// E with no extension header behind it is not written.
		if len(again) != h.Len() || len(again)+len(h.Payload) > len(b) {
			t.Fatalf("%d octets of header, %d said", len(again), h.Len())
		}
		back, err := ParseHeader(append(again, h.Payload...))
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Fatalf("%+v comes back as %+v, %v", h, back, err)
		}
	})
}

// FuzzMessage reads any datagram as the message that it says to be. What can be read
// can be written, is read as the same values, and is written as the same octets.
func FuzzMessage(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Codec
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		elements, listed := ParseElements(&h)
		if listed == nil {
			n := 0
			for kind, v := range elements.All() {
				if n += elementHead(kind) + len(v); n > len(h.Payload) {
					t.Fatalf("%d octets of elements in %d", n, len(h.Payload))
				}
			}
			if n != len(h.Payload) {
				t.Fatalf("%d octets of elements of %d", n, len(h.Payload))
			}
		}
		m, ok := NewMessage(h.Type)
		if !ok {
			return
		}
		if _, err = c.Parse(&h, m); err != nil {
			if _, ok := err.(*Refusal); !ok {
				t.Fatalf("error %v", err)
			}
			return
		}
		if listed != nil {
			t.Fatalf("read, although %v", listed)
		}
		written, err := c.Append(nil, h, m)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", m, err)
		}
		h2, err := ParseHeader(written)
		if err != nil {
			t.Fatalf("%x: %v", written, err)
		}
		m2, _ := NewMessage(h2.Type)
		notes, err := c.Parse(&h2, m2)
		if err != nil || notes != (Notes{}) || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%+v comes back as %+v, %v, %+v", m, m2, err, notes)
		}
		if again, err := c.Append(nil, h2, m2); err != nil || !bytes.Equal(again, written) {
			t.Fatalf("%x, then %x, %v", written, again, err)
		}
	})
}

// FuzzTFT reads any octets as a template.
func FuzzTFT(f *testing.F) {
	f.Add(testutil.Unhex(f, wholeTFT))
	f.Add(sampleTFTOctets)
	f.Add(testutil.Unhex(f, "a2 01 0f"))
	f.Add(testutil.Unhex(f, "d0 02 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		template, cause, ok := ParseTFT(b)
		if !ok {
			if cause < CauseTFTSemantic || cause > CauseFilterSyntax {
				t.Fatalf("cause %v", cause)
			}
			return
		}
		written := template.Append(nil)
		again, cause, ok := ParseTFT(written)
		if !ok || !reflect.DeepEqual(again, template) {
			t.Fatalf("%+v comes back as %+v, %v", template, again, cause)
		}
	})
}

// FuzzValues reads any octets as the values that messages keep as they are.
func FuzzValues(f *testing.F) {
	f.Add([]byte(samplePCO))
	f.Add(sampleQoS.octets[:])
	f.Add([]byte(sampleAPN))
	f.Add(sampleTID[:])
	f.Add(testutil.Unhex(f, "01 07 0011 03 6d6967 08 68656d6d656c6967"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := ParsePCO(b); ok {
			again := PCO{b[0]}
			for c, v := range p.All() {
				again = append(again, byte(c>>8), byte(c), byte(len(v)))
				again = append(again, v...)
			}
			if !bytes.Equal(again, b) {
				t.Fatalf("%x is %x", b, []byte(again))
			}
		}
		if p, ok := ParsePPP(b); ok {
			for range p.Options() {
			}
			p.PAPCredentials()
			p.CHAPValue()
			if again, ok := ParsePPP(p.Append(nil)); !ok || !reflect.DeepEqual(again, p) {
				t.Fatalf("%+v comes back as %+v", p, again)
			}
		}
		if a := APN(b); a.valid() {
			if name := a.String(); name == "" {
				t.Fatal("no name")
			}
		}
		if q, ok := ParseQoS(b); ok {
			once := q.Profile().QoS(q.Len())
			if again := once.Profile().QoS(once.Len()); again != once || once.Len() != q.Len() {
				t.Fatalf("%x, then %x", once.octets, again.octets)
			}
		}
		if len(b) == 8 {
			tid := TID(b)
			if m, ok := tid.IMSI(); ok && MakeTID(m, tid.NSAPI()) != tid {
				t.Fatalf("%x is %s", b, tid)
			}
			if tid.Reversed().Reversed() != tid || tid.String() == "" {
				t.Fatalf("%x", b)
			}
		}
	})
}
