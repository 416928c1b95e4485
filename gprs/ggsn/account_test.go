// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// newAccounted is a world whose access points have accounts.
func newAccounted(t *testing.T, change func(*APN)) *world {
	t.Helper()
	return newWorld(t, func(s *Settings) {
		for i := range s.APNs {
			s.APNs[i].Account = true
			if change != nil {
				change(&s.APNs[i])
			}
		}
	})
}

// told returns what the last call told of contexts, by kind.
func (w *world) told(kind EventKind) (list []Event) {
	for _, e := range w.out.Events {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// TestAccount tells of the beginning, of what was carried until now, and once of the end, for each
// context of a session; the sums are those of the engine.
func TestAccount(t *testing.T) {
	w := newAccounted(t, func(a *APN) { a.Interim = 10 * time.Minute })
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.PCO, m.RATType = gtp.Some(pcoOf(gtp.ContainerPAP, papRequest("nemo", "arctangent"))), gtp.Some(gtp.RATUTRAN)
	c := w.create(m)
	began := w.told(ContextCreated)
	if len(began) != 1 || began[0].Context.Account == nil || string(began[0].Context.Account.User) != "nemo" || began[0].Context.Account.RAT != m.RATType || began[0].Context.Account.Selection != m.SelectionMode {
		t.Fatalf("began %+v", began)
	}
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	for range 3 {
		w.up(c, udp4(c.four(), server, 64, 100))
		w.up(c, udp6(c.six(), host6, 64, 1000))
		w.down(udp4(server, c.four(), 64, 300)) // by the secondary context
	}
	due := 10*time.Minute - head(1, 10*time.Minute)
	w.tick(due - time.Second)
	w.out.Reset()
	w.tick(time.Second)
	if counted := w.told(ContextCounted); len(counted) != 2 || counted[0].Context.Up != (Traffic{6, 3*128 + 3*1048}) || counted[1].Context.Down != (Traffic{3, 3 * 328}) || !counted[0].Time.Equal(start.Add(due)) {
		t.Fatalf("counted %+v", counted)
	}
	w.up(c, udp4(c.four(), server, 64, 0))
	// What goes no further, since it is for the link or its hop limit is over, was carried as well.
	w.solicit(c)
	w.up(c, udp4(c.four(), server, 1, 10))
	w.up(c, udp6(c.six(), host6, 1, 20))
	if w.remove(c.TEIDControl.Value, 5, true) != gtp.CauseAccepted {
		t.Fatal("it cannot be deleted")
	}
	ended := w.told(ContextDeleted)
	if len(ended) != 2 || ended[0].Last || !ended[1].Last || ended[0].End != EndPeer || ended[0].Context.ChargingID == ended[1].Context.ChargingID {
		t.Fatalf("ended %+v", ended)
	}
	up, down := ended[0].Context.Up.plus(ended[1].Context.Up), ended[0].Context.Down.plus(ended[1].Context.Down)
	if s := w.e.Stats(); up != s.Up || down != s.Down || up.Octets == 0 || down.Octets == 0 {
		t.Errorf("told of %v up and %v down, the engine has counted %v and %v", up, down, s.Up, s.Down)
	}
	w.empty()
}

func (t Traffic) plus(u Traffic) Traffic { return Traffic{t.Packets + u.Packets, t.Octets + u.Octets} }

// TestAccountOfServer tells as often as the server says where nothing is configured, with its class,
// also after a restart.
func TestAccountOfServer(t *testing.T) {
	w := newAccounted(t, func(a *APN) { a.Authorize = true })
	_, a := w.asks(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
	var r gtp.CreateResponse
	w.answer(w.authorize(a.Ticket, Grant{Interim: 5 * time.Minute, Class: [][]byte{[]byte("gold"), {1, 2}}}), &r)
	due := 5*time.Minute - head(1, 5*time.Minute)
	w.tick(time.Minute)
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	w.out.Reset()
	w.tick(due - time.Minute - time.Second)
	if len(w.told(ContextCounted)) != 0 {
		t.Error("too early")
	}
	w.tick(time.Second)
	counted := w.told(ContextCounted)
	if len(counted) != 1 {
		t.Fatalf("told %d times", len(counted))
	}
	if class := counted[0].Context.Account.Class; len(class) != 2 || string(class[0]) != "gold" || !bytes.Equal(class[1], []byte{1, 2}) {
		t.Errorf("class %q", class)
	}
	w.out.Reset()
	w.e.Close(w.now, &w.out)
	if ended := w.told(ContextDeleted); len(ended) != 1 || ended[0].End != EndStopped {
		t.Errorf("ended %+v", ended)
	}
	w.empty()
}

// TestAccountConfigured tells as often as is configured, whatever the server says, and of a terminal
// that moves where it is now.
func TestAccountConfigured(t *testing.T) {
	w := newAccounted(t, func(a *APN) { a.Authorize, a.Interim = true, time.Hour })
	_, a := w.asks(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
	var r gtp.CreateResponse
	w.answer(w.authorize(a.Ticket, Grant{Interim: 5 * time.Minute}), &r)
	w.tick(time.Hour - head(1, time.Hour) - time.Second)
	if len(w.told(ContextCounted)) != 0 {
		t.Error("too early")
	}
	w.tick(time.Second)
	if len(w.told(ContextCounted)) != 1 {
		t.Error("not told")
	}
	w.ask(pathControl, gtp.Header{TEID: r.TEIDControl.Value}, &gtp.UpdateRequest{
		TEIDData: gtp.Some(uint32(0x1000)), NSAPI: 5, QoS: gtp.Some(qosOf(2, 0x0b, 0x92, 0x1f)), RATType: gtp.Some(gtp.RATGERAN),
		AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from), TEIDControl: gtp.Some(uint32(0x2000)),
	}, &gtp.UpdateResponse{})
	if moved := w.told(ContextUpdated); len(moved) != 1 || moved[0].Context.Account.RAT != gtp.Some(gtp.RATGERAN) {
		t.Errorf("moved %+v", moved)
	}
}

// TestAccountPlace tells where a terminal is, as the last request of its SGSN has said it, also after a restart;
// what was told of before does not change.
func TestAccountPlace(t *testing.T) {
	w := newAccounted(t, nil)
	home, _ := gtp.MakePLMN("240", "01")
	away, _ := gtp.MakePLMN("244", "05")
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.RAI, m.TimeZone, m.CAMEL = gtp.Some(gtp.RAI{PLMN: home, LAC: 1}), gtp.Some(gtp.TimeZone{Octet: 0x40}), gtp.Some([]byte{0x31, 0})
	m.Location = gtp.Some(gtp.Location{Kind: 128, Rest: []byte{1, 2, 3, 4, 5}}) // of a later release
	r := w.create(m)
	began := w.told(ContextCreated)[0].Context.Account
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	update := gtp.UpdateRequest{
		TEIDData: gtp.Some(uint32(0x1000)), NSAPI: 5, QoS: gtp.Some(qosOf(2, 0x0b, 0x92, 0x1f)),
		AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from), TEIDControl: gtp.Some(uint32(0x2000)),
	}
	w.ask(pathControl, gtp.Header{TEID: r.TEIDControl.Value}, &update, &gtp.UpdateResponse{})
	stayed := w.told(ContextUpdated)[0].Context.Account
	update.RAI, update.TimeZone = gtp.Some(gtp.RAI{PLMN: away}), gtp.Some(gtp.TimeZone{Octet: 0x80, Summer: 1})
	update.Location = gtp.Some(gtp.Location{Kind: gtp.LocationCell, PLMN: away, LAC: 2, Code: 3})
	w.ask(pathControl, gtp.Header{TEID: r.TEIDControl.Value}, &update, &gtp.UpdateResponse{})
	moved := w.told(ContextUpdated)[0].Context.Account
	for _, one := range []struct {
		what     string
		of       *Account
		network  gtp.PLMN
		zone     uint8
		location []byte
	}{
		{"began", began, home, 0x40, []byte{128, 1, 2, 3, 4, 5}},
		{"stayed, after a restart", stayed, home, 0x40, []byte{128, 1, 2, 3, 4, 5}},
		{"moved", moved, away, 0x80, []byte{0, 0x42, 0xf4, 0x50, 0, 2, 0, 3}},
	} {
		if of := one.of; of.Network != gtp.Some(one.network) || of.TimeZone.Value.Octet != one.zone || !bytes.Equal(of.Location.Value.Append(nil), one.location) || !bytes.Equal(of.CAMEL, []byte{0x31, 0}) {
			t.Errorf("%s: %+v", one.what, of.Origin)
		}
	}
}

// TestAccountLost tells of the end of each context of an SGSN that does not answer any more, or has restarted, with
// what it has carried until then, and of no other one's.
func TestAccountLost(t *testing.T) {
	for why, lose := range map[End]func(*world){
		EndPath: func(w *world) {
			w.from = other // which answers
			for range 400 {
				echoes := ofType(w.tick(time.Second), gtp.TypeEchoRequest)
				if len(w.told(ContextDeleted)) > 0 {
					return
				}
				for _, d := range echoes {
					if d.To.Addr() == other {
						w.reply(d, &gtp.EchoResponse{})
					}
				}
				w.out.Reset()
			}
		},
		EndPeerRestart: func(w *world) {
			w.from = sgsn
			m := w.createRequest(testIMSI(9), "internet", gtp.PDPTypeIPv4)
			m.Recovery, m.TEIDControl = gtp.Some(uint8(2)), gtp.Some(uint32(0x9000))
			w.create(m)
			w.out.Reset()
			w.tick(0)
		},
	} {
		t.Run(why.String(), func(t *testing.T) {
			w := newWorld(t, func(s *Settings) {
				s.EchoInterval, s.PathHold = time.Minute, 2*time.Minute
				s.APNs[0].Account = true
			})
			w.from = other
			w.open(3, "internet", gtp.PDPTypeIPv4)
			w.from = sgsn
			for n := range 2 {
				m := w.createRequest(testIMSI(n+1), "internet", gtp.PDPTypeIPv4)
				m.Recovery, m.TEIDData = gtp.Some(uint8(1)), uint32(0x1001+n)
				c := w.create(m)
				w.up(c, udp4(c.four(), server, 64, 100))
			}
			lose(w)
			ended := w.told(ContextDeleted)
			if len(ended) != 2 {
				t.Fatalf("told of %d ends; ended %v", len(ended), w.e.stats.Ended)
			}
			for _, e := range ended {
				if e.End != why || !e.Last || e.Peer != sgsn || e.Context.Account == nil || e.Context.Up != (Traffic{1, 128}) {
					t.Errorf("told %+v", e)
				}
			}
		})
	}
}

// TestAccountSpread spreads the updates of sessions that began together over the interval, in the first one,
// in those that follow, and after a time in which none could be told.
func TestAccountSpread(t *testing.T) {
	const sessions, interval = 1000, 10 * time.Minute
	w := newAccounted(t, func(a *APN) { a.Interim = interval })
	for i := range sessions {
		w.open(i+1, "internet", gtp.PDPTypeIPv4)
	}
	for _, late := range []time.Duration{0, 0, 15 * time.Minute} {
		w.now = w.now.Add(late)
		for !w.e.Next().After(w.now) {
			w.e.Tick(w.now, &w.out)
		}
		of, most := map[uint32]int{}, 0
		for range interval / (10 * time.Second) {
			w.out.Reset()
			w.now = w.now.Add(10 * time.Second)
			w.e.Tick(w.now, &w.out)
			counted := w.told(ContextCounted)
			for _, e := range counted {
				of[e.Context.ChargingID]++
			}
			most = max(most, len(counted))
		}
		if len(of) != sessions || most > 2*sessions/60 {
			t.Errorf("%d of %d sessions were told of, %d of them in 10 s", len(of), sessions, most)
		}
		for id, n := range of {
			if n != 1 {
				t.Errorf("%x was told of %d times in an interval", id, n)
			}
		}
	}
}

// TestNoAccount tells of no account where none is kept.
func TestNoAccount(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(24 * time.Hour)
	if w.remove(c.TEIDControl.Value, 5, true); w.told(ContextDeleted)[0].Context.Account != nil || len(w.e.accounts) != 0 {
		t.Error("there is one")
	}
}
