// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestRefusedDatagrams: what no one is answered for has a reason.
func TestRefusedDatagrams(t *testing.T) {
	w := newWorld(t, nil)
	header := func(kind gtp.MessageType) []byte {
		return []byte{0x32, byte(kind), 0, 4, 0, 0, 0, 0, 0, 1, 0, 0}
	}
	tests := []struct {
		name string
		path int
		from netip.Addr
		in   []byte
		want Reason
	}{
		{"of a stranger", pathControl, rnc, header(gtp.TypeEchoRequest), Stranger},
		{"of a stranger on the user plane", pathUser, rnc, header(gtp.TypeEchoRequest), Stranger},
		{"of a stranger, a packet of a terminal", pathUser, rnc, header(gtp.TypeGPDU), Stranger},
		{"empty", pathControl, sgsn, nil, Reason(gtp.FaultTruncated)},
		{"cut short", pathControl, sgsn, header(gtp.TypeEchoRequest)[:7], Reason(gtp.FaultTruncated)},
		{"GTP'", pathControl, sgsn, []byte{0x22, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0}, Reason(gtp.FaultProtocolType)},
		{"wrong length, no request", pathControl, sgsn, append(header(gtp.TypeEchoResponse), 0), Reason(gtp.FaultLength)},
		{"extension header of no length", pathControl, sgsn, []byte{0x36, 1, 0, 5, 0, 0, 0, 0, 0, 1, 0, 1, 0}, Reason(gtp.FaultExtension)},
		{"no sequence number", pathControl, sgsn, []byte{0x30, 1, 0, 0, 0, 0, 0, 0}, SequenceMissing},
		{"a message of SGSNs", pathControl, sgsn, header(gtp.TypeSGSNContextRequest), Reason(gtp.FaultMessageType)},
		{"a Create Response", pathControl, sgsn, header(gtp.TypeCreateResponse), Reason(gtp.FaultMessageType)},
		{"a create on the user plane", pathUser, sgsn, header(gtp.TypeCreateRequest), Reason(gtp.FaultMessageType)},
		{"an answer to nothing", pathControl, sgsn, append(header(gtp.TypeEchoResponse)[:3:3], 6, 0, 0, 0, 0, 0, 1, 0, 0, 14, 1), ResponseUnknown},
		{"a G-PDU on the control plane", pathControl, sgsn, header(gtp.TypeGPDU), Reason(gtp.FaultMessageType)},
		{"an Error Indication on the control plane", pathControl, sgsn,
			[]byte{0x32, 26, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 9, 133, 0, 4, 198, 51, 100, 1}, IndicationWrong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.from = tt.from
			before := w.e.stats.Dropped[tt.want]
			w.raw(tt.path, tt.in)
			w.silent(tt.want, before)
		})
	}
}

func TestVersionNotSupported(t *testing.T) {
	w := newWorld(t, nil)
	v0 := w.encode(gtp.Header{Version: gtp.V0, HasSequence: true, Sequence: 5}, &gtp.EchoRequest{})
	v1 := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 5}, &gtp.EchoRequest{})
	v2 := []byte{0x40, 1, 0, 4, 0, 0, 5, 0}
	tests := []struct {
		name string
		path int
		in   []byte
		want gtp.Version
	}{
		{"version 2", pathControl, v2, gtp.V1}, {"version 0 on 2123", pathControl, v0, gtp.V1},
		{"version 1 on 3386", pathV0, v1, gtp.V0}, {"version 2 on 3386", pathV0, v2, gtp.V0},
	}
	for _, tt := range tests {
		var r gtp.VersionNotSupported
		if h := w.answer(w.raw(tt.path, tt.in), &r); h.Version != tt.want {
			t.Errorf("%s: answered in version %d", tt.name, h.Version)
		}
	}
	for _, in := range [][]byte{{0x40, 3, 0, 4, 0, 0, 5, 0}, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.VersionNotSupported{})} {
		if got := w.raw(pathV0, in); len(got) != 0 {
			t.Errorf("a notification was answered: %x", got[0].Payload)
		}
	}
	for range 100 {
		w.raw(pathControl, v2)
	}
	if n := w.e.stats.VersionsRefused; n > 10 {
		t.Errorf("%d answers in no time", n)
	}
}

