// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// newCharged is a world whose access points have charging records.
func newCharged(t testing.TB, l Charging) *world {
	t.Helper()
	return newWorld(t, func(s *Settings) { *s = chargedSettings(l) })
}

func chargedSettings(l Charging) Settings {
	s := testSettings()
	s.Records = true
	for i := range s.APNs {
		s.APNs[i].Account, s.APNs[i].Charging = true, l
	}
	return s
}

// text is a record in short: number, cause and seconds, then of each container why it was closed, octets up and down,
// SGSN, radio access and the code of the cell.
func (r *Record) text() string {
	parts := []string{fmt.Sprintf("%d %s %d", r.Number, r.Cause, r.Duration/time.Second)}
	for i := range r.Containers {
		one := &r.Containers[i]
		parts = append(parts, fmt.Sprintf("%s %d/%d %s %d %d", strings.Join(one.Why.Names(), "+"), one.Up.Octets, one.Down.Octets, one.SGSN, one.RAT.Value, one.Location.Value[7]))
	}
	return strings.Join(parts, ", ")
}

// records returns those of the last call in short.
func (w *world) records() (list []string) {
	for i := range w.out.Records {
		list = append(list, w.out.Records[i].text())
	}
	return list
}

// moves has a context updated by an SGSN, and what it says besides changed.
func (w *world) moves(c *context, from netip.Addr, change func(*gtp.UpdateRequest)) {
	w.Helper()
	w.from = from
	m := w.updateRequest(0x7000)
	m.QoS = gtp.Some(qosOf(2, 0x0b, 0x92, 0x1f))
	if change != nil {
		change(m)
	}
	var r gtp.UpdateResponse
	if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r); !r.Cause.Accepted() {
		w.Fatal(r.Cause)
	}
}

// TestRecordContainers has a container for each change, under the conditions before it, in the one record of a context
// that ends: of what is asked for without a change there is none.
func TestRecordContainers(t *testing.T) {
	w := newCharged(t, Charging{})
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.RATType = gtp.Some(gtp.RATGERAN)
	c := w.create(m)
	carry := func(octets int) {
		w.up(c, udp4(c.four(), server, 64, octets-28))
		w.down(udp4(server, c.four(), 64, 2*octets-28))
		w.tick(time.Minute)
	}
	plmn, _ := gtp.MakePLMN("240", "01")
	cell := gtp.Some(gtp.Location{Kind: gtp.LocationCell, PLMN: plmn, LAC: 0x1234, Code: 9})
	carry(100)
	w.moves(&c, sgsn, func(m *gtp.UpdateRequest) { m.QoS = gtp.Some(qosOf(2, 1, 2, 3)) })
	carry(200)
	w.moves(&c, other, func(m *gtp.UpdateRequest) {
		m.QoS, m.RATType, m.Location, m.TimeZone = gtp.Some(qosOf(2, 1, 2, 3)), gtp.Some(gtp.RATUTRAN), cell, gtp.Some(gtp.TimeZone{Octet: 0x40})
	})
	w.moves(&c, other, func(m *gtp.UpdateRequest) { m.QoS = gtp.Some(qosOf(2, 1, 2, 3)) })
	carry(300)
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, infoChange(gtp.RATUTRAN, 10), &gtp.InfoChangeResponse{})
	if len(w.out.Records) != 0 || len(w.told(ContextUpdated)) != 1 {
		t.Errorf("records %v", w.records())
	}
	carry(400)
	w.moves(&c, sgsn, func(m *gtp.UpdateRequest) { m.QoS = gtp.Some(qosOf(2, 1, 2, 3)) })
	carry(500)
	began := start
	var r gtp.DeleteResponse
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 5, Location: cell}, &r)
	if len(w.out.Records) != 1 {
		t.Fatalf("records %v", w.records())
	}
	got := &w.out.Records[0]
	want := "1 normal_release 300, " +
		"qos_change 100/200 198.51.100.1 2 0, " +
		"sgsn_change+rat_change+user_location_change+ms_time_zone_change 200/400 198.51.100.1 2 0, " +
		"user_location_change 300/600 198.51.100.2 1 9, " +
		"sgsn_change 400/800 198.51.100.2 1 10, " +
		"user_location_change 500/1000 198.51.100.1 1 10, " +
		"record_closure 0/0 198.51.100.1 1 9"
	if got.text() != want {
		t.Errorf("record\n%s, want\n%s", got.text(), want)
	}
	if got.Context.Up != (Traffic{5, 1500}) || got.Context.Down != (Traffic{5, 3000}) || !got.Opened.Equal(began) || !got.Closed.Equal(w.now) ||
		!got.Ended || !got.Last || got.End != EndPeer || !slices.Equal(got.SGSNs, []netip.Addr{sgsn, other, sgsn}) {
		t.Errorf("record %+v", got)
	}
	for i := range got.Containers {
		if at := start.Add(time.Duration([]int{1, 2, 3, 4, 5, 5}[i]) * time.Minute); !got.Containers[i].Time.Equal(at) {
			t.Errorf("container %d is of %v, want %v", i, got.Containers[i].Time, at)
		}
	}
	w.empty()
}

