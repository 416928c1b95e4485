// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestReplySizes: no answer has more octets, all headers of IPv4 included, than the page on
// security says for each octet of what was asked.
func TestReplySizes(t *testing.T) {
	w := newWorld(t, nil)
	const headers = 28
	factor := func(in []byte) float64 {
		sent := 0
		for _, d := range w.out.UDP {
			sent += headers + len(d.Payload)
		}
		return float64(sent) / float64(headers+len(in))
	}
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 3}
	least := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	with := w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4v6)
	with.PCO = gtp.Some(pcoOf(gtp.ContainerDNS4, nil, gtp.ContainerDNS6, nil, gtp.ContainerPCSCF6, nil, gtp.ContainerPCSCF4, nil, gtp.ContainerMTU4, nil))
	tests := []struct {
		name string
		path int
		in   []byte
		most float64
	}{
		{"echo", pathControl, w.encode(h, &gtp.EchoRequest{}), 1.05},
		{"another version", pathControl, []byte{0x40, 1, 0, 4, 0, 0, 5, 0}, 1.12},
		{"create, with the first advertisement", pathControl, w.encode(h, least), 2.61},
		{"create with options, with the same", pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 4}, with), 2.93},
		{"delete of nothing", pathControl, w.encode(h, &gtp.DeleteRequest{NSAPI: 5}), 1},
		{"G-PDU of nothing", pathUser, []byte{0x30, 255, 0, 1, 0, 0, 0, 9, 0}, 1.41},
		{"extension header that nobody knows", pathControl, []byte{0x36, 1, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0x9f, 1, 0, 0, 0}, 1.1},
	}
	for _, tt := range tests {
		w.raw(tt.path, tt.in)
		if got := factor(tt.in); got > tt.most || got == 0 {
			t.Errorf("%s: %.2f octets for one, at most %.2f", tt.name, got, tt.most)
		}
	}
}
