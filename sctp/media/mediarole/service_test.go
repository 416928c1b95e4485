// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestServiceMedia has media servers with the rights of the packaged service, in UDP and in IP: they send a source to the
// end, and end.
func TestServiceMedia(t *testing.T) {
	w := newWorld(t)
	const source = "[[sctp_media.source]]\nname = \"noise\"\nrate = 0\nsize = 1000\noctets = 50000\n"
	s := program.NewService(t, w.server, "[[sctp_media]]\n"+source+"[[sctp_media]]\nname = \"raw\"\nencapsulation = \"none\"\n"+source)
	p := s.Start(t)
	for _, network := range []string{"sctp6+udp", "sctp6"} {
		c := quickClient()
		c.Network = network
		client := w.mustDial(c, both)
		if got, _ := w.mustGet(client, transfer.Request{Name: "noise"}); len(got) != 50000 {
			t.Errorf("%s: %d octets have come", network, len(got))
		}
	}
	s.Stop(t, p, syscall.SIGTERM)
}
