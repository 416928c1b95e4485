// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

func TestNDOptions(t *testing.T) {
	b := AppendPrefixInformation(nil, netip.MustParsePrefix("2001:db8::/64"), PrefixAutonomous, Infinite, 3600)
	b = AppendMTU(b, 1400)
	const want = "03044040ffffffff00000e100000000020010db8000000000000000000000000" + "0501000000000578"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("options\n%s, want\n%s", got, want)
	}
	for _, row := range []struct {
		name string
		list []byte
		want bool
	}{
		{"none", nil, true},
		{"two", b, true},
		{"one octet missing", b[:len(b)-1], false},
		{"an octet behind", append(b[:len(b):len(b)], 0), false},
		{"type alone", []byte{1}, false},
		{"length zero", []byte{1, 0, 0, 0, 0, 0, 0, 0}, false},
		{"length beyond the list", []byte{1, 2, 0, 0, 0, 0, 0, 0}, false},
	} {
		if got := NDOptionsWellFormed(row.list); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
