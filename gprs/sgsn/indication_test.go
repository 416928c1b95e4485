// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestErrorIndicationSent answers user packets for no context, so many a second, and no
// indication with another.
func TestErrorIndicationSent(t *testing.T) {
	for _, row := range []struct {
		name   string
		socket int
		header gtp.Header
	}{
		{"version 1", Socket(1, PlaneUser), gtp.Header{Version: gtp.V1, TEID: 0xdeadbeef}},
		{"version 0", Socket(1, PlaneV0), gtp.Header{Version: gtp.V0, FlowLabel: 0xbeef, TID: gtp.TID{1, 2, 3, 4, 5, 6, 7, 0x58}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			b, _ := gtp.Encapsulate(nil, &row.header, udp4(host4, four, 53, 8))
			w.send(row.socket, theirs, b)
			var m gtp.ErrorIndication
			d, h := w.request(&m)
			if d.Socket != row.socket || d.To.Addr() != theirs {
				t.Errorf("%+v", d)
			}
			if h.Version == gtp.V1 && (m.TEID != row.header.TEID || m.Address != ours2 || h.TEID != 0) || h.FlowLabel != row.header.FlowLabel || h.TID != row.header.TID {
				t.Errorf("%+v, %+v", h, m)
			}
			for range 100 {
				w.send(row.socket, theirs, b)
			}
			if sent, limited := w.e.Stats().ErrorIndicationsSent, w.drops("answer_limit"); sent != indicationRate || limited != 101-indicationRate {
				t.Errorf("%d sent, %d not", sent, limited)
			}
			w.clear()
			w.send(row.socket, theirs, d.Payload)
			w.none()
		})
	}
}

// TestErrorIndicationReceived ends the context whose packets a GGSN does not know, and no
// other.
func TestErrorIndicationReceived(t *testing.T) {
	for _, row := range []struct {
		name    string
		from    netip.Addr
		version gtp.Version
		change  func(h *gtp.Header, m *gtp.ErrorIndication)
		ends    bool
	}{
		{"version 1", theirs, gtp.V1, nil, true},
		{"of another tunnel", theirs, gtp.V1, func(_ *gtp.Header, m *gtp.ErrorIndication) { m.TEID++ }, false},
		{"of another GGSN", theirs, gtp.V1, func(_ *gtp.Header, m *gtp.ErrorIndication) { m.Address = other }, false},
		{"from another node", other, gtp.V1, nil, false},
		{"version 0", theirs, gtp.V0, nil, true},
		{"version 0 from another node", other, gtp.V0, nil, false},
		{"of another flow label", theirs, gtp.V0, func(h *gtp.Header, _ *gtp.ErrorIndication) { h.FlowLabel++ }, false},
		{"of another terminal", theirs, gtp.V0, func(h *gtp.Header, _ *gtp.ErrorIndication) { h.TID[2]++ }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(row.version, gtp.PDPTypeIPv4)
			i := w.info(key)
			h := gtp.Header{Version: row.version, HasSequence: true}
			m := gtp.ErrorIndication{TEID: i.RemoteData, Address: theirs}
			socket := Socket(0, PlaneUser)
			if row.version == gtp.V0 {
				socket, m = Socket(0, PlaneV0), gtp.ErrorIndication{}
				h.FlowLabel, h.TID = uint16(i.RemoteData), key
			}
			if row.change != nil {
				row.change(&h, &m)
			}
			b, err := w.codec.Append(nil, h, &m)
			if err != nil {
				t.Fatal(err)
			}
			w.send(socket, row.from, b)
			if ended := w.e.Contexts() == 0; ended != row.ends {
				t.Errorf("ended: %t", ended)
			}
			if row.ends {
				if about := w.event(Ended); about.Reason != ReasonErrorIndicated {
					t.Errorf("%+v", about)
				}
				w.empty()
			}
		})
	}
}

