// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
)

// started is the terminal of the configuration.
var started = Which{IMSI: "240010123456789", NSAPI: 5}

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// solicit has the terminal ask for a router again.
func (w *world) solicit(t *testing.T, who Which) {
	t.Helper()
	key, err := who.key()
	if err != nil {
		t.Fatal(err)
	}
	w.sgsn.loop.Do(func(now time.Time, out *sgsn.Output) { err = w.sgsn.engine.Solicit(key, now, out) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestAdvertisementLost: the time that the GGSN has for its answer is over before the router is asked again.
func TestAdvertisementLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ggsn.set(func() { w.ggsn.lost = 1 })
	w.start(t, w.settings(t, ue(1, "v6")+"t3_response = \"100ms\"\n"))
	w.echoes(t, ue6, site6, 100)
}

// TestNoRouter: a context without a router is open all the same.
func TestNoRouter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ggsn.set(func() { w.ggsn.lost = math.MaxInt })
	w.start(t, w.settings(t, ""))
	wish := w.wish(alice, "ue0")
	wish.Type = "v6"
	asked, err := wish.want()
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.sgsn.attach(asked, allowed{patience, time.Millisecond})
	if err != nil || got.event.Kind != sgsn.NoRouter || got.info.State != sgsn.Open || w.links(t)["ue0"] == nil {
		t.Errorf("%+v, %v; devices %v", got, err, w.links(t))
	}
}

// TestOrderWaitsForItsOwn: news of a router is not the answer that an order waits for.
func TestOrderWaitsForItsOwn(t *testing.T) {
	for what, row := range map[string]struct {
		order func(*SGSN) (Done, error)
		asks  gtp.MessageType
		event string
	}{
		"update": {func(s *SGSN) (Done, error) {
			return s.updateOrder(Changed{Which: started, Quality: Quality{Class: "background"}})
		}, gtp.TypeUpdateRequest, "updated"},
		"move": {func(s *SGSN) (Done, error) {
			return s.moveOrder(MovedTo{Which: started, To: ours2.String()})
		}, gtp.TypeUpdateRequest, "moved"},
		"detach": {func(s *SGSN) (Done, error) { return s.detachOrder(Detached{Which: started}) }, gtp.TypeDeleteRequest, "ended"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start(t, w.settings(t, ue(1, "v6")+"t3_response = \"400ms\"\nn3_requests = 20\n"))
			w.ggsn.set(func() { w.ggsn.silent, w.ggsn.mtu = true, 1300 })
			type end struct {
				done Done
				err  error
			}
			ended := make(chan end, 1)
			go func() {
				done, err := row.order(w.sgsn)
				ended <- end{done, err}
			}()
			until(t, "nothing was asked", func() bool { return w.ggsn.count(row.asks) > 0 })
			if what == "update" { // else packets wait, or go nowhere
				w.solicit(t, started)
				until(t, "the advertisement has not come", func() bool {
					l := w.links(t)["ue0"]
					return l != nil && l.Attrs().MTU == 1300
				})
			} else {
				w.news(t, sgsn.Configured)
			}
			w.ggsn.set(func() { w.ggsn.silent = false })
			if e := <-ended; e.err != nil || e.done.Event != row.event {
				t.Errorf("%q, %v", e.done.Event, e.err)
			}
		})
	}
}

// news has something happen to the terminal's context, and waits until all orders before have been told of it.
func (w *world) news(t *testing.T, kind sgsn.EventKind) {
	t.Helper()
	key, err := started.key()
	if err != nil {
		t.Fatal(err)
	}
	last := w.sgsn.await(key, goal{kind})
	defer w.sgsn.unawait(key, last)
	w.sgsn.loop.Do(func(_ time.Time, out *sgsn.Output) {
		out.Events = append(out.Events, sgsn.Event{Kind: kind, Key: key, Peer: theirs})
	})
	select {
	case <-last.told:
	case <-time.After(patience):
		t.Fatal("it is not acted on")
	}
}