// TestUncomprehended: an extension header that must be understood and is not ends the
// message, and the peer learns which are; one that need not be is passed over.
func TestUncomprehended(t *testing.T) {
	w := newWorld(t, nil)
	echo := func(kind byte) []byte { return []byte{0x36, 1, 0, 8, 0, 0, 0, 0, 0, 1, 0, kind, 1, 0, 0, 0} }
	var answer gtp.EchoResponse
	w.answer(w.raw(pathControl, echo(0x1f)), &answer)
	w.answer(w.raw(pathControl, echo(0x5f)), &answer)
	for _, kind := range []byte{0x9f, 0xdf} {
		var r gtp.SupportedExtensions
		w.answer(w.raw(pathControl, echo(kind)), &r)
		if !bytes.Contains(r.List, []byte{byte(gtp.ExtensionPDCP)}) {
			t.Errorf("list %x", r.List)
		}
	}
	if w.e.stats.Dropped[ExtensionUnknown] != 2 {
		t.Errorf("dropped %v", w.dropped())
	}
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	ip := udp4(c.four(), server, 64, 0)
	for _, tt := range []struct {
		kind byte
		want int
	}{{0x1f, 1}, {byte(gtp.ExtensionPDUSession), 1}, {0x9f, 0}} {
		x, _ := gtp.MakeExtensions(nil, gtp.Extension{Type: gtp.ExtensionType(tt.kind), Content: []byte{0, 0}})
		h := gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c.TEIDData.Value, Extensions: x}
		b, err := gtp.Encapsulate(nil, &h, ip)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.raw(pathUser, b); len(w.out.IP) != tt.want || len(ofType(got, gtp.TypeSupportedExtensions)) != 1-tt.want {
			t.Errorf("G-PDU with %#x: %d packets, %d datagrams", tt.kind, len(w.out.IP), len(got))
		}
	}
}

// TestElementFaults: a request whose elements cannot be read is answered with the cause for
// that, to its sender's TEID where that can be read.
func TestElementFaults(t *testing.T) {
	w := newWorld(t, nil)
	whole := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 5}, w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
	// without returns the message without the n octets at the first element of a type.
	edit := func(from, n int, put ...byte) []byte {
		b := append(append(append([]byte(nil), whole[:from]...), put...), whole[from+n:]...)
		b[2], b[3] = byte((len(b)-8)>>8), byte(len(b)-8)
		return b
	}
	nsapi := bytes.Index(whole, []byte{20, 5})
	qos := bytes.Index(whole, []byte{135, 0, 4})
	tests := []struct {
		name string
		in   []byte
		want gtp.Cause
		teid uint32
	}{
		{"wrong length", append(append([]byte(nil), whole...), 0), gtp.CauseInvalidMessageFormat, 0},
		{"no NSAPI", edit(nsapi, 2), gtp.CauseMandatoryMissing, 0x2000},
		{"no profile", edit(qos, 7), gtp.CauseMandatoryMissing, 0x2000},
		{"a profile too short", edit(qos, 7, 135, 0, 1, 0), gtp.CauseMandatoryIncorrect, 0x2000},
		{"unknown element of fixed length", edit(nsapi+2, 0, 60, 0), gtp.CauseInvalidMessageFormat, 0},
		{"unknown element with a length", edit(len(whole), 0, 230, 0, 1, 9), gtp.CauseAccepted, 0x2000},
		{"element beyond the end", edit(len(whole), 0, 230, 0, 9, 9), gtp.CauseInvalidMessageFormat, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r gtp.CreateResponse
			if h := w.answer(w.raw(pathControl, tt.in), &r); r.Cause != tt.want || h.TEID != tt.teid || h.Sequence != 5 {
				t.Errorf("cause %v to %#x, want %v to %#x", r.Cause, h.TEID, tt.want, tt.teid)
			}
		})
	}
}

