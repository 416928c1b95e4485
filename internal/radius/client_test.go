// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"layeh.com/radius"
)

var (
	start   = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	first   = netip.MustParseAddrPort("192.0.2.1:1812")
	second  = netip.MustParseAddrPort("[2001:db8::2]:1812")
	secret  = []byte("xyzzy5461")
	secret2 = []byte("another one")
)

// world is a client with two servers, in virtual time.
type world struct {
	*testing.T
	c   *Client
	now time.Time
	out Output
}

func newWorld(t *testing.T, change func(*Settings)) *world {
	t.Helper()
	s := Defaults()
	s.Servers = []Server{{Address: first, Secret: secret}, {Address: second, Secret: secret2}}
	if change != nil {
		change(&s)
	}
	c, err := NewClient(s, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, c: c, now: start}
}

func accessRequest() *Request {
	r := &Request{Code: AccessRequest, Password: []byte("arctangent")}
	r.Attributes.Text(UserName, "nemo")
	return r
}

// send sends a request and returns its datagram.
func (w *world) send(ticket uint64, r *Request) (socket int, to netip.AddrPort, wire []byte) {
	w.Helper()
	w.out.Reset()
	if err := w.c.Send(ticket, r, w.now, &w.out); err != nil || len(w.out.UDP) != 1 {
		w.Fatalf("%v, %d datagrams", err, len(w.out.UDP))
	}
	d := w.out.UDP[0]
	return d.Socket, d.To, slices.Clone(d.Payload)
}

// tick has the client do what is due next.
func (w *world) tick() {
	w.Helper()
	w.now = w.c.Next()
	w.out.Reset()
	w.c.Tick(w.now, &w.out)
}

// answerTo makes an answer to a request, signed or not.
func answerTo(wire, secret []byte, code Code, signed bool) []byte {
	p := radius.Packet{Code: code, Identifier: wire[1], Authenticator: [16]byte(wire[4:20]), Secret: secret}
	if signed {
		p.Add(MessageAuthenticator, make(radius.Attribute, 16))
	}
	p.Add(FramedIPAddress, radius.Attribute{10, 0, 0, 9})
	b, err := p.MarshalBinary()
	if err != nil {
		panic(err)
	}
	if signed {
		sign(b, headerLen, secret)
	}
	q, _ := radius.Parse(b, secret)
	if b, err = q.Encode(); err != nil {
		panic(err)
	}
	return b
}

// TestExampleOfRFC2865 hides the password as the first example of RFC 2865 section 7.1 does.
func TestExampleOfRFC2865(t *testing.T) {
	authenticator, _ := hex.DecodeString("0f403f9473978057bd83d5cb98f4227a")
	b, err := accessRequest().encode(0, [16]byte(authenticator), secret, start)
	if err != nil {
		t.Fatal(err)
	}
	// Behind the Message-Authenticator, which the example of the year 2000 has not.
	const want = "01066e656d6f02120dbe708d93d413ce3196e43f782a0aee"
	if got := hex.EncodeToString(b[headerLen+signatureLen:]); got != want {
		t.Errorf("attributes\n%s, want\n%s", got, want)
	}
	if at, err := findSignature(b); at != headerLen || err != nil || !signedBy(b, at, authenticator, secret) {
		t.Errorf("Message-Authenticator at %d, %v, or wrong", at, err)
	}
}

