// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestEchoRequest is answered on each plane, to the port that it came from.
func TestEchoRequest(t *testing.T) {
	for _, row := range []struct {
		name     string
		plane    Plane
		recovery uint8
	}{
		{"version 0", PlaneV0, 7},
		{"signalling", PlaneControl, 7},
		{"user plane, where the counter is 0", PlaneUser, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{Recovery: 7})
			w.say(Socket(1, row.plane), gtp.Header{Version: row.plane.version(), HasSequence: true, Sequence: 77}, &gtp.EchoRequest{})
			var m gtp.EchoResponse
			d, h := w.request(&m)
			if m.Recovery != row.recovery || h.Sequence != 77 || d.Socket != Socket(1, row.plane) || d.To.Addr() != theirs {
				t.Errorf("%+v %+v %+v", d, h, m)
			}
		})
	}
}

// TestEcho asks a GGSN whether it lives, tells when it does not, and when it does again.
func TestEcho(t *testing.T) {
	w := newWorld(t, Settings{EchoInterval: time.Minute})
	w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	w.wait(time.Minute)
	planes := map[int]gtp.Header{}
	for range 2 {
		d, h := w.request(&gtp.EchoRequest{})
		planes[d.Socket] = h
	}
	control, user := Socket(0, PlaneControl), Socket(0, PlaneUser)
	if len(planes) != 2 {
		t.Fatalf("asked on %v", planes)
	}
	w.say(user, reply(planes[user], 0), &gtp.EchoResponse{Recovery: 99})
	w.say(control, reply(planes[control], 0), &gtp.EchoResponse{Recovery: 9})
	w.clear()
	w.wait(time.Minute)
	for w.seen < len(w.out.UDP) {
		d, h := w.next()
		planes[d.Socket] = h
	}
	w.say(user, reply(planes[user], 0), &gtp.EchoResponse{})
	w.wait(15 * time.Second)
	if about := w.event(PathDown); about.Peer != theirs || w.e.Contexts() != 1 {
		t.Errorf("%+v, %d contexts", about, w.e.Contexts())
	}
	w.clear()
	w.wait(45 * time.Second)
	for w.seen < len(w.out.UDP) {
		d, h := w.next()
		w.say(d.Socket, reply(h, 0), &gtp.EchoResponse{Recovery: 9})
	}
	w.event(PathUp)
	w.e.SetEcho(0, w.now)
	w.clear()
	w.wait(time.Hour)
	w.none()
}

// TestPeerRestart ends what a GGSN had before it restarted, and nothing else.
func TestPeerRestart(t *testing.T) {
	for _, row := range []struct {
		name string
		tell func(w *world)
		left int
	}{
		{"in an answer to an echo", func(w *world) {
			w.e.SetEcho(time.Minute, w.now)
			w.wait(time.Minute)
			for w.seen < len(w.out.UDP) {
				d, h := w.next()
				w.say(d.Socket, reply(h, 0), &gtp.EchoResponse{Recovery: 10})
			}
		}, 1},
		{"in the answer to a create request, whose context is a new one", func(w *world) {
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			a.NSAPI = 6
			_, err := w.e.Attach(a, w.now, &w.out)
			w.order(err)
			w.accept(func(m *gtp.CreateResponse) { m.Recovery = gtp.Some(uint8(10)) })
		}, 2},
		{"not: it is the same counter", func(w *world) {
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			a.NSAPI = 6
			_, err := w.e.Attach(a, w.now, &w.out)
			w.order(err)
			w.accept(nil)
		}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{T3Response: time.Hour})
			w.attach(gtp.V1, gtp.PDPTypeIPv4)
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			a.GGSN, a.NSAPI = other, 9
			elsewhere, err := w.e.Attach(a, w.now, &w.out)
			w.order(err)
			w.clear()
			row.tell(w)
			if w.e.Contexts() != row.left {
				t.Errorf("%d contexts are left, want %d", w.e.Contexts(), row.left)
			}
			if _, ok := w.e.Context(elsewhere); !ok {
				t.Error("a context of another GGSN has ended")
			}
		})
	}
}