// TestRequestStorm: a peer that asks too much is cut off, and others are served.
func TestRequestStorm(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Requests = 100 })
	for range 1000 {
		w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
	}
	if w.e.stats.Echoes > 25 || w.e.stats.Dropped[RequestRate] < 975 {
		t.Errorf("%d answered, dropped %v", w.e.stats.Echoes, w.dropped())
	}
	w.from = other
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(time.Second)
	w.from = sgsn
	w.open(2, "internet", gtp.PDPTypeIPv4)
}

// TestStormOfAnswers: a node that sends more than it may is heard when it answers a request of
// this node, once for each time that it was asked.
func TestStormOfAnswers(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Requests, s.EchoInterval = 100, time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	asked := ofType(w.tick(time.Minute), gtp.TypeEchoRequest)
	for range 200 {
		w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
	}
	before := w.e.stats.Dropped[RequestRate]
	if len(asked) != 2 || before == 0 {
		t.Fatalf("%d requests, dropped %v", len(asked), w.dropped())
	}
	for _, d := range asked {
		malformed := []byte{0x32, byte(gtp.TypeEchoResponse), 0, 4, 0, 0, 0, 0, d.Payload[8], d.Payload[9], 0, 0}
		path := int(Socket(d.Socket) % ports)
		w.raw(path, malformed)
		w.raw(path, malformed)
	}
	if got := w.e.stats.Dropped[RequestRate]; got != before+uint64(len(asked)) {
		t.Errorf("%d more dropped for the rate", got-before)
	}
	asked = ofType(w.tick(w.e.settings.T3Response), gtp.TypeEchoRequest)
	for _, d := range asked {
		for range 200 {
			w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
		}
		w.reply(d, &gtp.EchoResponse{Recovery: 1})
	}
	if len(asked) != 2 || w.e.requests.used() != 0 {
		t.Errorf("%d requests were sent again, %d wait", len(asked), w.e.requests.used())
	}
}

// TestPeersKept: a node that has no more than the user plane of a context, of either version,
// is not forgotten for another.
func TestPeersKept(t *testing.T) {
	for _, path := range []int{pathV0, pathControl} {
		w := newWorld(t, func(s *Settings) { s.Limits.Peers = 2 })
		m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
		m.AddressUser = other
		h := gtp.Header{}
		if path == pathV0 {
			m.IMSI, m.NSAPI, m.CommonFlags, h.TID = gtp.Optional[gtp.IMSI]{}, 0, gtp.Optional[gtp.CommonFlags]{}, gtp.MakeTID(imsi1, 5)
			number, _ := gtp.ParseMSISDN("46702123456")
			m.QoS, m.MSISDN = qosOf(0, 0x0b, 0x92, 0x1f), gtp.Some(number)
		}
		var c context
		w.ask(path, h, m, &c.CreateResponse)
		if !c.Cause.Accepted() {
			t.Fatal(c.Cause)
		}
		w.tick(time.Minute)
		w.from = netip.MustParseAddr("198.51.100.77")
		before := w.e.stats.Dropped[PeersFull]
		w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))
		w.silent(PeersFull, before)
		w.down(udp4(server, c.four(), 64, 9))
		if len(w.out.UDP) != 1 || w.out.UDP[0].To.Addr() != other {
			t.Errorf("path %d: %d datagrams for the user plane at %v", path, len(w.out.UDP), other)
		}
	}
}

// TestPeersFull: nodes without contexts give way to new ones, those with contexts do not.
func TestPeersFull(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Peers = 3 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	ask := func(last byte) bool {
		w.from = netip.AddrFrom4([4]byte{198, 51, 100, last})
		return len(w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.EchoRequest{}))) == 1
	}
	if !ask(10) || !ask(11) || ask(12) || w.e.stats.Dropped[PeersFull] != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
	w.tick(time.Minute)
	if !ask(12) || !ask(13) || ask(14) {
		t.Errorf("idle nodes did not give way: %v", w.dropped())
	}
	w.from = sgsn
	w.tick(time.Minute)
	w.open(2, "internet", gtp.PDPTypeIPv4)
	if w.e.contexts.used() != 2 {
		t.Error("a node with contexts was forgotten")
	}
}
