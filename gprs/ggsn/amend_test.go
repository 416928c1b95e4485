// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// refs are those of the contexts that match.
func (w *world) refs(sel Selection) (list []Ref) {
	w.e.Contexts(sel, 0, 1<<20, func(x ContextInfo) bool {
		list = append(list, Ref{x.Record, x.ChargingID})
		return true
	})
	return list
}

// amend changes contexts, and wants an error, or none.
func (w *world) amend(refs []Ref, to Amendment, want error) {
	w.Helper()
	w.out.Reset()
	if err := w.e.Amend(refs, &to, w.now, &w.out); !errors.Is(err, want) {
		w.Errorf("%+v: %v, want %v", to, err, want)
	}
}

// TestAmendLimits ends a session by the limit that it was given while it lasted, counted from its
// beginning, and another by its idleness.
func TestAmendLimits(t *testing.T) {
	for _, one := range []struct {
		to   Amendment
		left time.Duration // from the amendment on, a minute after the beginning
		end  End
	}{
		{Amendment{SessionLimit: gtp.Some(10 * time.Minute)}, 9 * time.Minute, EndSessionLimit},
		{Amendment{SessionLimit: gtp.Some(30 * time.Second)}, 0, EndSessionLimit},
		{Amendment{IdleLimit: gtp.Some(5 * time.Minute)}, 4 * time.Minute, EndIdle},
	} {
		w := newWorld(t, func(s *Settings) { s.N3Requests = 1 })
		w.open(1, "internet", gtp.PDPTypeIPv4)
		w.open(2, "internet", gtp.PDPTypeIPv4)
		w.tick(time.Minute)
		w.amend(w.refs(Selection{IMSI: imsi1}), one.to, nil)
		if one.left > 0 {
			if got := ofType(w.tick(one.left-time.Second), gtp.TypeDeleteRequest); len(got) != 0 {
				t.Fatalf("%v: too early", one.end)
			}
		}
		if got := ofType(w.tick(2*time.Second), gtp.TypeDeleteRequest); len(got) != 1 {
			t.Errorf("%v: %d Delete Requests", one.end, len(got))
		}
		w.tick(time.Minute)
		if w.e.stats.Ended[one.end] != 1 || w.e.contexts.used() != 1 {
			t.Errorf("ended %v", w.e.stats.Ended)
		}
	}
}