// TestRecordSecondary has the contexts of a session share what changes for all of it, and a profile of their own.
func TestRecordSecondary(t *testing.T) {
	w := newCharged(t, Charging{})
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	w.moves(&c, sgsn, func(m *gtp.UpdateRequest) { m.QoS = gtp.Some(qosOf(2, 1, 2, 3)) })
	w.moves(&c, other, func(m *gtp.UpdateRequest) { m.QoS = gtp.Some(qosOf(2, 1, 2, 3)) })
	w.remove(c.TEIDControl.Value, 5, true)
	if got, want := w.records(), []string{
		"1 normal_release 0, qos_change 0/0 198.51.100.1 0 0, sgsn_change 0/0 198.51.100.1 0 0, record_closure 0/0 198.51.100.2 0 0",
		"1 normal_release 0, sgsn_change 0/0 198.51.100.1 0 0, record_closure 0/0 198.51.100.2 0 0",
	}; !slices.Equal(got, want) {
		t.Errorf("records\n%s", strings.Join(got, "\n"))
	}
	if w.out.Records[0].Last || !w.out.Records[1].Last {
		t.Error("the last one is not the last")
	}
}

// TestRecordQoS ends containers by profiles that this node asks for, once the SGSN has agreed, and by those of GTPv0 at
// once.
func TestRecordQoS(t *testing.T) {
	w := newCharged(t, Charging{Changes: 1})
	w.open(1, "internet", gtp.PDPTypeIPv4)
	q := qosOf(1, 0x23, 0x91, 0x1f)
	w.amend(w.refs(Selection{}), Amendment{QoS: gtp.Some(q)}, nil)
	if len(w.out.Records) != 0 {
		t.Errorf("before the answer: %v", w.records())
	}
	w.reply(w.out.UDP[0], &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: gtp.Some(q)})
	if got := w.records(); len(got) != 1 || !strings.HasPrefix(got[0], "1 max_changes 0, qos_change") {
		t.Errorf("records %v", got)
	}
	w = newCharged(t, Charging{Changes: 1})
	w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4)
	w.amend(w.refs(Selection{}), Amendment{QoS: gtp.Some(q)}, nil)
	if got := w.records(); len(got) != 1 || !strings.HasPrefix(got[0], "1 max_changes 0, qos_change") {
		t.Errorf("of GTPv0: %v", got)
	}
}

