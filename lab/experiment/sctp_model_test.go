// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// An association over models of the study's WLAN and UMTS goes over a cut: by the law the path is down after
// Path.Max.Retrans + 1 timeouts, nothing is lost, and data comes back.
func TestSCTPModel(t *testing.T) {
	const rto, most, spacing = time.Second, 2, 20 * time.Millisecond
	par := assoc.Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax, par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans = rto, rto, rto, most, most
	par.EarlyProbe, par.HeartbeatInterval = false, time.Second
	m, err := newSCTPModel(par, []lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}, 1)
	if err != nil {
		t.Fatal(err)
	}
	sent := uint64(0)
	talk := func(d time.Duration) {
		for end := m.now.Add(d); m.now.Before(end); m.run(spacing) {
			message := binary.BigEndian.AppendUint64(make([]byte, 0, cutSize), sent)
			if err := m.a[1].Send(assoc.Message{User: message[:cutSize]}, m.now, &m.out); err != nil {
				t.Fatal(err)
			}
			sent++
			m.flush(1)
		}
	}
	talk(2 * time.Second)
	cut := m.now
	m.gap = 0
	m.setCut(true)
	talk(5 * time.Second)
	// The clock began with what was out at the cut: up to two messages, which share an acknowledgement.
	if down := m.inactive.Sub(cut); down < (most+1)*rto-2*spacing || down > (most+1)*rto+rto/5 {
		t.Errorf("the path is down after %v, the law says %v", down, (most+1)*rto)
	}
	if m.gap < rto {
		t.Errorf("the longest time between two messages is %v, less than an RTO", m.gap)
	}
	m.setCut(false)
	restored := m.now
	talk(5 * time.Second)
	m.run(2 * time.Second)
	if m.primary.Before(restored) {
		t.Error("data has not come back to the first path")
	}
	if m.got != sent || m.wrong > 0 {
		t.Errorf("of %d messages %d have come, %d of them wrong", sent, m.got, m.wrong)
	}
}

// Whatever finds a cut first, the path of data is down by the law, and not when the last of the idle ones is that share its
// wire.
func TestSCTPModelDown(t *testing.T) {
	for name, change := range map[string]func(*assoc.Parameters){
		"RFC 9260 alone": func(*assoc.Parameters) {},
		"RFC 7829":       func(p *assoc.Parameters) { p.PotentiallyFailedMaxRetrans = 0 },
		"early probes":   func(p *assoc.Parameters) { p.PotentiallyFailedMaxRetrans, p.EarlyProbe = 0, true },
	} {
		par := studyParameters(time.Second, studyRetrans, 30*time.Second)
		par.RTOMax = time.Minute
		change(&par)
		c := studyCase{par: par, wires: studyWires(false), lead: time.Second, cut: 2 * time.Minute, every: studyEvery, seed: 1}
		s, err := c.run()
		if err != nil {
			t.Fatal(err)
		}
		if law := lawDown(time.Second, time.Minute, studyRetrans); s.down < law-2*studyEvery || s.down > law+100*time.Millisecond {
			t.Errorf("%s: the path is down after %v, the law says %v", name, s.down, law)
		}
	}
}

// Heartbeats that are counted beside data bring the end forward where they are due before data is sent again.
func TestLawWithBeats(t *testing.T) {
	for beat, want := range map[time.Duration]time.Duration{
		time.Second:     15 * time.Second, // at 4, 7, 8, 11, 12, 15
		2 * time.Second: 24 * time.Second, 30 * time.Second: 24 * time.Second,
	} {
		if at := lawWithBeats(4*time.Second, beat, 5); at != want {
			t.Errorf("HB.Interval %v: inactive after %v at the earliest, want %v", beat, at, want)
		}
	}
}

// Clocks are said to follow the law that they are near, and none else.
func TestTSNLaws(t *testing.T) {
	par := studyParameters(4*time.Second, studyRetrans, studyHeartbeat)
	for fresh, want := range map[time.Duration]string{24010 * time.Millisecond: "RFC 9260", 20010 * time.Millisecond: "the study", 12200 * time.Millisecond: "neither", -1: "neither"} {
		seen := studySeen{fresh: fresh}
		for _, row := range tsnLaws(&par, []tsnRun{{by: "Isthmus", seen: &seen}}).Rows {
			if row[0] == "cut to first new data by UMTS" && (row[5] != want || row[1] != "24" || row[3] != "20") {
				t.Errorf("%v: %q", fresh, row)
			}
		}
	}
}

// What has not come back within a run has a row that says so.
func TestUnseenReturns(t *testing.T) {
	c := report.Curve{Name: "usrsctp"}
	c.Add(1, report.Measured(0.5))
	if rows := unseenReturns(&c, inTime(1, 30)); len(rows) != 1 || rows[0][0] != "usrsctp" || rows[0][1] != "30" {
		t.Errorf("%q", rows)
	}
}