// TestRequestsOfGGSN are answered, and change contexts.
func TestRequestsOfGGSN(t *testing.T) {
	qos := gtp.Profile{Priority: 1, Delay: 1, Class: gtp.ClassStreaming, MaxUp: 64, MaxDown: 64}.QoS(12)
	type row struct {
		name    string
		version gtp.Version
		message gtp.Message
		change  func(h *gtp.Header)
		cause   gtp.Cause
		left    int
		kind    EventKind // of the last event
	}
	remove := func(teardown bool) gtp.Message {
		return &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(teardown)}
	}
	for _, row := range []row{
		{"delete", gtp.V1, remove(false), nil, gtp.CauseAccepted, 1, Ended},
		{"delete with all that share the address", gtp.V1, remove(true), nil, gtp.CauseAccepted, 0, Ended},
		{"delete of version 0", gtp.V0, &gtp.DeleteRequest{}, nil, gtp.CauseAccepted, 0, Ended},
		{"delete of an unknown context", gtp.V1, remove(true), func(h *gtp.Header) { h.TEID++ }, gtp.CauseNonExistent, 2, Attached},
		{"delete of version 0 with another flow label", gtp.V0, &gtp.DeleteRequest{}, func(h *gtp.Header) { h.FlowLabel++ }, gtp.CauseNonExistent, 1, Attached},
		{"update", gtp.V1, &gtp.UpdateRequest{NSAPI: 5, QoS: gtp.Some(qos)}, nil, gtp.CauseAccepted, 2, Changed},
		{"update of an unknown NSAPI", gtp.V1, &gtp.UpdateRequest{NSAPI: 9, QoS: gtp.Some(qos)}, nil, gtp.CauseNonExistent, 2, Attached},
		{"a secondary context", gtp.V1, &gtp.InitiateRequest{LinkedNSAPI: 5, QoS: qos, CorrelationID: 1}, nil, gtp.CauseServiceNotSupported, 2, Attached},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(row.version, gtp.PDPTypeIPv4)
			if row.version == gtp.V1 {
				w.secondary(key, 6, nil)
			}
			i := w.info(key)
			w.clear()
			w.out.Events = append(w.out.Events, Event{Kind: Attached})
			socket := Socket(0, PlaneControl)
			if row.version == gtp.V0 {
				socket = Socket(0, PlaneV0)
			}
			h := gtp.Header{Version: row.version, HasSequence: true, Sequence: 5, TEID: i.TEIDControl, FlowLabel: uint16(i.TEIDControl), TID: key}
			if row.change != nil {
				row.change(&h)
			}
			w.say(socket, h, row.message)
			_, got := w.next()
			answer, _ := row.message.Type().Response()
			elements, err := gtp.ParseElements(&got)
			cause, _ := elements.Find(gtp.ElementCause, 0)
			if err != nil || got.Type != answer || got.Sequence != 5 || gtp.Cause(cause[0]) != row.cause {
				t.Fatalf("%+v, %v", got, err)
			}
			if known := row.cause != gtp.CauseNonExistent; row.version == gtp.V1 && (got.TEID == i.RemoteControl) != known {
				t.Errorf("TEID %x", got.TEID)
			}
			w.event(row.kind)
			if w.e.Contexts() != row.left {
				t.Errorf("%d contexts are left", w.e.Contexts())
			}
			// The same again gets the same, though the context may have gone.
			w.say(socket, h, row.message)
			if _, again := w.next(); string(again.Payload) != string(got.Payload) || again.TEID != got.TEID {
				t.Errorf("%x, then %x", got.Payload, again.Payload)
			}
			// Numbers come round: later it is another request. What is about no context is not kept.
			w.now = w.now.Add(time.Minute)
			w.say(socket, h, row.message)
			repeats := uint64(1)
			if row.cause == gtp.CauseNonExistent {
				repeats = 0
			}
			if s := w.e.Stats(); s.PeerRequests != 3-repeats || s.PeerRepeats != repeats {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestStrangersRequests take no place of the answers that GGSNs may want again.
func TestStrangersRequests(t *testing.T) {
	w := newWorld(t, Settings{})
	h := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 5, TEID: w.info(w.attach(gtp.V1, gtp.PDPTypeIPv4)).TEIDControl}
	a := attachment(gtp.V1, gtp.PDPTypeIPv4)
	remove := &gtp.DeleteRequest{NSAPI: 5, Teardown: gtp.Some(true)}
	notify := &gtp.PDUNotificationRequest{IMSI: a.IMSI, TEIDControl: 0x77, EndUserAddress: gtp.EndUserAddress{Type: gtp.PDPTypeIPv4, IPv4: four}, APN: a.APN, AddressControl: other}
	w.say(Socket(0, PlaneControl), h, remove)
	for n := range maxAnswers {
		for _, m := range []gtp.Message{remove, notify} {
			of := gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: uint16(n)}
			if m != notify {
				of.TEID = 1
			}
			b, err := w.codec.Append(nil, of, m)
			if err != nil {
				t.Fatal(err)
			}
			w.send(Socket(0, PlaneControl), other, b)
		}
	}
	w.clear()
	w.say(Socket(0, PlaneControl), h, remove)
	var answer gtp.DeleteResponse
	if w.request(&answer); answer.Cause != gtp.CauseAccepted || w.e.Stats().PeerRepeats != 1 {
		t.Errorf("%+v, %d repeated", answer, w.e.Stats().PeerRepeats)
	}
}

