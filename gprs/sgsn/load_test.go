// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// serve answers what was sent, each request after a time.
func (w *world) serve(each time.Duration, refuse func(n int) bool) {
	for n := 0; w.seen < len(w.out.UDP); n++ {
		w.now = w.now.Add(each)
		if w.out.UDP[w.seen].Payload[1] == byte(gtp.TypeDeleteRequest) {
			d, h := w.next()
			w.say(d.Socket, reply(h, 1), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			continue
		}
		w.accept(func(m *gtp.CreateResponse) {
			if refuse(n) {
				*m = gtp.CreateResponse{Cause: gtp.CauseNoResources}
			}
		})
	}
}

// TestLoad creates contexts and deletes them, no more at once than the window has, and reports.
func TestLoad(t *testing.T) {
	w := newWorld(t, Settings{MaxContexts: 100})
	var report LoadReport
	ended := 0
	set := LoadSettings{Template: *attachment(gtp.V1, gtp.PDPTypeIPv6), Contexts: 100, Window: 10}
	done := func(r LoadReport) { report, ended = r, ended+1 }
	w.order(w.e.StartLoad(set, done, w.now, &w.out))
	if len(w.out.UDP) != 10 {
		t.Errorf("%d requests at once", len(w.out.UDP))
	}
	if err := w.e.StartLoad(set, done, w.now, &w.out); err == nil {
		t.Error("a second load began")
	}
	w.serve(time.Millisecond, func(n int) bool { return n%10 == 3 })
	if ended != 1 || report.Creates.Answered != 90 || report.Creates.Failed != 10 || report.Deletes.Answered != 90 || report.Deletes.Failed != 0 {
		t.Fatalf("%d ended: %+v", ended, report)
	}
	if want := "refused (no resources available, cause 199)"; report.Why != want {
		t.Errorf("the first has failed by %q, want %q", report.Why, want)
	}
	if c := report.Creates; c.Seconds != 0.1 || c.PerSecond != 900 || c.P50 != 10*time.Millisecond || c.Max != 10*time.Millisecond {
		t.Errorf("%+v", c)
	}
	if w.empty(); len(w.out.Events) != 0 {
		t.Errorf("events %+v", w.out.Events)
	}
}

// TestLoadHold leaves the contexts for a while, in which some end by themselves.
func TestLoadHold(t *testing.T) {
	w := newWorld(t, Settings{})
	var report *LoadReport
	set := LoadSettings{Template: *attachment(gtp.V1, gtp.PDPTypeIPv4), Contexts: 10, Window: 10, Hold: time.Minute}
	w.order(w.e.StartLoad(set, func(r LoadReport) { report = &r }, w.now, &w.out))
	w.serve(0, func(int) bool { return false })
	w.wait(59 * time.Second)
	if len(w.e.contexts) != 10 || w.seen < len(w.out.UDP) {
		t.Fatalf("%d contexts, %d requests too soon", len(w.e.contexts), len(w.out.UDP)-w.seen)
	}
	for key := range w.e.contexts {
		w.e.end(w.e.contexts[key], ReasonNetwork, 0, 0, w.now, &w.out)
		break
	}
	w.wait(time.Second)
	w.serve(time.Millisecond, nil)
	if w.empty(); report == nil || report.Deletes.Answered != 9 || report.Deletes.Failed != 1 || report.Deletes.Seconds != 0.009 {
		t.Errorf("%+v", report)
	}
}

// TestLoadRate keeps the rate.
func TestLoadRate(t *testing.T) {
	w := newWorld(t, Settings{})
	ended := false
	w.order(w.e.StartLoad(LoadSettings{Template: *attachment(gtp.V0, gtp.PDPTypeIPv4), Contexts: 1000, Rate: 100, Window: 1000}, func(LoadReport) { ended = true }, w.now, &w.out))
	for second := range 3 {
		w.wait(time.Second)
		if want := 100*(second+1) + 1; len(w.e.contexts) != want {
			t.Fatalf("%d contexts after %d seconds, want %d", len(w.e.contexts), second+1, want)
		}
	}
	w.wait(time.Hour)
	if w.empty(); !ended {
		t.Error("a load that no one answers has no end")
	}
}

// TestLoadOfNothing: where no request can be sent, the error says why, and another load can begin.
func TestLoadOfNothing(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*LoadSettings)
		want   string
	}{
		{"a GGSN of the other family", func(l *LoadSettings) { l.Template.GGSN, l.Template.NSAPI = netip.MustParseAddr("2001:db8::1"), 6 }, "the GGSN 2001:db8::1 and our address 192.0.2.1 are of different families"},
		{"the same at a rate", func(l *LoadSettings) { l.Template.GGSN, l.Contexts, l.Rate = netip.MustParseAddr("2001:db8::1"), 2, 1 }, "the GGSN 2001:db8::1 and our address 192.0.2.1 are of different families"},
		{"an address that is not ours", func(l *LoadSettings) { l.Template.Local, l.Contexts, l.Rate = 9, 2, 1 }, ErrLocal.Error()},
		{"an NSAPI that is none, at a rate", func(l *LoadSettings) { l.Template.NSAPI, l.Contexts, l.Rate = 16, 2, 1 }, "an NSAPI is 5 to 15, not 16"},
		{"contexts that are there", func(*LoadSettings) {}, ErrKnown.Error()},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{MaxContexts: 1000})
			w.attach(gtp.V1, gtp.PDPTypeIPv4)
			set := LoadSettings{Template: *attachment(gtp.V1, gtp.PDPTypeIPv4), Contexts: 1, Window: 10}
			ended := false
			row.change(&set)
			for range 2 {
				if err := w.e.StartLoad(set, func(LoadReport) { ended = true }, w.now, &w.out); err == nil || err.Error() != row.want || ended {
					t.Errorf("%v; it has ended, too: %t", err, ended)
				}
			}
		})
	}
}
