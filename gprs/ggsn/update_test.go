// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// updateRequest moves a context to this world's SGSN.
func (w *world) updateRequest(teid uint32) *gtp.UpdateRequest {
	return &gtp.UpdateRequest{
		NSAPI: 5, TEIDData: gtp.Some(teid), TEIDControl: gtp.Some(teid + 1),
		AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from), QoS: gtp.Some(qosOf(2, 1, 2, 3)),
	}
}

// TestUpdateMoves: a context goes on at another SGSN, with the same address and TEIDs of
// this node, and the old SGSN may no longer speak for it.
func TestUpdateMoves(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.from = other
	var r gtp.UpdateResponse
	h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &r)
	if r.Cause != gtp.CauseAccepted || h.TEID != 0x7001 || r.TEIDData != c.TEIDData || r.ChargingID != c.ChargingID || r.QoS.Value != qosOf(2, 1, 2, 3) {
		t.Fatalf("answer %+v to %#x", r, h.TEID)
	}
	w.down(udp4(server, c.four(), 64, 0))
	if h, _ := w.tunnelled(); h.TEID != 0x7000 || w.out.UDP[0].To.Addr() != other {
		t.Errorf("packets go to %#x at %v", h.TEID, w.out.UDP[0].To)
	}
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
	w.from = sgsn
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("what the SGSN before had sent is lost: %v", w.dropped())
	}
	w.now = w.now.Add(lateness)
	w.up(c, udp4(c.four(), server, 64, 0))
	w.silent(OuterSource, 0)
	w.from = other
	w.remove(c.TEIDControl.Value, 5, false)
	w.empty()
}

// TestLateOfAnother: the memory of a move opens nothing to a third node, and nothing to the node
// before once the context has ended, though another has its place by then.
func TestLateOfAnother(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.from = other
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
	w.from = rnc
	w.up(c, udp4(c.four(), server, 64, 0))
	w.silent(OuterSource, 0)
	w.from = other
	w.remove(c.TEIDControl.Value, 5, false)
	w.from = sgsn
	w.up(c, udp4(c.four(), server, 64, 0))
	w.silent(TEIDUnknown, 0)
	again := w.open(2, "internet", gtp.PDPTypeIPv4)
	w.up(c, udp4(again.four(), server, 64, 0))
	w.silent(TEIDUnknown, 1)
}

func TestUpdateCauses(t *testing.T) {
	tests := []struct {
		name    string
		request func(*gtp.UpdateRequest)
		teid    uint32 // added to that of the session
		want    gtp.Cause
		to      uint32
	}{
		{"right", nil, 0, gtp.CauseAccepted, 0x7001},
		{"unknown TEID", nil, 1, gtp.CauseNonExistent, 0},
		{"unknown NSAPI", func(m *gtp.UpdateRequest) { m.NSAPI = 6 }, 0, gtp.CauseNonExistent, 0},
		{"no TEID of the user plane", func(m *gtp.UpdateRequest) { m.TEIDData.Present = false }, 0, gtp.CauseMandatoryMissing, 0x2001},
		{"no addresses", func(m *gtp.UpdateRequest) { m.AddressControl.Present, m.AddressUser.Present = false, false }, 0, gtp.CauseMandatoryMissing, 0x2001},
		{"no profile", func(m *gtp.UpdateRequest) { m.QoS.Present = false }, 0, gtp.CauseMandatoryMissing, 0x2001},
		{"user plane at a stranger", func(m *gtp.UpdateRequest) { m.AddressUser.Value = rnc }, 0, gtp.CauseMandatoryIncorrect, 0x2001},
		{"filters of no sense", func(m *gtp.UpdateRequest) {
			m.TFT = gtp.Some(gtp.TFT{Operation: gtp.TFTDeleteFilters, Filters: []gtp.PacketFilter{{ID: 1}}}.Append(nil))
		}, 0, gtp.CauseTFTSemantic, 0x2001},
		{"filters that cannot be read", func(m *gtp.UpdateRequest) { m.TFT = gtp.Some([]byte{0xff}) }, 0, gtp.CauseTFTSyntax, 0x2001},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			m := w.updateRequest(0x7000)
			if tt.request != nil {
				tt.request(m)
			}
			var r gtp.UpdateResponse
			h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value + tt.teid}, m, &r)
			if r.Cause != tt.want || h.TEID != tt.to {
				t.Errorf("cause %v to %#x, want %v to %#x", r.Cause, h.TEID, tt.want, tt.to)
			}
			w.down(udp4(server, c.four(), 64, 0))
			if h, _ := w.tunnelled(); (h.TEID == 0x7000) != tt.want.Accepted() {
				t.Errorf("packets go to %#x", h.TEID)
			}
		})
	}
}

