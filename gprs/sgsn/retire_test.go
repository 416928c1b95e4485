// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"errors"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestRetire closes all contexts, and opens none again: no one would close that.
func TestRetire(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.order(w.e.Reattach(key, other, w.now, &w.out))
	asked := attachment(gtp.V1, gtp.PDPTypeIPv4)
	asked.NSAPI = 6
	_, err := w.e.Attach(asked, w.now, &w.out)
	w.order(err)
	d, h := w.next()
	w.clear()
	w.e.Retire(w.now, &w.out)
	w.none()
	w.say(d.Socket, reply(h, w.info(key).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	w.none()
	w.empty()
	if _, err := w.e.Attach(asked, w.now, &w.out); !errors.Is(err, ErrRetired) {
		t.Errorf("one more: %v", err)
	}
}

// TestRetireLoad: a load asks for nothing more.
func TestRetireLoad(t *testing.T) {
	w := newWorld(t, Settings{})
	ended := false
	set := LoadSettings{Template: *attachment(gtp.V1, gtp.PDPTypeIPv4), Contexts: 100, Window: 10}
	w.order(w.e.StartLoad(set, func(LoadReport) { ended = true }, w.now, &w.out))
	for range 5 {
		w.accept(nil)
	}
	w.clear()
	w.e.Retire(w.now, &w.out)
	for w.seen < len(w.out.UDP) {
		d, h := w.request(&gtp.DeleteRequest{})
		w.say(d.Socket, reply(h, 1), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	}
	if w.empty(); !ended {
		t.Error("the load goes on")
	}
}