// An answer by the first link is read with the HEARTBEAT of the server that it answers, which may have left before the wire was
// whole again.
func TestFirstBeats(t *testing.T) {
	begin := time.Unix(1, 0)
	w := &sctpWatch{beats: map[uint16][]sctpBeat{}}
	for _, f := range []struct {
		after time.Duration
		link  int
		from  netip.Addr
		port  byte // of the terminal
		kind  chunk.Type
		info  byte
	}{
		{-2 * time.Second, 0, wireServer[0], 90, chunk.TypeHeartbeat, 1}, // never answered
		{-time.Second, 0, wireServer[0], 90, chunk.TypeHeartbeat, 2},
		{3 * time.Second, 0, wireTerminal[0], 90, chunk.TypeHeartbeatAck, 3}, // seen before what was asked
		{2 * time.Second, 0, wireServer[0], 90, chunk.TypeHeartbeat, 3},
		{time.Second, 1, wireServer[1], 90, chunk.TypeHeartbeat, 4},      // by the other link
		{time.Second, 0, wireTerminal[0], 90, chunk.TypeHeartbeat, 5},    // the terminal's own
		{time.Second, 0, wireServer[0], 90, chunk.TypeHeartbeatAck, 5},   // and the answer to it
		{time.Second, 0, wireTerminal[0], 90, chunk.TypeHeartbeatAck, 4}, // answered by this one
		{4 * time.Second, 0, wireTerminal[0], 90, chunk.TypeHeartbeatAck, 2},
		{-time.Second, 0, wireServer[0], 91, chunk.TypeHeartbeat, 6},
		{time.Second, 0, wireServer[0], 91, chunk.TypeHeartbeat, 7},
		{2 * time.Second, 0, wireTerminal[0], 91, chunk.TypeHeartbeatAck, 6},
		{-time.Second, 0, wireServer[0], 92, chunk.TypeHeartbeat, 8},
		{time.Second, 0, wireServer[0], 92, chunk.TypeHeartbeat, 9},
	} {
		frame := make([]byte, 14+40, 100)
		frame[14+6] = unix.IPPROTO_SCTP
		from := f.from.As16()
		copy(frame[14+8:], from[:])
		ports := []byte{0, 80, 0, f.port} // from the server's to the terminal's
		if slices.Contains(wireTerminal, f.from) {
			ports = []byte{0, f.port, 0, 80}
		}
		frame = append(append(frame, ports...), 0, 0, 0, 0, 0, 0, 0, 0, byte(f.kind), 0, 0, 8, 0, 1, 0, f.info)
		w.seeBeats(f.link, begin.Add(f.after), frame)
	}
	second := func(s time.Duration) time.Time { return begin.Add(s * time.Second) }
	for port, want := range map[uint16][2]time.Time{
		90: {second(2), second(3)},
		91: {second(-1), second(2)}, // what was on its way when the wire came back
		92: {second(1)},
		80: {}, // the server's own
	} {
		if asked, answered := w.firstBeats(port, begin); !asked.Equal(want[0]) || !answered.Equal(want[1]) {
			t.Errorf("port %d: asked at %v, answered at %v", port, asked, answered)
		}
	}
}

// At UMTS's jitter round trips come to more than the RTO while the window grows. Hardly anything is sent twice for that,
// and the line stays full.
func TestSCTPModelSpurious(t *testing.T) {
	const seeds, length, offered, twice = 20, 20 * time.Second, 70, 0.005
	var sent, again, timeouts, got uint64
	for seed := range byte(seeds) {
		par := *sctpTransport().Parameters
		m, err := newSCTPModel(par, []lab.WireConfig{lab.UMTS()}, seed)
		if err != nil {
			t.Fatal(err)
		}
		message := make([]byte, transportSize)
		for end := m.now.Add(length); m.now.Before(end); m.run(time.Second / offered) {
			if err := m.a[0].Send(assoc.Message{User: message}, m.now, &m.out); err != nil && err != assoc.ErrBlocked {
				t.Fatal(err)
			}
			m.flush(0)
		}
		sent, again = sent+m.ends[0].Counters.Sent, again+m.ends[1].Counters.Duplicate
		timeouts, got = timeouts+m.ends[0].Counters.Timeouts, got+m.got
	}
	t.Logf("of %d chunks %d came twice, %d timeouts, %.1f kB/s", sent, again, timeouts, float64(got*transportSize)/1000/seeds/length.Seconds())
	if timeouts == 0 || float64(again) > twice*float64(sent) {
		t.Errorf("of %d chunks %d came twice, %d timeouts", sent, again, timeouts)
	}
	if rate := float64(got*transportSize) / 1000 / seeds / length.Seconds(); rate < 0.9*umtsCarries {
		t.Errorf("%.1f kB/s came through", rate)
	}
}