// TestAnswersRepeated: an Update or Delete that comes again has the same answer, octet for
// octet, while the answer is kept; and the same number with other octets is another request.
func TestAnswersRepeated(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 9, TEID: c.TEIDControl.Value}
	update := w.encode(h, w.updateRequest(0x7000))
	first := append([]byte(nil), w.raw(pathControl, update)[0].Payload...)
	again := w.raw(pathControl, update)
	if len(again) != 1 || !bytes.Equal(again[0].Payload, first) || w.e.stats.Updated != 1 {
		t.Errorf("update: %d answers, %d updated", len(again), w.e.stats.Updated)
	}
	if w.raw(pathControl, w.encode(h, w.updateRequest(0x7100))); w.e.stats.Updated != 2 {
		t.Error("another request of the same number was taken for the first")
	}
	remove := w.encode(h, &gtp.DeleteRequest{NSAPI: 5})
	for range 3 {
		var r gtp.DeleteResponse
		if w.answer(w.raw(pathControl, remove), &r); r.Cause != gtp.CauseAccepted {
			t.Errorf("delete: %v", r.Cause)
		}
	}
	w.port++ // another client of the same node
	var r gtp.DeleteResponse
	if w.answer(w.raw(pathControl, remove), &r); r.Cause != gtp.CauseNonExistent {
		t.Errorf("delete from another port: %v", r.Cause)
	}
	w.port--
	w.tick(w.e.patience())
	if w.answer(w.raw(pathControl, remove), &r); r.Cause != gtp.CauseNonExistent {
		t.Errorf("delete when its answer is no longer kept: %v", r.Cause)
	}
}

// TestAnswersBounded: the answers of one peer do not push out those of another.
func TestAnswersBounded(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	remove := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 9, TEID: c.TEIDControl.Value}, &gtp.DeleteRequest{NSAPI: 5})
	w.raw(pathControl, remove)
	w.from = other
	for range 3 * maxAnswers {
		w.seq++
		w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: w.seq, TEID: 1}, &gtp.DeleteRequest{NSAPI: 5}))
		w.tick(100_000)
	}
	if n := len(w.e.peers.at(w.e.byAddress[addressKey(other.As16())]).answers.ring); n > maxAnswers {
		t.Errorf("%d answers are kept", n)
	}
	w.from = sgsn
	var r gtp.DeleteResponse
	if w.answer(w.raw(pathControl, remove), &r); r.Cause != gtp.CauseAccepted {
		t.Errorf("the answer is gone: %v", r.Cause)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	if cause := w.remove(c.TEIDControl.Value+1, 5, false); cause != gtp.CauseNonExistent {
		t.Errorf("unknown TEID: %v", cause)
	}
	if cause := w.remove(c.TEIDControl.Value, 7, false); cause != gtp.CauseNonExistent {
		t.Errorf("unknown NSAPI: %v", cause)
	}
	if w.e.contexts.used() != 1 {
		t.Fatal("deleted")
	}
	if cause := w.remove(c.TEIDControl.Value, 5, false); cause != gtp.CauseAccepted {
		t.Errorf("%v", cause)
	}
	w.empty()
	w.up(c, udp4(c.four(), server, 64, 0))
	if w.e.stats.Dropped[TEIDUnknown] != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
}