// TestAnswer takes one right answer, and drops all others with their reasons.
func TestAnswer(t *testing.T) {
	w := newWorld(t, nil)
	socket, to, wire := w.send(7, accessRequest())
	if to != first {
		t.Fatalf("asked %v", to)
	}
	good := answerTo(wire, secret, AccessAccept, true)
	forged := slices.Clone(good)
	forged[len(forged)-1] ^= 1
	otherSignature := answerTo(wire, secret, AccessAccept, true)
	for i := range 16 {
		otherSignature[headerLen+2+i] ^= 1
	}
	q, _ := radius.Parse(otherSignature, secret)
	q.Authenticator = [16]byte(wire[4:20])
	otherSignature, _ = q.Encode()
	with := func(b []byte, signature int) []byte { // of so many octets, behind the others
		q, _ := radius.Parse(b, secret)
		q.Authenticator = [16]byte(wire[4:20])
		q.Add(MessageAuthenticator, make(radius.Attribute, signature))
		b, _ = q.Encode()
		return b
	}
	twice, half := with(good, 16), with(answerTo(wire, secret, AccessAccept, false), 8)
	for _, c := range []struct {
		name string
		from netip.AddrPort
		b    []byte
		why  Reason
	}{
		{"stranger", netip.MustParseAddrPort("192.0.2.9:1812"), good, Stranger},
		{"short", first, good[:19], Malformed},
		{"length", first, append([]byte{2, wire[1], 0, 19}, good[4:]...), Malformed},
		{"a request", first, answerTo(wire, secret, CoAACK, true), Malformed},
		{"changed", first, forged, Authenticator},
		{"other secret", first, answerTo(wire, secret2, AccessAccept, true), Authenticator},
		{"unsigned", first, answerTo(wire, secret, AccessAccept, false), Unsigned},
		{"signature", first, otherSignature, Signature},
		{"two signatures", first, twice, Malformed},
		{"half a signature", first, half, Malformed},
		{"good", first, good, 0},
		{"good again", first, good, Twice},
		{"other identifier", first, append([]byte{2, wire[1] + 1}, good[2:]...), Late},
	} {
		before := w.c.stats.Dropped
		w.out.Reset()
		w.c.HandleUDP(socket, c.from, c.b, w.now, &w.out)
		if c.why == 0 {
			if len(w.out.Answers) != 1 || w.out.Answers[0].Ticket != 7 || w.out.Answers[0].Code != AccessAccept {
				t.Errorf("%s: %+v, dropped %v", c.name, w.out.Answers, w.c.stats.Dropped)
			} else if a, ok := w.out.Answers[0].Attributes.FindAddress(FramedIPAddress); !ok || a != netip.MustParseAddr("10.0.0.9") {
				t.Errorf("%s: address %v", c.name, a)
			}
			continue
		}
		if before[c.why]++; w.c.stats.Dropped != before || len(w.out.Answers) != 0 {
			t.Errorf("%s: dropped %v, want one more of %v", c.name, w.c.stats.Dropped, c.why)
		}
	}
	if w.c.Waiting() != 0 || !w.c.Next().IsZero() {
		t.Errorf("%d wait", w.c.Waiting())
	}
}

