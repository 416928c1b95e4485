// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// An association over models of the study's WLAN and UMTS goes over a cut: by the law the path is down after
// Path.Max.Retrans + 1 timeouts, nothing is lost, and data comes back.
func TestSCTPModel(t *testing.T) {
	const rto, most, spacing = time.Second, 2, 20 * time.Millisecond
	par := assoc.Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax, par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans = rto, rto, rto, most, most
	par.EarlyProbe, par.HeartbeatInterval = false, time.Second
	m, err := newSCTPModel(par, [2]lab.WireConfig{lab.WLAN(), umtsWithoutJitter()}, 1)
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
