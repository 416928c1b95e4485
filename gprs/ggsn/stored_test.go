// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// succeed has another engine take over.
func (w *world) succeed(s Settings, state []byte) int {
	w.Helper()
	e, lost, err := resume(w.TB, s, state, w.now, rand.NewChaCha8([32]byte{2}))
	if err != nil {
		w.Fatal(err)
	}
	w.e = e
	return lost
}

func (w *world) list() (all []ContextInfo) {
	w.e.Contexts(Selection{}, 0, 1000, func(i ContextInfo) bool { all = append(all, i); return true })
	return all
}

func TestResume(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	w.open(2, "internet", gtp.PDPTypeIPv4)
	w.createV0(gtp.MakeTID(testIMSI(3), 5), "inet6", gtp.PDPTypeIPv6)
	w.up(c, udp4(c.four(), server, 64, 0))
	w.tick(time.Minute)
	before, state := w.list(), w.e.AppendState(nil)
	w.tick(time.Minute)
	if lost := w.succeed(testSettings(), state); lost != 0 || w.e.RestartCounter() != 7 {
		t.Fatalf("%d lost, counter %d", lost, w.e.RestartCounter())
	}
	if after := w.list(); !reflect.DeepEqual(before, after) {
		t.Errorf("contexts\n%+v\n%+v", before, after)
	}
	w.down(udp4(server, c.four(), 64, 0))
	if h, _ := w.tunnelled(); h.TEID != 0x6006 {
		t.Errorf("filters are lost: %#x", h.TEID)
	}
	if d := w.open(4, "dual", gtp.PDPTypeIPv4v6); d.four() == c.four() {
		t.Error("an address was given twice")
	}
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.tick(time.Minute)
	w.empty()
}

// TestResumeLoses: what there is no room for is lost, and the counter rises, so that peers
// release it; damaged state loses what cannot be read, and never fails.
func TestResumeLoses(t *testing.T) {
	w := newWorld(t, nil)
	for n := range 10 {
		w.open(n+1, "internet", gtp.PDPTypeIPv4)
	}
	w.open(11, "inet6", gtp.PDPTypeIPv6)
	state := w.e.AppendState(nil)
	s := testSettings()
	s.APNs = s.APNs[1:]
	if lost := w.succeed(s, state); lost != 10 || w.e.RestartCounter() != 8 || w.e.contexts.used() != 1 {
		t.Errorf("%d lost, counter %d", lost, w.e.RestartCounter())
	}
	s = testSettings()
	s.Limits.Contexts = 4
	if lost := w.succeed(s, state); lost != 7 || w.e.contexts.used() != 4 {
		t.Errorf("%d lost", lost)
	}
	for n := 0; n < len(state); n += 7 {
		lost := w.succeed(testSettings(), state[:n])
		if n > 0 && (lost == 0 || w.e.RestartCounter() == 7) {
			t.Fatalf("%d octets of %d: %d lost, counter %d", n, len(state), lost, w.e.RestartCounter())
		}
		w.out.Reset()
		w.e.Delete(Selection{}, w.now, &w.out)
		w.tick(time.Minute)
		w.empty()
	}
}

// TestResumeHolds: an address that is held stays so.
func TestResumeHolds(t *testing.T) {
	w := newWorld(t, soakSettings)
	s := testSettings()
	soakSettings(&s)
	s.APNs[2].Pools4, s.APNs[2].Hold = prefixes("10.46.0.1/32"), time.Minute
	w.succeed(s, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4)
	w.remove(c.TEIDControl.Value, 5, true)
	w.tick(30 * time.Second)
	w.succeed(s, w.e.AppendState(nil))
	if got := w.create(w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseAddressesOccupied {
		t.Errorf("while it is held: %v", got.Cause)
	}
	w.tick(31 * time.Second)
	w.open(3, "dual", gtp.PDPTypeIPv4)
}

// TestResumeFilters: a context has as many packet filters as identifiers after a restart, too, though no one
// template has them (TS 24.008 section 10.5.6.12). Where filters cannot be read their session alone is lost.
func TestResumeFilters(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	var all filters
	for n := range uint8(maxFilters) {
		all = append(all, portFilter(n, n, 5000+uint16(n)))
	}
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, all[:maxFilters-1]...)))
	m := w.updateRequest(0x6006)
	m.NSAPI, m.TFT = 6, template(gtp.TFTAddFilters, all[maxFilters-1])
	var r gtp.UpdateResponse
	if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r); r.Cause != gtp.CauseAccepted {
		t.Fatal(r.Cause)
	}
	w.open(2, "internet", gtp.PDPTypeIPv4)
	before := w.list()
	if lost := w.succeed(testSettings(), w.e.AppendState(nil)); lost != 0 || w.e.RestartCounter() != 7 {
		t.Fatalf("%d lost, counter %d", lost, w.e.RestartCounter())
	}
	x := w.e.byTEID[before[1].TEIDData]
	if after := w.list(); !reflect.DeepEqual(before, after) || !reflect.DeepEqual(w.e.filters[x], all) {
		t.Errorf("contexts\n%+v\n%+v\nfilters %+v", before, after, w.e.filters[x])
	}
	w.e.filters[x][0] = gtp.PacketFilter{} // which no template has
	if lost := w.succeed(testSettings(), w.e.AppendState(nil)); lost != 2 || w.e.contexts.used() != 1 {
		t.Errorf("%d lost, %d left", lost, w.e.contexts.used())
	}
}

// TestResumeMSISDN: a number is after a restart what it was, whatever it is.
func TestResumeMSISDN(t *testing.T) {
	for _, octets := range [][]byte{
		{0x91, 0x64, 0x07, 0xf2}, {0xa1, 0x21, 0x43}, {0x91, 0xba, 0x21}, {0x91}, {0x91, 0x21, 0x43, 0x65, 0x87, 0x09, 0x21, 0x43, 0x65},
	} {
		w := newWorld(t, nil)
		m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
		number, _ := gtp.MSISDNOf(octets)
		m.MSISDN = gtp.Some(number)
		w.create(m)
		if lost := w.succeed(testSettings(), w.e.AppendState(nil)); lost != 0 || w.list()[0].MSISDN != number {
			t.Errorf("%x: %d lost, %x", octets, lost, w.list()[0].MSISDN.Octets())
		}
	}
}

// TestSettle ends the sessions that no successor can ask for, before what it leaves to it, and no other.
func TestSettle(t *testing.T) {
	w := newAccounted(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.open(2, "dual", gtp.PDPTypeIPv4)
	s := w.e.settings
	s.APNs = s.APNs[1:]
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	if sent := ofType(w.tick(0), gtp.TypeDeleteRequest); len(sent) != 1 {
		t.Fatalf("%d Delete Requests", len(sent))
	}
	w.out.Reset()
	w.e.Settle(w.now, &w.out)
	if ended := w.told(ContextDeleted); len(ended) != 1 || ended[0].End != EndSettings || ended[0].Context.APN != "internet" {
		t.Errorf("ended %+v", ended)
	}
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 || w.e.contexts.used() != 1 {
		t.Errorf("%d lost, %d left", lost, w.e.contexts.used())
	}
}
