// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// outer is the size of the IPv4 and UDP headers.
const outer = 20 + 8

// TestReplySizes holds what one datagram makes the server send, against its size with all
// headers: SECURITY.md has the same figures.
func TestReplySizes(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Config)
		in   string
		want string // octets sent / octets received
	}{
		{"solicitation", nil, rsMiredo, "1.74"},
		{"solicitation with a nonce alone", keyed, auth("", "", "00") + rsMiredo, "1.63"},
		{"solicitation with a key, HMAC-SHA1", required, auth(north, valueRS1, "00") + rsMiredo, "1.49"},
		{"solicitation with a key, HMAC-SHA256", required, auth(south, valueRS2, "00") + rsMiredo, "1.44"},
		{"solicitation of an unknown client", keyed, auth(nobody, valueRS1, "00") + rsMiredo, "1.31"},
		{"bubble to a client of ours", nil, bubble(255, client, peer), "1.12"},
		{"bubble to a client of another server", nil, bubble(255, client, "20010000c00002630000efff3ffffdfe"), "1.00"},
		{"echo request to the server", nil, "6000000000103a40" + client + linkServer + "8000e4de" + echoData, "1.00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.edit)
			in := testutil.Unhex(t, tt.in)
			received, sent := len(in)+outer, 0
			var out packet.Batch
			e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, in, now, &out)
			for _, d := range out.UDP {
				sent += len(d.Payload) + outer
			}
			if got := fmt.Sprintf("%.2f", float64(sent)/float64(received)); got != tt.want || len(out.IP) > 0 {
				t.Errorf("%d octets for %d: %s times, want %s", sent, received, got, tt.want)
			}
		})
	}
}