// TestAmendAccount has a session told of as often, and with the class, that came later, also after a
// restart.
func TestAmendAccount(t *testing.T) {
	w := newAccounted(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.amend(w.refs(Selection{}), Amendment{Interim: gtp.Some(5 * time.Minute), Class: [][]byte{[]byte("gold")}}, nil)
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	w.tick(5*time.Minute - time.Second)
	w.out.Reset()
	w.tick(time.Second)
	if counted := w.told(ContextCounted); len(counted) != 1 || string(counted[0].Context.Account.Class[0]) != "gold" {
		t.Errorf("told %+v", counted)
	}
}

// TestAmendRefused changes nothing of any context if one cannot be changed.
func TestAmendRefused(t *testing.T) {
	w := newAccounted(t, func(a *APN) {
		if a.Name == "inet6" {
			a.Interim = time.Hour
		}
	})
	w.open(1, "internet", gtp.PDPTypeIPv4)
	c := w.open(2, "inet6", gtp.PDPTypeIPv6)
	all := w.refs(Selection{})
	interim := Amendment{Interim: gtp.Some(5 * time.Minute)}
	w.amend(all, interim, ErrProhibited)
	w.amend(append(all, Ref{1, all[0].ChargingID + 7}), Amendment{IdleLimit: gtp.Some(time.Minute)}, ErrGone)
	w.amend([]Ref{{0, 0}}, interim, ErrGone)
	w.amend([]Ref{{99, all[0].ChargingID}}, interim, ErrGone)
	if w.e.accounts[1].interim != 0 || len(w.e.terms) != 0 || len(w.out.UDP) != 0 {
		t.Errorf("changed: %+v, %v", w.e.accounts[1], w.e.terms)
	}
	w.out.Reset()
	if err := w.e.Disconnect(append(all, Ref{77, 1}), nil, w.now, &w.out); !errors.Is(err, ErrGone) || len(w.out.UDP) != 0 {
		t.Errorf("disconnected: %v", err)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.amend(all, interim, ErrGone)
}

// TestAmendQoS asks the SGSN for another profile, within the limits of the access point, and one at a
// time; a context of GTPv0 has it at once.
func TestAmendQoS(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].MaxUp, s.APNs[0].MaxDown = 1024, 1024 })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	fast := gtp.Profile{Class: gtp.ClassBackground, MaxUp: 512, MaxDown: 5000}
	slow := fast
	slow.MaxDown = 1024
	refs := w.refs(Selection{})
	w.amend(append(refs, refs...), Amendment{QoS: gtp.Some(fast.QoS(12))}, ErrSeveral)
	w.amend(refs, Amendment{QoS: gtp.Some(fast.QoS(12))}, nil)
	var m gtp.UpdateRequest
	if h := w.answer(w.out.UDP, &m); h.TEID != 0x2001 || m.QoS.Value != slow.QoS(12) {
		t.Errorf("asked for %x", m.QoS.Value.Octets())
	}
	asked := w.out.UDP[0]
	asked.Payload = append([]byte(nil), asked.Payload...)
	w.amend(refs, Amendment{QoS: gtp.Some(slow.QoS(12))}, ErrBusy)
	w.reply(asked, &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: m.QoS})
	if x := w.e.contexts.at(1); x.qos != slow.QoS(12) || x.up.rate() != 512 || x.down.rate() != 1024 {
		t.Errorf("it has %x, %d and %d kbit/s", x.qos.Octets(), x.up.rate(), x.down.rate())
	}
	w.remove(c.TEIDControl.Value, 5, true)
	w.empty()
}

// TestAmendQoSV0 gives a context of GTPv0 a profile of its release at once.
func TestAmendQoSV0(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].MaxUp, s.APNs[0].MaxDown = 1024, 1024 })
	w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4)
	w.amend(w.refs(Selection{}), Amendment{QoS: gtp.Some(qosOf(make([]byte, 12)...))}, ErrValue)
	w.amend(w.refs(Selection{}), Amendment{QoS: gtp.Some(qosOf(0, 0x0b, 0x12, 0x1f))}, nil)
	if x := w.e.contexts.at(1); x.qos != qosOf(0, 0x0b, 0x12, 0x1f) || x.down.rate() != 8 || len(w.out.UDP) != 0 || len(w.told(ContextUpdated)) != 1 {
		t.Errorf("it has %x, %d kbit/s; %d datagrams", x.qos.Octets(), x.down.rate(), len(w.out.UDP))
	}
}

// TestDisconnect deletes a session in good order, with the class that its account is to tell, and says
// once that it has ended.
func TestDisconnect(t *testing.T) {
	w := newAccounted(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.open(2, "internet", gtp.PDPTypeIPv4)
	refs := w.refs(Selection{IMSI: imsi1})
	for range 2 { // the second while the first is under way
		w.out.Reset()
		if err := w.e.Disconnect(refs, [][]byte{[]byte("gold")}, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	got := ofType(w.tick(w.e.settings.T3Response), gtp.TypeDeleteRequest)
	if len(got) != 1 {
		t.Fatalf("repeated %d times", len(got))
	}
	w.reply(got[0], &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	ended := w.told(ContextDeleted)
	if len(ended) != 1 || ended[0].End != EndAdmin || string(ended[0].Context.Account.Class[0]) != "gold" || w.e.contexts.used() != 1 {
		t.Errorf("ended %+v", ended)
	}
}