// TestRecordLimits closes the record of a context that lasts by each limit, and goes on with another.
func TestRecordLimits(t *testing.T) {
	packet := func(w *world, c *context, octets int) []string {
		w.from = sgsn
		w.up(*c, udp4(c.four(), server, 64, octets-28))
		return w.records()
	}
	for _, tt := range []struct {
		name  string
		limit Charging
		play  func(w *world, c *context) [][]string
		want  []string
	}{
		{"volume of both directions", Charging{Volume: 1000}, func(w *world, c *context) (got [][]string) {
			got = append(got, packet(w, c, 400))
			w.down(udp4(server, c.four(), 64, 599-28))
			got = append(got, w.records(), packet(w, c, 100), packet(w, c, 999))
			return append(got, packet(w, c, 100), packet(w, c, 1000))
		}, []string{"1 volume_limit 0, record_closure 500/599 198.51.100.1 0 0", "2 volume_limit 0, record_closure 1099/0 198.51.100.1 0 0", "3 volume_limit 0, record_closure 1000/0 198.51.100.1 0 0"}},
		{"volume, by a packet to the terminal", Charging{Volume: 1000}, func(w *world, c *context) (got [][]string) {
			w.down(udp4(server, c.four(), 64, 1000-28))
			return [][]string{w.records()}
		}, []string{"1 volume_limit 0, record_closure 0/1000 198.51.100.1 0 0"}},
		{"time", Charging{Time: time.Hour}, func(w *world, c *context) (got [][]string) {
			packet(w, c, 100)
			for range 2 {
				w.out.Reset()
				w.tick(time.Hour - time.Second)
				got = append(got, w.records())
				w.tick(time.Second)
				got = append(got, w.records())
				packet(w, c, 200)
			}
			return got
		}, []string{"1 time_limit 3600, record_closure 100/0 198.51.100.1 0 0", "2 time_limit 3600, record_closure 200/0 198.51.100.1 0 0"}},
		{"changes", Charging{Changes: 2}, func(w *world, c *context) (got [][]string) {
			for i := range 4 {
				packet(w, c, 100)
				w.moves(c, sgsn, func(m *gtp.UpdateRequest) { m.RATType = gtp.Some(gtp.RATType(i + 1)) })
				got = append(got, w.records())
			}
			return got
		}, []string{"1 max_changes 0, rat_change 100/0 198.51.100.1 0 0, rat_change 100/0 198.51.100.1 1 0", "2 max_changes 0, rat_change 100/0 198.51.100.1 2 0, rat_change 100/0 198.51.100.1 3 0"}},
		{"SGSNs", Charging{SGSNs: 2}, func(w *world, c *context) (got [][]string) {
			for i := range 4 {
				w.moves(c, []netip.Addr{other, sgsn}[i%2], nil)
				got = append(got, w.records())
			}
			return got
		}, []string{
			"1 sgsn_change 0, sgsn_change 0/0 198.51.100.1 0 0, sgsn_change 0/0 198.51.100.2 0 0", "2 sgsn_change 0, sgsn_change 0/0 198.51.100.1 0 0, sgsn_change 0/0 198.51.100.2 0 0",
		}},
		{"management", Charging{}, func(w *world, c *context) (got [][]string) {
			packet(w, c, 100)
			for _, sel := range []Selection{{APN: "dual"}, {APN: "internet"}} {
				w.out.Reset()
				w.e.CloseRecords(w.refs(sel), w.now, &w.out)
				got = append(got, w.records())
			}
			return got
		}, []string{"1 management_intervention 0, record_closure 100/0 198.51.100.1 0 0"}},
		{"a tariff ends containers alone", Charging{Tariffs: []time.Duration{6 * time.Hour, 13 * time.Hour}, Time: 24 * time.Hour}, func(w *world, c *context) (got [][]string) {
			packet(w, c, 100) // at noon
			w.tick(time.Hour - time.Second)
			packet(w, c, 200)
			w.tick(time.Second)
			packet(w, c, 400)
			w.out.Reset()
			w.tick(23 * time.Hour)
			return [][]string{w.records()}
		}, []string{"1 time_limit 86400, tariff_time 300/0 198.51.100.1 0 0, tariff_time 400/0 198.51.100.1 0 0, record_closure 0/0 198.51.100.1 0 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newCharged(t, tt.limit)
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			if got := slices.Concat(tt.play(w, &c)...); !slices.Equal(got, tt.want) {
				t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if len(w.told(ContextDeleted)) != 0 || w.e.contexts.used() != 1 {
				t.Error("the context has ended")
			}
		})
	}
}

// TestRecordCauses has a cause for each end of a context, and its last record ended by it.
func TestRecordCauses(t *testing.T) {
	want := map[End]Closing{EndPeer: CloseNormal, EndRecreated: CloseRecreated, EndPath: CloseAbnormal, EndAdmin: CloseManagement}
	for end := range numEnds {
		w := newCharged(t, Charging{})
		w.open(1, "internet", gtp.PDPTypeIPv4)
		w.out.Reset()
		w.e.endSession(1, end, w.e.begin(w.now, &w.out))
		got := w.out.Records
		if len(got) != 1 || !got[0].Ended || got[0].End != end || got[0].Cause >= CloseVolume {
			t.Errorf("%v: %+v", end, got)
		}
		if cause, known := want[end]; known && got[0].Cause != cause {
			t.Errorf("%v: %v, want %v", end, got[0].Cause, cause)
		}
		if w.e.stats.Records[got[0].Cause] != 1 {
			t.Errorf("%v is not counted", end)
		}
		w.empty()
	}
}

// TestNoRecords keeps none where nobody wants them, or a session has no account.
func TestNoRecords(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"nobody wants them": func(s *Settings) { s.Records = false },
		"no account":        func(s *Settings) { s.APNs[0].Account = false },
	} {
		t.Run(name, func(t *testing.T) {
			s := chargedSettings(Charging{Volume: 1, Changes: 1, Time: time.Minute, Tariffs: []time.Duration{13 * time.Hour}})
			change(&s)
			w := newWorld(t, func(to *Settings) { *to = s })
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			w.up(c, udp4(c.four(), server, 64, 100))
			w.moves(&c, other, nil)
			w.tick(24 * time.Hour)
			w.e.CloseRecords(w.refs(Selection{}), w.now, &w.out)
			w.remove(c.TEIDControl.Value, 5, true)
			if w.e.stats.Records != [NumClosings]uint64{} || len(w.out.Records) != 0 {
				t.Errorf("%v", w.e.stats.Records)
			}
			w.empty()
		})
	}
}

