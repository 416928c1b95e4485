// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/port/porttest"
)

// TestTimerRouses moves the time of a sleeper, who is woken only for what is sooner than
// it would look by itself.
func TestTimerRouses(t *testing.T) {
	start := time.Now()
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	timer := new(timer)
	sleep := func() {
		if _, due := timer.alarm(); due {
			t.Fatal("the time has come")
		}
	}
	for _, tt := range []struct {
		name  string
		due   time.Time
		rouse bool
	}{
		{"the first", at(10), true},
		{"later", at(20), false},
		{"back again, as after each packet and its answer", at(10), false},
		{"later than it sleeps", at(15), false},
		{"never", time.Time{}, false},
		{"again", at(12), false},
		{"sooner", at(5), true},
		{"later than that", at(7), false},
	} {
		if got := timer.set(tt.due); got != tt.rouse {
			t.Errorf("%s: woken %t", tt.name, got)
		}
		if tt.rouse {
			sleep()
		}
	}
	timer.set(time.Time{})
	sleep()
	if !timer.set(at(30)) {
		t.Error("who sleeps without an end is not woken")
	}
}

// tellingUDP tells when it is written to.
type tellingUDP struct {
	*porttest.UDP
	wrote func()
}

func (u tellingUDP) WriteBatch(d []packet.Datagram) error {
	u.wrote()
	return u.UDP.WriteBatch(d)
}

var _ port.UDPConn = tellingUDP{}

// TestPacketLeavesBeforeTimer has a packet set the timer: no one is woken before the
// packet has left.
func TestPacketLeavesBeforeTimer(t *testing.T) {
	l, m, _ := newMirrorLoop()
	wrote := 0
	l.SetSocket(0, tellingUDP{porttest.NewUDP(loopLocal), func() {
		wrote++
		if len(l.timer.channel()) > 0 {
			t.Error("the timer was told before the packet left")
		}
	}})
	l.Do(func(now time.Time, out *packet.Batch) {
		m.due = []time.Time{now.Add(time.Minute)}
		out.SendUDP(0, loopPeer, []byte("out"))
	})
	if wrote != 1 || len(l.timer.channel()) != 1 {
		t.Errorf("%d packets left, and the timer was told %d times", wrote, len(l.timer.channel()))
	}
}
