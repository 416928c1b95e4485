// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestLose has responses lost, so that the request is repeated.
func TestLose(t *testing.T) {
	w := newWorld(t, Settings{})
	w.order(w.e.Misbehave(gtp.TID{}, MisdeedLose, 1, w.now, &w.out))
	_, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out)
	w.order(err)
	w.accept(nil)
	if w.drops("lost_on_demand") != 1 || len(w.out.Events) != 0 {
		t.Fatal("not lost")
	}
	w.wait(defaultT3)
	w.accept(nil)
	w.event(Attached)
}

// TestDuplicates sends requests twice, with the same octets or with others.
func TestDuplicates(t *testing.T) {
	for _, row := range []struct {
		what Misdeed
		same bool
	}{{MisdeedDuplicate, true}, {MisdeedDuplicateOther, false}} {
		for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
			w := newWorld(t, Settings{})
			w.order(w.e.Misbehave(gtp.TID{}, row.what, 1, w.now, &w.out))
			_, err := w.e.Attach(attachment(v, gtp.PDPTypeIPv4), w.now, &w.out)
			w.order(err)
			_, first := w.request(&gtp.CreateRequest{})
			_, second := w.request(&gtp.CreateRequest{})
			w.none()
			if same := bytes.Equal(first.Payload, second.Payload); same != row.same || first.Sequence != second.Sequence {
				t.Errorf("%s: %x, then %x", row.what, first.Payload, second.Payload)
			}
		}
	}
}

// TestRestartMisdeed tells another counter from now on.
func TestRestartMisdeed(t *testing.T) {
	w := newWorld(t, Settings{Recovery: 254})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	w.order(w.e.Misbehave(key, MisdeedRestart, 3, w.now, &w.out))
	var m gtp.UpdateRequest
	if w.request(&m); m.Recovery != gtp.Some(uint8(1)) {
		t.Errorf("%+v", m.Recovery)
	}
}

// TestMalformed sends what cannot be read, each time in another way, and no packet of which
// this engine waits for an answer.
func TestMalformed(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(v, gtp.PDPTypeIPv4)
		w.clear()
		w.order(w.e.Misbehave(key, MisdeedMalformed, 7, w.now, &w.out))
		faults := map[string]bool{}
		for _, d := range w.out.UDP {
			h, err := gtp.ParseHeader(d.Payload)
			if err == nil {
				_, err = w.codec.Parse(&h, &gtp.UpdateRequest{})
			}
			if err == nil {
				t.Errorf("nothing is wrong with %x", d.Payload)
				continue
			}
			faults[err.Error()] = true
		}
		if len(w.out.UDP) != 7 || len(faults) < 5 {
			t.Errorf("%d sent, faults %v", len(w.out.UDP), faults)
		}
		w.clear()
		w.wait(time.Hour)
		w.none()
	}
}

// TestStrays are of no context.
func TestStrays(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(v, gtp.PDPTypeIPv4)
		i := w.info(key)
		for _, what := range []Misdeed{MisdeedStrayUser, MisdeedStrayControl} {
			w.clear()
			w.order(w.e.Misbehave(key, what, 3, w.now, &w.out))
			for range 3 {
				if _, h := w.next(); v == gtp.V1 && (h.TEID == i.RemoteData || h.TEID == i.RemoteControl) || v == gtp.V0 && h.TID == key {
					t.Errorf("%s: %+v", what, h)
				}
			}
			w.none()
		}
		if got := w.info(key).Traffic; got != i.Traffic {
			t.Errorf("strays are counted as the context's: %+v", got)
		}
		w.clear()
		w.order(w.e.Misbehave(key, MisdeedVersion, 6, w.now, &w.out))
		for _, d := range w.out.UDP {
			if v, _, _ := gtp.Peek(d.Payload); v < 2 {
				t.Errorf("version %d", v)
			}
		}
	}
}

// TestMisdeedsOfNoContext are refused.
func TestMisdeedsOfNoContext(t *testing.T) {
	w := newWorld(t, Settings{})
	for _, what := range []Misdeed{MisdeedRestart, MisdeedMalformed, MisdeedStrayUser, MisdeedStrayControl, MisdeedVersion} {
		if err := w.e.Misbehave(gtp.TID{}, what, 1, w.now, &w.out); err != ErrUnknown {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.none()
}