// secondary opens a secondary context.
func (w *world) secondary(primary gtp.TID, nsapi uint8, tft []byte) gtp.TID {
	w.t.Helper()
	if tft == nil {
		tft = template(gtp.PacketFilter{ID: 1, Direction: gtp.FilterUp, Precedence: 10, Protocol: gtp.Some(uint8(17)), RemotePort: gtp.Some(gtp.PortRange{First: 5060, Last: 5061})})
	}
	key, err := w.e.AttachSecondary(primary, nsapi, tft, gtp.QoS{}, w.now, &w.out)
	w.order(err)
	h, m := w.accept(func(m *gtp.CreateResponse) { m.TEIDControl = gtp.Optional[uint32]{} })
	if h.TEID != w.info(primary).RemoteControl || m.IMSI.Present || m.EndUserAddress.Present || m.APN.Present || m.LinkedNSAPI != gtp.Some(uint8(5)) || !m.TFT.Present {
		w.t.Errorf("%+v %+v", h, m)
	}
	w.event(Attached)
	return key
}

func template(f ...gtp.PacketFilter) []byte {
	return gtp.TFT{Operation: gtp.TFTCreate, Filters: f}.Append(nil)
}

// TestCollision is an update of the GGSN's while ours is under way: ours wins.
func TestCollision(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	w.order(w.e.Update(key, gtp.QoS{}, w.now, &w.out))
	own, h := w.next()
	i := w.info(key)
	w.say(Socket(0, PlaneControl), gtp.Header{Version: gtp.V1, HasSequence: true, TEID: i.TEIDControl}, &gtp.UpdateRequest{NSAPI: 5})
	var answer gtp.UpdateResponse
	if w.request(&answer); answer.Cause != gtp.CauseCollision {
		t.Errorf("%+v", answer)
	}
	w.say(own.Socket, reply(h, i.TEIDControl), &gtp.UpdateResponse{Cause: gtp.CauseAccepted})
	w.event(Updated)
}

// TestPDUNotification is refused, to the tunnel that it names.
func TestPDUNotification(t *testing.T) {
	w := newWorld(t, Settings{})
	a := attachment(gtp.V1, gtp.PDPTypeIPv4)
	w.say(Socket(0, PlaneControl), gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 4}, &gtp.PDUNotificationRequest{
		IMSI: a.IMSI, TEIDControl: 0x77, EndUserAddress: gtp.EndUserAddress{Type: gtp.PDPTypeIPv4, IPv4: four}, APN: a.APN, AddressControl: theirs,
	})
	var answer gtp.PDUNotificationResponse
	if _, h := w.request(&answer); h.TEID != 0x77 || h.Sequence != 4 || answer.Cause != gtp.CauseServiceNotSupported {
		t.Errorf("%+v, %+v", h, answer)
	}
}

// TestSequenceGoesOn counts on where a path was left: a GGSN that remembers its answers would
// take a number that comes again for a request that it has answered (TS 29.060 section 7.6).
func TestSequenceGoesOn(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		var numbers []uint16
		for range 3 {
			key := w.attach(v, gtp.PDPTypeIPv4)
			w.clear()
			w.order(w.e.Detach(key, true, w.now, &w.out))
			d, h := w.request(&gtp.DeleteRequest{})
			w.say(d.Socket, reply(h, 0), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			if len(w.e.paths) > 0 {
				t.Fatal("a path is left")
			}
			numbers = append(numbers, h.Sequence)
			w.clear()
		}
		if numbers[1] != numbers[0]+2 || numbers[2] != numbers[1]+2 {
			t.Errorf("version %d: numbers %v", v, numbers)
		}
	}
}