// TestDetachOpening: a context that is given up before the GGSN has answered is one that was closed, to whoever has
// said so, and none that was opened, to whoever waits for it.
func TestDetachOpening(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ""))
	w.ggsn.set(func() { w.ggsn.silent = true })
	ended := make(chan error, 1)
	go func() {
		_, err := w.sgsn.attachOrder(w.wish(alice, "ue0"))
		ended <- err
	}()
	until(t, "nothing was asked", func() bool { return w.ggsn.count(gtp.TypeCreateRequest) > 0 })
	must[Done](t)(w.sgsn.detachOrder(Detached{Which: Which{IMSI: alice, NSAPI: 5}}))
	if err := <-ended; err == nil || w.links(t)["ue0"] != nil {
		t.Errorf("%v; devices %v", err, w.links(t))
	}
}

// TestOrderWhileEnding opens nothing.
func TestOrderWhileEnding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v4")+"t3_response = \"100ms\"\nn3_requests = 20\n"))
	w.ggsn.set(func() { w.ggsn.silent = true })
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	until(t, "the context is not closed", func() bool { return w.ggsn.count(gtp.TypeDeleteRequest) > 0 })
	if _, err := w.sgsn.attachOrder(w.wish(alice, "ue1")); !errors.Is(err, sgsn.ErrRetired) || w.links(t)["ue1"] != nil || w.ggsn.count(gtp.TypeCreateRequest) != 1 {
		t.Errorf("%v; devices %v, %d contexts", err, w.links(t), w.ggsn.count(gtp.TypeCreateRequest))
	}
	w.ggsn.set(func() { w.ggsn.silent = false })
	if err := <-stopped; err != nil || len(w.links(t)) != 1 {
		t.Errorf("%v; devices %v", err, w.links(t))
	}
	if _, err := w.sgsn.occupy(&want{netns: w.path(), tun: "ue2"}, gtp.TID{}); !errors.Is(err, sgsn.ErrRetired) || len(w.links(t)) != 1 {
		t.Errorf("a device after the end: %v; devices %v", err, w.links(t))
	}
}

// TestMoveBySecondary: whichever context of an address is named, all move, and the order is told what has become of it.
func TestMoveBySecondary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v4")+"t3_response = \"1s\"\nn3_requests = 2\n"))
	must[Done](t)(w.sgsn.secondaryOrder(Linked{Which: started, Filters: []string{"protocol=udp,remote-port=7"}, Quality: Quality{Class: "streaming", Up: 64, Down: 128}}))
	second := Which{IMSI: started.IMSI, NSAPI: 6}
	if d := must[Done](t)(w.sgsn.moveOrder(MovedTo{Which: second, To: ours2.String()})); d.Event != "moved" || w.ggsn.count(gtp.TypeUpdateRequest) != 2 {
		t.Errorf("%+v, %d requests", d, w.ggsn.count(gtp.TypeUpdateRequest))
	}
	w.ggsn.set(func() { w.ggsn.silent = true })
	if _, err := w.sgsn.moveOrder(MovedTo{Which: second, To: ours.String()}); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("without an answer: %v", err)
	}
}

// TestOrdersWithoutPrimary: whatever is ordered by way of a secondary context whose primary one was closed alone, has an
// answer. It goes to another GGSN as the primary one.
func TestOrdersWithoutPrimary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v4")))
	newGGSN(t, w.core, other)
	done := must[Done](t)
	done(w.sgsn.secondaryOrder(Linked{Which: started, Filters: []string{"protocol=udp,remote-port=7"}, Quality: Quality{Class: "streaming", Up: 64, Down: 128}}))
	done(w.sgsn.detachOrder(Detached{Which: started, Alone: true}))
	second := Which{IMSI: started.IMSI, NSAPI: 6}
	if d := done(w.sgsn.moveOrder(MovedTo{Which: second, To: ours2.String()})); d.Event != "moved" || d.Context.NSAPI != 6 || d.Context.SGSN != ours2 {
		t.Errorf("%+v", d)
	}
	if d := done(w.sgsn.moveOrder(MovedTo{Which: second, GGSN: other.String()})); d.Event != "attached" || d.Context.NSAPI != 5 || d.Context.GGSN != other {
		t.Errorf("%+v", d)
	}
}