// TestErrorIndicationSent: a G-PDU for no context is answered, so many times a second, to the
// port of the user plane.
func TestErrorIndicationSent(t *testing.T) {
	w := newWorld(t, nil)
	stranger := context{}
	stranger.TEIDData.Value = 0x1234
	for range 50 {
		w.up(stranger, []byte{1})
		if len(w.out.UDP) == 0 {
			continue
		}
		var r gtp.ErrorIndication
		h := w.answer(w.out.UDP, &r)
		if r.TEID != 0x1234 || r.Address != node4 || h.TEID != 0 || !h.HasSequence || w.out.UDP[0].To.Port() != gtp.PortUser {
			t.Fatalf("%+v to %v", r, w.out.UDP[0].To)
		}
	}
	if w.e.stats.Indications != 10 || w.e.stats.Dropped[TEIDUnknown] != 50 {
		t.Errorf("%d sent, dropped %v", w.e.stats.Indications, w.dropped())
	}
	w.from = rnc
	w.up(stranger, []byte{1})
	w.silent(Stranger, 0)
}

// TestLatePackets: packets of a context that has just ended are dropped without a word, for
// its Delete Request may have overtaken them; later ones are told of.
func TestLatePackets(t *testing.T) {
	for _, version := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, nil)
		tid := gtp.MakeTID(imsi1, 5)
		var send func()
		if version == gtp.V0 {
			_, r := w.createV0(tid, "internet", gtp.PDPTypeIPv4)
			send = func() { w.upV0(tid, uint16(r.TEIDData.Value), []byte{1}) }
			w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: uint16(r.TEIDControl.Value)}, &gtp.DeleteRequest{}, &gtp.DeleteResponse{})
		} else {
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			send = func() { w.up(c, []byte{1}) }
			w.remove(c.TEIDControl.Value, 5, true)
		}
		for n, after := range []time.Duration{0, lateness - 1, lateness} {
			w.now = start.Add(after)
			send()
			want := n / 2
			if got := len(ofType(w.out.UDP, gtp.TypeErrorIndication)); got != want || w.e.stats.Dropped[TEIDUnknown] != uint64(n+1) {
				t.Errorf("version %d, packet %d: %d indications, dropped %v", version, n, got, w.dropped())
			}
		}
	}
}

func TestErrorIndicationReceived(t *testing.T) {
	tests := []struct {
		name    string
		from    netip.Addr
		teid    uint32
		address netip.Addr
		young   bool
		ends    bool
	}{
		{"right", sgsn, 0x1001, sgsn, false, true},
		{"another TEID", sgsn, 0x1002, sgsn, false, false},
		{"another node", other, 0x1001, other, false, false},
		{"in another's name", other, 0x1001, sgsn, false, false},
		{"of a context that has just been made", sgsn, 0x1001, sgsn, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.open(1, "internet", gtp.PDPTypeIPv4)
			if !tt.young {
				w.tick(2 * young)
			}
			w.from = tt.from
			w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: tt.teid, Address: tt.address}))
			if ended := w.e.stats.Ended[EndErrorReport] == 1; ended != tt.ends || (w.e.stats.Dropped[IndicationWrong] == 1) == tt.ends {
				t.Errorf("ended %v, dropped %v", w.e.stats.Ended, w.dropped())
			}
			if len(w.out.UDP) != 0 {
				t.Errorf("answered by %x", w.out.UDP[0].Payload)
			}
			if tt.ends {
				w.empty()
			}
		})
	}
}

// TestErrorIndicationOfTwins: contexts that have one TEID at a node, since it was given twice or by
// another SGSN that lies, end by Error Indications one after the other; the end of one leaves the
// others known by it.
func TestErrorIndicationOfTwins(t *testing.T) {
	w := newWorld(t, nil)
	var list []context
	for n := range 4 {
		w.from = []netip.Addr{sgsn, other}[n%2]
		m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
		m.AddressUser = sgsn
		list = append(list, w.create(m))
	}
	w.from = other
	w.remove(list[3].TEIDControl.Value, 5, true)
	w.remove(list[1].TEIDControl.Value, 5, true)
	w.tick(2 * young)
	w.from = sgsn
	for n := range 2 {
		w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: 0x1000, Address: sgsn}))
		if got := w.e.contexts.used(); got != 1-n {
			t.Errorf("%d contexts after %d indications", got, n+1)
		}
	}
	w.empty()
}
