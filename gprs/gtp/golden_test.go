// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestGolden reads and writes each sample: octets written by hand against values.
func TestGolden(t *testing.T) {
	var c Codec
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			want := s.octets(t)
			h, err := ParseHeader(want)
			if err != nil {
				t.Fatal(err)
			}
			payload := h.Payload
			if h.Payload = nil; !reflect.DeepEqual(h, s.header) {
				t.Errorf("header\n%+v, want\n%+v", h, s.header)
			}
			h.Payload = payload
			got := []byte("before")
			if s.message == nil {
				got, err = Encapsulate(got, &s.header, testutil.Unhex(t, ipv4Packet))
			} else {
				got, err = c.Append(got, s.header, s.message)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got = bytes.TrimPrefix(got, []byte("before")); !bytes.Equal(got, want) {
				t.Errorf("written\n%x, want\n%x", got, want)
			}
			if s.message == nil {
				if !bytes.Equal(payload, testutil.Unhex(t, ipv4Packet)) {
					t.Errorf("packet %x", payload)
				}
				return
			}
			m, ok := NewMessage(h.Type)
			if !ok {
				t.Fatalf("%s has no type of its own", h.Type)
			}
			// What was in the fields before must not stay.
			fill(m)
			notes, err := c.Parse(&h, m)
			if err != nil || notes != (Notes{}) {
				t.Fatalf("%v, %+v", err, notes)
			}
			if !reflect.DeepEqual(m, s.message) {
				t.Errorf("read\n%+v, want\n%+v", m, s.message)
			}
		})
	}
}

// fill sets numbers and flags of a message, so that a field that reading forgets shows.
func fill(m Message) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Struct && f.NumField() == 2 && f.Type().Field(1).Name == "Present" {
			f.Field(1).SetBool(true)
		}
		if f.CanUint() {
			f.SetUint(1)
		}
	}
}
