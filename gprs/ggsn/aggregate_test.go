// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// another makes one more primary context of the terminal of openAs.
func (w *world) another(n int, apn string, change func(*gtp.CreateRequest)) context {
	return w.openAs(n, profile(gtp.ClassBackground, 8640, 8640), func(m *gtp.CreateRequest) {
		m.NSAPI, m.APN.Value = 6, apnOf(apn)
		m.TEIDData, m.TEIDControl = 0x3000+uint32(n), gtp.Some(0x4000+uint32(n))
		if change != nil {
			change(m)
		}
	})
}

// both offers a second's packets to two contexts in turn, 4000 kbit/s each.
func (w *world) both(one, two context) (passed [2]int) {
	for n := range 1000 {
		w.now = w.now.Add(time.Millisecond)
		c := []context{one, two}[n%2]
		w.up(c, udp4(c.four(), server, 64, 1000-28))
		passed[n%2] += len(w.out.IP)
	}
	return passed
}

// TestAMBRShared: all contexts of a terminal at an access point have one rate, by however many sessions; other
// terminals and other access points have their own (TS 29.060 section 7.7.98).
func TestAMBRShared(t *testing.T) {
	near := func(got, want int) bool { return got >= want-3 && got <= want+3 }
	for _, tt := range []struct {
		name   string
		second func(w *world) context
		want   [2]int // of 500 packets each; the rate is 200 a second and a fifth of that ahead
	}{
		{"of one terminal at one access point", func(w *world) context { return w.another(1, "internet", nil) }, [2]int{120, 120}},
		{"of another terminal", func(w *world) context { return w.another(2, "internet", nil) }, [2]int{240, 240}},
		{"at another access point", func(w *world) context { return w.another(1, "dual", nil) }, [2]int{240, 240}},
		{"less is asked for, for all", func(w *world) context {
			return w.another(1, "internet", func(m *gtp.CreateRequest) { m.AMBR = gtp.Some(gtp.AMBR{Up: 800, Down: 800}) })
		}, [2]int{60, 60}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := limited(t, func(a *APN) { a.AMBRUp, a.AMBRDown = 1600, 1600 })
			one := w.openAs(1, profile(gtp.ClassBackground, 8640, 8640), nil)
			two := tt.second(w)
			got := w.both(one, two)
			if !near(got[0]+got[1], tt.want[0]+tt.want[1]) || tt.want[0] == 240 && !near(got[0], 240) {
				t.Errorf("%v passed, want %v together", got, tt.want)
			}
		})
	}
}

// TestAMBROutlives: what is shared stays with whoever is left, also over a restart and a change of the
// settings, and ends with the last.
func TestAMBROutlives(t *testing.T) {
	w := limited(t, func(a *APN) { a.AMBRUp = 1600 })
	one := w.openAs(1, profile(gtp.ClassBackground, 8640, 8640), nil)
	two := w.another(1, "internet", func(m *gtp.CreateRequest) { m.AMBR = gtp.Some(gtp.AMBR{Up: 800, Down: 800}) })
	w.both(one, two)
	e, lost, err := resume(t, w.e.settings, w.e.AppendState(nil), w.now, rand.NewChaCha8([32]byte{2}))
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	w.e = e
	if got := w.both(one, two); got[0]+got[1] < 98 || got[0]+got[1] > 102 || e.aggregates.used() != 1 {
		t.Errorf("%v passed after a restart, by %d rates", got, e.aggregates.used())
	}
	w.e.Contexts(Selection{}, 0, 10, func(x ContextInfo) bool {
		if x.AMBR != (Rates{Up: 800}) {
			t.Errorf("context %d has %v", x.NSAPI, x.AMBR)
		}
		return true
	})
	set := func(up uint32) {
		s := w.e.settings
		s.APNs = append([]APN(nil), s.APNs...)
		s.APNs[0].AMBRUp = up
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	m := w.updateRequest(0x1001)
	m.AMBR = gtp.Some(gtp.AMBR{Up: 1200, Down: 1200}) // of the first, after what the second has asked for
	w.ask(pathControl, gtp.Header{TEID: one.TEIDControl.Value}, m, &gtp.UpdateResponse{})
	set(0)
	if got := w.both(one, two); got != [2]int{500, 500} || w.e.aggregates.used() != 0 {
		t.Errorf("%v passed without a limit, by %d rates", got, w.e.aggregates.used())
	}
	set(1600)
	if got := w.both(one, two); got[0]+got[1] < 178 || got[0]+got[1] > 182 || w.e.aggregates.used() != 1 {
		t.Errorf("%v passed with one again, by %d rates", got, w.e.aggregates.used())
	}
	w.ask(pathControl, gtp.Header{TEID: one.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)}, &gtp.DeleteResponse{})
	if got := w.second(two, false); got < 148 || got > 152 {
		t.Errorf("%d passed of the one that is left", got)
	}
	w.ask(pathControl, gtp.Header{TEID: two.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 6, Teardown: gtp.Some(true)}, &gtp.DeleteResponse{})
	w.empty()
}