// TestErrorIndicationWhileClosing is of a packet that the delete request has overtaken.
func TestErrorIndicationWhileClosing(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(v, gtp.PDPTypeIPv4)
		i := w.info(key)
		w.clear()
		w.order(w.e.Detach(key, true, w.now, &w.out))
		d, h := w.next()
		if v == gtp.V1 {
			w.say(Socket(0, PlaneUser), gtp.Header{Version: v, HasSequence: true}, &gtp.ErrorIndication{TEID: i.RemoteData, Address: theirs})
		} else {
			w.say(Socket(0, PlaneV0), gtp.Header{Version: v, FlowLabel: uint16(i.RemoteData), TID: key}, &gtp.ErrorIndication{})
		}
		w.say(d.Socket, reply(h, i.TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
		if about := w.event(Ended); about.Reason != ReasonDetached || len(w.out.Events) != 1 {
			t.Errorf("%+v", w.out.Events)
		}
	}
}

// TestExtensionHeaders are those of user packets: known ones are passed over, one that must be
// understood is refused, with a list of those known.
func TestExtensionHeaders(t *testing.T) {
	for _, row := range []struct {
		name string
		kind gtp.ExtensionType
		pass bool
	}{
		{"known", gtp.ExtensionPDCP, true},
		{"unknown and not required", 0x11, true},
		{"unknown and required", 0xd5, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
			w.clear()
			x, _ := gtp.MakeExtensions(nil, gtp.Extension{Type: row.kind, Content: []byte{0, 0}})
			b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, TEID: w.info(key).TEIDData, Extensions: x}, udp4(host4, four, 53, 8))
			w.send(Socket(0, PlaneUser), theirs, b)
			if row.pass {
				w.none()
				if len(w.out.IP) != 1 {
					t.Error("the packet was lost")
				}
				return
			}
			var m gtp.SupportedExtensions
			if d, _ := w.request(&m); d.Socket != Socket(0, PlaneUser) || len(m.List) == 0 || len(w.out.IP) != 0 || w.drops("unknown_extension_header") != 1 {
				t.Errorf("%+v, %d packets", m, len(w.out.IP))
			}
		})
	}
}

// TestVersions are datagrams of a version that a port does not speak.
func TestVersions(t *testing.T) {
	echo := func(first byte) []byte {
		return append([]byte{first, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0}, make([]byte, 8)...)
	}
	for _, row := range []struct {
		name   string
		plane  Plane
		octets []byte
		answer bool
	}{
		{"version 2 for signalling", PlaneControl, echo(0x48), true},
		{"version 1 where version 0 is spoken", PlaneV0, echo(0x32), true},
		{"version 0 where version 1 is spoken", PlaneControl, echo(0x1e), true},
		{"version 7", PlaneControl, echo(0xf8), true},
		{"on the user plane, which has no such answer", PlaneUser, echo(0x48), false},
		{"such an answer itself", PlaneControl, append([]byte{0x48, 3}, echo(0)[2:]...), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			w.send(Socket(0, row.plane), theirs, row.octets)
			if !row.answer {
				w.none()
				return
			}
			if _, h := w.request(&gtp.VersionNotSupported{}); h.Version != row.plane.version() {
				t.Errorf("%+v", h)
			}
		})
	}
}

// TestVersionNotSupported ends the request that a GGSN does not understand.
func TestVersionNotSupported(t *testing.T) {
	w := newWorld(t, Settings{})
	_, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out)
	w.order(err)
	d, h := w.next()
	w.say(d.Socket, gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.VersionNotSupported{})
	if about := w.event(Refused); about.Reason != ReasonVersion {
		t.Errorf("%+v", about)
	}
	w.empty()
}

// TestReplySizes holds what an answer to a stranger costs, with the headers of IPv4 and UDP.
func TestReplySizes(t *testing.T) {
	v1 := func(kind byte, more ...byte) []byte {
		return append([]byte{0x32, kind, 0, byte(4 + len(more)), 0, 0, 0, 1, 0, 7, 0, 0}, more...)
	}
	for _, row := range []struct {
		name  string
		plane Plane
		asked []byte
		most  float64
	}{
		{"echo", PlaneControl, v1(1), 1.05},
		{"echo of version 0", PlaneV0, append([]byte{0x1e, 1, 0, 0}, make([]byte, 16)...), 1.05},
		{"user packet of no tunnel", PlaneUser, []byte{0x30, 255, 0, 0, 1, 2, 3, 4}, 1.45},
		{"user packet of version 0", PlaneV0, append([]byte{0x1e, 255, 0, 0}, make([]byte, 16)...), 1},
		{"another version", PlaneControl, []byte{0x48, 1, 0, 0, 0, 0, 0, 0}, 1.12},
		{"another version, on the port of version 0", PlaneV0, []byte{0x48, 1, 0, 0, 0, 0, 0, 0}, 1.34},
		{"unknown extension header", PlaneUser, []byte{0x34, 255, 0, 8, 1, 2, 3, 4, 0, 0, 0, 0xd5, 1, 0, 0, 0}, 1},
		{"delete of no context", PlaneControl, v1(20, 20, 5), 1},
		{"update without elements", PlaneControl, v1(18), 1.05},
	} {
		t.Run(row.name, func(t *testing.T) {
			const outer = 28
			w := newWorld(t, Settings{})
			w.send(Socket(0, row.plane), theirs, row.asked)
			if len(w.out.UDP) != 1 {
				t.Fatalf("%d answers", len(w.out.UDP))
			}
			if factor := float64(outer+len(w.out.UDP[0].Payload)) / float64(outer+len(row.asked)); factor > row.most {
				t.Errorf("a factor of %.3f, for %x", factor, w.out.UDP[0].Payload)
			}
		})
	}
}
