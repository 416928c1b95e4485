// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package netattr_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// attr is an attribute of a stated length, with its value and padding.
func attr(length, kind uint16, value string) string {
	b := binary.NativeEndian.AppendUint16(nil, length)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return string(b) + value
}

func TestAll(t *testing.T) {
	for _, tt := range []struct {
		name, message, want string
	}{
		{"nothing", "", ""},
		{"one", attr(6, 1, "ab"), "1=ab"},
		{"padded", attr(5, 1, "a\x00\x00\x00") + attr(8, 2, "abcd"), "1=a 2=abcd"},
		{"empty", attr(4, 7, "") + attr(5, 8, "x"), "7= 8=x"},
		{"nested flag", attr(5, 1|1<<15, "x"), "1=x"},
		{"network order flag", attr(5, 1|1<<14, "x"), "1=x"},
		{"shorter than a head", attr(3, 1, "") + attr(5, 2, "x"), ""},
		{"longer than the message", attr(5, 1, "x\x00\x00\x00") + attr(9, 2, "abcd"), "1=x"},
		{"half a head", attr(5, 1, "x\x00\x00\x00") + "\x05\x00", "1=x"},
	} {
		var got []string
		for kind, value := range netattr.All([]byte(tt.message)) {
			got = append(got, fmt.Sprintf("%d=%s", kind, value))
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, s, tt.want)
		}
	}
}