// TestNextTariff is the next time of the day where the clock is, also when that is set for summer.
func TestNextTariff(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	l := Charging{Tariffs: []time.Duration{2*time.Hour + 30*time.Minute, 20 * time.Hour}}
	for _, tt := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC), "2026-11-27T02:30:00Z"},
		{time.Date(2026, 11, 27, 2, 30, 0, 0, time.UTC), "2026-11-27T20:00:00Z"},
		{time.Date(2026, 11, 27, 19, 59, 59, 999, time.UTC), "2026-11-27T20:00:00Z"},
		{time.Date(2026, 12, 31, 20, 0, 0, 1, time.UTC), "2027-01-01T02:30:00Z"},
		{time.Date(2026, 11, 27, 0, 0, 0, 0, berlin), "2026-11-27T01:30:00Z"},
		{time.Date(2026, 3, 28, 21, 0, 0, 0, berlin), "2026-03-29T01:30:00Z"}, // 2:30 is not there: an hour later
		{time.Date(2026, 3, 29, 12, 0, 0, 0, berlin), "2026-03-29T18:00:00Z"},
		{time.Date(2026, 10, 25, 12, 0, 0, 0, berlin), "2026-10-25T19:00:00Z"},
	} {
		if got := time.Unix(l.nextTariff(tt.now), 0).UTC().Format(time.RFC3339); got != tt.want {
			t.Errorf("after %v: %s, want %s", tt.now, got, tt.want)
		}
	}
	havana, err := time.LoadLocation("America/Havana")
	if err != nil {
		t.Fatal(err)
	}
	l = Charging{Tariffs: []time.Duration{0}} // one day in March has no midnight
	for now, end := start.In(havana), start.AddDate(1, 0, 0); now.Before(end); {
		next := time.Unix(l.nextTariff(now), 0).In(havana)
		if d := next.Sub(now); d <= 0 || d > 25*time.Hour {
			t.Fatalf("after %v: %v", now, next)
		}
		now = next
	}
	if got := (&Charging{}).nextTariff(start); got != 0 {
		t.Errorf("without a tariff: %d", got)
	}
}

