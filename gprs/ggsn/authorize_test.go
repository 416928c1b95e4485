// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// newAuthorized is a world whose access points let nobody in unasked.
func newAuthorized(t *testing.T, change func(*Settings)) *world {
	t.Helper()
	return newWorld(t, func(s *Settings) {
		for i := range s.APNs {
			s.APNs[i].Authorize = true
		}
		if change != nil {
			change(s)
		}
	})
}

// asks sends a Create Request that must wait, and returns it with what was asked.
func (w *world) asks(m *gtp.CreateRequest) (b []byte, a Ask) {
	w.Helper()
	w.seq++
	b = w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: w.seq}, m)
	if got := w.raw(pathControl, bytes.Clone(b)); len(got) != 0 || len(w.out.Asks) != 1 {
		w.Fatalf("%d datagrams, %d asks; dropped %v", len(got), len(w.out.Asks), w.dropped())
	}
	return b, w.out.Asks[0]
}

// authorize answers an ask, and returns what comes out.
func (w *world) authorize(ticket uint64, g Grant) []packet.Datagram {
	w.out.Reset()
	w.e.Authorize(ticket, g, w.now, &w.out)
	return w.out.UDP
}

// TestAuthorize holds a Create Request, asks once however often it comes, and answers it when
// it is granted, and again when it comes again.
func TestAuthorize(t *testing.T) {
	w := newAuthorized(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.PCO = gtp.Some(pcoOf(gtp.ContainerPAP, papRequest("nemo", "arctangent")))
	b, a := w.asks(m)
	if a.APN != "dual" || a.IMSI != imsi1 || a.PeerControl != sgsn || a.Type != gtp.PDPTypeIPv4v6 || string(a.Account.User) != "nemo" || string(a.Password) != "arctangent" {
		t.Errorf("asked %+v", a)
	}
	before := w.e.stats.Dropped[CreateWaiting]
	if w.raw(pathControl, bytes.Clone(b)); len(w.out.Asks) != 0 {
		t.Error("asked twice")
	}
	w.silent(CreateWaiting, before)
	var r gtp.CreateResponse
	w.answer(w.authorize(a.Ticket, Grant{
		Address4: netip.MustParseAddr("10.46.7.7"), Prefix6: netip.MustParsePrefix("2001:db8:7000:77::/64"), InterfaceID: 0x1234,
	}), &r)
	if r.Cause != gtp.CauseAccepted || r.EndUserAddress.Value.IPv4 != netip.MustParseAddr("10.46.7.7") || r.EndUserAddress.Value.IPv6 != netip.MustParseAddr("2001:db8:7000:77::1234") {
		t.Errorf("answered %+v", r)
	}
	w.answer(w.raw(pathControl, bytes.Clone(b)), &r)
	if w.authorize(a.Ticket, Grant{}); w.e.stats.GrantsLate != 1 || len(w.out.UDP) != 0 {
		t.Error("an ask was answered twice")
	}
	if w.remove(r.TEIDControl.Value, 5, true) != gtp.CauseAccepted {
		t.Error("it cannot be deleted")
	}
	w.empty()
}

// TestInterfaceIDGranted takes the interface identifier of a grant, but for those that no terminal may have: the
// node's own, that of no one and reserved ones (RFC 6459 section 5.2, RFC 5453). Then it draws one.
func TestInterfaceIDGranted(t *testing.T) {
	for _, id := range []uint64{0x1234, 0, link.RouterID, 0xfdffffffffffff80} {
		w := newAuthorized(t, nil)
		_, a := w.asks(w.createRequest(imsi1, "inet6", gtp.PDPTypeIPv6))
		var r gtp.CreateResponse
		w.answer(w.authorize(a.Ticket, Grant{InterfaceID: id}), &r)
		raw := r.EndUserAddress.Value.IPv6.As16()
		got := binary.BigEndian.Uint64(raw[8:])
		if !r.Cause.Accepted() || (got == id) != (id == 0x1234) || !link.ValidID(got) {
			t.Errorf("%#x: %v, %#x", id, r.Cause, got)
		}
	}
}

// papRequest is an Authenticate-Request (RFC 1334 section 2.2.1).
func papRequest(user, password string) []byte {
	data := append(append([]byte{byte(len(user))}, user...), byte(len(password)))
	return gtp.PPP{Code: gtp.PAPRequest, Identifier: 1, Data: append(data, password...)}.Append(nil)
}

// TestCredentialsOfCHAP reads challenge and response, and not more of what cannot be read.
func TestCredentialsOfCHAP(t *testing.T) {
	response := append([]byte{16}, append(bytes.Repeat([]byte{7}, 16), "nemo"...)...)
	user, c := credentialsOf(pcoOf(
		gtp.ContainerCHAP, gtp.PPP{Code: gtp.CHAPChallenge, Identifier: 9, Data: []byte{3, 1, 2, 3, 'x'}}.Append(nil),
		gtp.ContainerCHAP, gtp.PPP{Code: gtp.CHAPResponse, Identifier: 9, Data: response}.Append(nil),
		gtp.ContainerPAP, []byte{1, 1, 0, 5, 200},
	))
	if string(user) != "nemo" || c.Identifier != 9 || !bytes.Equal(c.Challenge, []byte{1, 2, 3}) || len(c.Response) != 16 || c.Password != nil {
		t.Errorf("%s, %+v", user, c)
	}
}

// TestNotAuthorized refuses by the cause that fits, keeps the answer for the request that comes
// again, and leaves nothing.
func TestNotAuthorized(t *testing.T) {
	for _, c := range []struct {
		grant Grant
		want  gtp.Cause
	}{
		{Grant{Verdict: Refused}, gtp.CauseUserAuthentication},
		{Grant{Verdict: Challenged}, gtp.CauseUserAuthentication},
		{Grant{Verdict: Unknown}, gtp.CauseSystemFailure},
		{Grant{Address4: netip.MustParseAddr("10.99.0.1")}, gtp.CauseUnknownPDPType},
	} {
		w := newAuthorized(t, nil)
		b, a := w.asks(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, c.grant), &r); r.Cause != c.want {
			t.Errorf("%+v: cause %v, want %v", c.grant, r.Cause, c.want)
		}
		if w.answer(w.raw(pathControl, b), &r); r.Cause != c.want || len(w.out.Asks) != 0 {
			t.Errorf("%+v: again %v, and %d asks", c.grant, r.Cause, len(w.out.Asks))
		}
		w.empty()
	}
}