// TestAnswerBySocket: an answer counts by the socket that the request has left by alone, since each has identifiers of
// its own; it counts from the IPv4 address as an IPv6 socket shows it, too.
func TestAnswerBySocket(t *testing.T) {
	w := newWorld(t, nil)
	socket, _, wire := w.send(1, accessRequest())
	good := answerTo(wire, secret, AccessAccept, true)
	if w.answered(1, socket+1, first, good) || w.c.stats.Dropped[Late] != 1 {
		t.Errorf("by another socket: %+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(first.Addr().As16()), first.Port())
	if !w.answered(1, socket, mapped, good) {
		t.Errorf("from %v: dropped %v", mapped, w.c.stats.Dropped)
	}
}

// TestAccountingAnswer takes an Accounting-Response, which need not have a Message-Authenticator, and nothing else; one
// that has a wrong one is none (RFC 2866 section 4.2, RFC 3579 section 3.2).
func TestAccountingAnswer(t *testing.T) {
	w := newWorld(t, nil)
	r := &Request{Code: AccountingRequest, Time: start}
	r.Attributes.Integer(AcctStatusType, AcctStart)
	socket, _, wire := w.send(1, r)
	if at, err := findSignature(wire); at != 0 || err != nil || !radius.IsAuthenticRequest(wire, secret) {
		t.Errorf("it is signed at %d, %v, or has a wrong authenticator", at, err)
	}
	wrong := answerTo(wire, secret, AccountingResponse, true)
	wrong[headerLen+2] ^= 1
	q, _ := radius.Parse(wrong, secret)
	q.Authenticator = [16]byte(wire[4:20])
	wrong, _ = q.Encode()
	for _, c := range []struct {
		name string
		b    []byte
		why  Reason
	}{
		{"that of an Access-Request", answerTo(wire, secret, AccessAccept, false), Malformed},
		{"of another secret", answerTo(wire, secret2, AccountingResponse, false), Authenticator},
		{"with a signature that is wrong", wrong, Signature},
	} {
		before := w.c.stats.Dropped
		w.out.Reset()
		w.c.HandleUDP(socket, first, c.b, w.now, &w.out)
		if before[c.why]++; w.c.stats.Dropped != before || len(w.out.Answers) != 0 {
			t.Errorf("%s: dropped %v, want one more of %v", c.name, w.c.stats.Dropped, c.why)
		}
	}
	w.out.Reset()
	w.c.HandleUDP(socket, first, answerTo(wire, secret, AccountingResponse, false), w.now, &w.out)
	if len(w.out.Answers) != 1 || w.out.Answers[0].Code != AccountingResponse {
		t.Errorf("%+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
}

// TestDelayTime: an Accounting-Request says how long ago it happened when a server is asked first; it says the same when
// it comes again, and more to the next server, as another request (RFC 2866 section 5.2).
func TestDelayTime(t *testing.T) {
	w := newWorld(t, nil)
	w.now = start.Add(7*time.Second + 900*time.Millisecond)
	r := &Request{Code: AccountingRequest, Time: start}
	r.Attributes.Integer(AcctStatusType, AcctStop)
	delay := func(wire []byte) uint32 {
		t.Helper()
		p, err := radius.Parse(wire, secret)
		if err != nil {
			t.Fatal(err)
		}
		a := Attributes{p.Attributes}
		seconds, ok := a.FindInteger(AcctDelayTime)
		if !ok || len(a.All(AcctDelayTime)) != 1 {
			t.Errorf("attributes %v", a.Types())
		}
		return seconds
	}
	_, _, wire := w.send(1, r)
	if got := delay(wire); got != 7 {
		t.Errorf("%d s ago, want 7", got)
	}
	w.tick()
	if len(w.out.UDP) != 1 || !slices.Equal(w.out.UDP[0].Payload, wire) {
		t.Errorf("again: %+v", w.out.UDP)
	}
	w.tick()
	if next := w.out.UDP[0]; next.To != second || delay(next.Payload) != uint32(w.now.Sub(start)/time.Second) || delay(next.Payload) < 10 {
		t.Errorf("to %v %d s ago at %v", next.To, delay(next.Payload), w.now.Sub(start))
	}
	r.Time = w.now.Add(time.Hour) // the clock was set
	if _, _, wire = w.send(2, r); delay(wire) != 0 {
		t.Errorf("in the future: %d s ago", delay(wire))
	}
}

// TestAnySigned takes an answer without a Message-Authenticator where that is allowed.
func TestAnySigned(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers[0].AnySigned = true })
	socket, _, wire := w.send(1, accessRequest())
	w.c.HandleUDP(socket, first, answerTo(wire, secret, AccessReject, false), w.now, &w.out)
	if len(w.out.Answers) != 1 || w.out.Answers[0].Code != AccessReject {
		t.Errorf("%+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
}

// TestFailover sends the same octets again, goes to the next server with other ones, and leaves
// the dead one alone until its time has come.
func TestFailover(t *testing.T) {
	w := newWorld(t, nil)
	_, _, wire := w.send(1, accessRequest())
	w.tick()
	if len(w.out.UDP) != 1 || w.out.UDP[0].To != first || !slices.Equal(w.out.UDP[0].Payload, wire) {
		t.Fatalf("sent again: %+v", w.out.UDP)
	}
	if wait := w.now.Sub(start); wait < 900*time.Millisecond || wait > 1100*time.Millisecond {
		t.Errorf("sent again after %v", wait)
	}
	again := w.now
	w.tick()
	if wait := w.now.Sub(again); wait < 1800*time.Millisecond || wait > 2200*time.Millisecond { // twice as long
		t.Errorf("given up after %v", wait)
	}
	if len(w.out.UDP) != 1 || w.out.UDP[0].To != second || w.out.UDP[0].Socket < w.c.settings.Sockets || slices.Equal(w.out.UDP[0].Payload[4:20], wire[4:20]) {
		t.Fatalf("failover: %+v", w.out.UDP)
	}
	if !slices.Equal(w.out.Events, []Event{{first, true}}) {
		t.Errorf("events %v", w.out.Events)
	}
	if _, to, _ := w.send(2, accessRequest()); to != second {
		t.Errorf("the next one went to %v", to)
	}
	w.now = w.now.Add(w.c.settings.DeadTime)
	socket, to, wire := w.send(3, accessRequest())
	if to != first {
		t.Errorf("after the dead time one went to %v", to)
	}
	if _, to, _ := w.send(4, accessRequest()); to != second {
		t.Errorf("while that one tries, another went to %v", to)
	}
	w.out.Reset()
	w.c.HandleUDP(socket, first, answerTo(wire, secret, AccessAccept, true), w.now, &w.out)
	if !slices.Equal(w.out.Events, []Event{{first, false}}) {
		t.Errorf("events %v", w.out.Events)
	}
	if _, to, _ := w.send(5, accessRequest()); to != first {
		t.Errorf("when it lives, one went to %v", to)
	}
}

// TestFull refuses a request when all identifiers are taken, and gives none twice.
func TestFull(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Sockets, s.Servers = 2, s.Servers[:1] })
	w.c.servers[0].window.size = 2 * identifiers
	seen := map[[2]int]bool{}
	for ticket := range uint64(2 * identifiers) {
		socket, _, wire := w.send(ticket, accessRequest())
		key := [2]int{socket, int(wire[1])}
		if seen[key] {
			t.Fatalf("%v is taken twice", key)
		}
		seen[key] = true
	}
	if err := w.c.Send(999, accessRequest(), w.now, &w.out); err != ErrFull {
		t.Errorf("one more: %v", err)
	}
}

// FuzzAnswer hands datagrams of any octets to a client that waits for an answer: none is taken
// that its server has not made.
func FuzzAnswer(f *testing.F) {
	s := Defaults()
	s.Servers, s.Sockets = []Server{{Address: first, Secret: secret}}, 1
	c, err := NewClient(s, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		f.Fatal(err)
	}
	var out Output
	if err := c.Send(1, accessRequest(), start, &out); err != nil {
		f.Fatal(err)
	}
	wire := slices.Clone(out.UDP[0].Payload)
	f.Add(answerTo(wire, secret2, AccessAccept, true))
	f.Add(answerTo(wire, secret, CoAACK, false))
	f.Fuzz(func(t *testing.T, b []byte) {
		out.Reset()
		c.HandleUDP(0, first, b, start, &out)
		if len(out.Answers) == 1 && radius.IsAuthenticResponse(b, wire, secret) {
			t.Skip("the fuzzer has the secret")
		}
		if len(out.Answers) != 0 {
			t.Errorf("taken: %x", b)
		}
		if p, err := radius.Parse(b, secret); err == nil {
			a := Attributes{p.Attributes}
			for _, kind := range a.Types() {
				a.FindPrefix(kind)
				a.FindAddress(kind)
				a.FindSeconds(kind)
			}
			a.Find3GPP(1)
		}
	})
}