// TestRecordReload applies other limits to records that are open.
func TestRecordReload(t *testing.T) {
	w := newCharged(t, Charging{})
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.up(c, udp4(c.four(), server, 64, 100-28))
	w.tick(time.Hour)
	w.out.Reset()
	if err := w.e.Reconfigure(chargedSettings(Charging{Volume: 150, Time: 2 * time.Hour, Tariffs: []time.Duration{14*time.Hour + 30*time.Minute}}), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.tick(time.Hour)
	if got := w.records(); len(got) != 1 || got[0] != "1 time_limit 7200, record_closure 100/0 198.51.100.1 0 0" {
		t.Errorf("by time: %v", got)
	}
	w.tick(time.Hour)
	w.up(c, udp4(c.four(), server, 64, 150-28))
	if got := w.records(); len(got) != 1 || got[0] != "2 volume_limit 3600, tariff_time 0/0 198.51.100.1 0 0, record_closure 150/0 198.51.100.1 0 0" {
		t.Errorf("by volume: %v", got)
	}
	for _, bad := range []Charging{{Changes: -1}, {Changes: MaxChanges + 1}, {Time: -1}, {SGSNs: -1}, {Tariffs: []time.Duration{24 * time.Hour}}, {Tariffs: []time.Duration{-1}}} {
		if err := w.e.Reconfigure(chargedSettings(bad), w.now, &w.out); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestRecordTariffs ends containers at a tariff also where a reload comes between its time and the node's doing, and
// whichever way the clock of the day was set meanwhile.
func TestRecordTariffs(t *testing.T) {
	w := newCharged(t, Charging{Tariffs: []time.Duration{20 * time.Hour}})
	w.open(1, "internet", gtp.PDPTypeIPv4) // at noon
	s := w.e.sessions.at(1)
	due := func(at time.Duration, day time.Time) (ended int, next time.Duration) {
		before := len(w.e.recordOf(1).ended)
		c := call{now: day, at: at, out: &w.out}
		w.e.sessionDue(1, c)
		return len(w.e.recordOf(1).ended) - before, w.e.nextRecord(1, s, w.e.accessPoint(s), c) - at
	}
	for _, row := range []struct {
		name  string
		at    time.Duration // since the context began
		day   time.Duration // by the clock, since its beginning
		ended int
		next  time.Duration
	}{
		{"before it", 7*time.Hour + 30*time.Minute, 7*time.Hour + 30*time.Minute, 0, 30 * time.Minute},
		{"set forward", 7*time.Hour + 31*time.Minute, 8*time.Hour + 10*time.Minute, 1, clockCheck},
		{"set forward by years", 8 * time.Hour, 9000*time.Hour - 20*time.Minute, 1, clockCheck},
		{"set back to the day", 9 * time.Hour, 7*time.Hour + 10*time.Minute, 0, 50 * time.Minute},
		{"again", 10 * time.Hour, 8*time.Hour + 10*time.Minute, 1, clockCheck},
	} {
		if ended, next := due(row.at, start.Add(row.day)); ended != row.ended || next != row.next {
			t.Errorf("%s: %d containers, looked at again after %v; want %d, %v", row.name, ended, next, row.ended, row.next)
		}
	}
	w = newCharged(t, Charging{Tariffs: []time.Duration{13 * time.Hour}})
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.now = w.now.Add(time.Hour)
	w.takes(w.e.settings)
	if w.tick(0); len(w.e.recordOf(1).ended) != 1 {
		t.Errorf("a reload has lost a tariff: %+v", w.e.recordOf(1))
	}
}

// TestRecordResume goes on with the record that is open, and closes first what time has closed meanwhile.
func TestRecordResume(t *testing.T) {
	w := newCharged(t, Charging{Tariffs: []time.Duration{13 * time.Hour}, Time: 3 * time.Hour})
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.up(c, udp4(c.four(), server, 64, 100-28))
	w.moves(&c, other, nil)
	w.moves(&c, sgsn, nil)
	state := w.e.AppendState(nil)
	w.now = w.now.Add(2 * time.Hour)
	if lost := w.succeed(w.e.settings, state); lost != 0 {
		t.Fatal(lost)
	}
	w.tick(time.Second) // what was due meanwhile
	w.from = sgsn
	w.up(c, udp4(c.four(), server, 64, 200-28))
	w.tick(time.Hour)
	if got := w.records(); len(got) != 1 || got[0] != "1 time_limit 10800, sgsn_change 100/0 198.51.100.1 0 0, sgsn_change 0/0 198.51.100.2 0 0, tariff_time 0/0 198.51.100.1 0 0, record_closure 200/0 198.51.100.1 0 0" {
		t.Errorf("records %v", got)
	}
	if got := w.out.Records[0]; !got.Opened.Equal(start) || !got.Containers[0].Time.Equal(start) {
		t.Errorf("opened %v, a container of %v", got.Opened, got.Containers[0].Time)
	}
}