// TestNobodyAuthorizes refuses what has waited as long as an SGSN does, and holds no more than the
// limit.
func TestNobodyAuthorizes(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.Limits.Waiting = 4 })
	w.asks(w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4))
	_, a := w.asks(w.createRequest(testIMSI(2), "internet", gtp.PDPTypeIPv4))
	if c := w.create(w.createRequest(testIMSI(3), "internet", gtp.PDPTypeIPv4)); c.Cause != gtp.CauseNoResources {
		t.Errorf("one too many: %v", c.Cause)
	}
	if n := w.e.Sizes().Waiting; n != 2 {
		t.Errorf("%d wait", n)
	}
	if got := ofType(w.tick(w.e.patience()-time.Millisecond), gtp.TypeCreateResponse); len(got) != 0 {
		t.Errorf("%d answers too early", len(got))
	}
	got := ofType(w.tick(time.Second), gtp.TypeCreateResponse)
	if len(got) != 2 || w.e.Sizes().Waiting != 0 {
		t.Fatalf("%d answers, %d wait", len(got), w.e.Sizes().Waiting)
	}
	var r gtp.CreateResponse
	if w.answer(got, &r); r.Cause != gtp.CauseSystemFailure {
		t.Errorf("cause %v", r.Cause)
	}
	if w.authorize(a.Ticket, Grant{}); w.e.stats.GrantsLate != 1 {
		t.Error("a late grant counts")
	}
	w.empty()
}

