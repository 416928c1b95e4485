// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

func TestInfoChange(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	m := &gtp.InfoChangeRequest{RATType: gtp.RATUTRAN}
	var r gtp.InfoChangeResponse
	if h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r); r.Cause != gtp.CauseAccepted || h.TEID != 0x2001 {
		t.Errorf("%v to %#x", r.Cause, h.TEID)
	}
	if h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value + 1}, m, &r); r.Cause != gtp.CauseNonExistent || h.TEID != 0 {
		t.Errorf("of no session: %v to %#x", r.Cause, h.TEID)
	}
}

func TestEndMarker(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.raw(pathUser, []byte{0x30, byte(gtp.TypeEndMarker), 0, 0, 0, 0, 0, 9})
	if w.e.stats.EndMarkers != 1 || len(w.out.UDP)+len(w.dropped()) != 0 {
		t.Errorf("%d counted, %d datagrams, dropped %v", w.e.stats.EndMarkers, len(w.out.UDP), w.dropped())
	}
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
}