// TestFallback lets a terminal in of which nobody says whether it may, while its SGSN still waits, where that is
// the policy of its access point: not one that is refused, or whose request does not count any more.
func TestFallback(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.APNs[0].Fallback, s.APNs[0].Account = true, true })
	for verdict, want := range map[Verdict]gtp.Cause{
		Unknown: gtp.CauseAccepted, Refused: gtp.CauseUserAuthentication, Challenged: gtp.CauseUserAuthentication,
	} {
		_, a := w.asks(w.createRequest(testIMSI(int(verdict)), "internet", gtp.PDPTypeIPv4))
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, Grant{Verdict: verdict}), &r); r.Cause != want || w.e.stats.Verdicts[verdict] != 1 {
			t.Errorf("%v: %v; counted %v", verdict, r.Cause, w.e.stats.Verdicts)
		}
		if r.Cause.Accepted() && !w.told(ContextCreated)[0].Context.Account.Local {
			t.Errorf("%v: its account says that a server let it in", verdict)
		}
	}
	w.asks(w.createRequest(testIMSI(10), "inet6", gtp.PDPTypeIPv6)) // which has no such policy
	w.asks(w.createRequest(testIMSI(11), "internet", gtp.PDPTypeIPv4))
	w.asks(w.createRequest(testIMSI(12), "internet", gtp.PDPTypeIPv4))
	got := w.tick(w.e.patience() - w.e.settings.T3Response/2)
	if made := ofType(got, gtp.TypeCreateResponse); len(made) != 2 || w.e.contexts.used() != 3 || w.e.Sizes().Waiting != 1 {
		t.Errorf("%d answers, %d contexts, %d wait", len(made), w.e.contexts.used(), w.e.Sizes().Waiting)
	}
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	for _, x := range w.list() {
		if !x.Account.Local {
			t.Errorf("after a restart the account of %v says that a server let it in", x.IMSI)
		}
	}
	w.asks(w.createRequest(testIMSI(13), "internet", gtp.PDPTypeIPv4))
	w.seq++
	got = w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: w.seq}, w.createRequest(testIMSI(13), "internet", gtp.PDPTypeIPv4)))
	if refused := causes(w, got, w.seq-1); len(refused) != 1 || refused[0] != gtp.CauseSystemFailure {
		t.Errorf("the request before was answered %v", refused)
	}
	if w.authorize(w.out.Asks[0].Ticket, Grant{}); w.e.stats.Verdicts[Superseded] != 1 || w.e.stats.Verdicts[Granted] != 1 {
		t.Errorf("counted %v", w.e.stats.Verdicts)
	}
}

// TestTerms ends a session when it was granted to, also after a restart, whatever its access
// point says.
func TestTerms(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.APNs[0].SessionLimit = time.Hour })
	_, a := w.asks(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
	var r gtp.CreateResponse
	w.answer(w.authorize(a.Ticket, Grant{Terms: Terms{SessionLimit: 2 * time.Minute}}), &r)
	w.tick(time.Minute)
	e, lost, err := resume(t, w.e.settings, w.e.AppendState(nil), w.now, bytes.NewReader(make([]byte, 4096)))
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	w.e = e
	if got := ofType(w.tick(58*time.Second), gtp.TypeDeleteRequest); len(got) != 0 {
		t.Error("deleted too early")
	}
	if got := ofType(w.tick(3*time.Second), gtp.TypeDeleteRequest); len(got) == 0 {
		t.Error("not deleted")
	}
}

// TestGrantAgain gives a terminal that comes again the address that it was granted before, which
// it still has.
func TestGrantAgain(t *testing.T) {
	w := newAuthorized(t, nil)
	want := Grant{Address4: netip.MustParseAddr("10.45.1.1")}
	for range 2 {
		_, a := w.asks(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4))
		var r gtp.CreateResponse
		if w.answer(w.authorize(a.Ticket, want), &r); r.Cause != gtp.CauseAccepted || r.EndUserAddress.Value.IPv4 != want.Address4 {
			t.Errorf("%v %v", r.Cause, r.EndUserAddress.Value.IPv4)
		}
	}
}
