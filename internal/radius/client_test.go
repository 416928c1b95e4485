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
	w.tick()
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

// TestNobodyAnswers gives each request one answer, that there is none.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, nil)
	answers := map[uint64]int{}
	for ticket := range uint64(50) {
		w.send(ticket, accessRequest())
	}
	for !w.c.Next().IsZero() {
		w.tick()
		for _, a := range w.out.Answers {
			if answers[a.Ticket]++; a.Code != 0 {
				t.Errorf("answer %+v", a)
			}
		}
	}
	if len(answers) != 50 || w.c.Waiting() != 0 || w.c.stats.Unanswered != 50 {
		t.Errorf("%d answers, %d wait, %+v", len(answers), w.c.Waiting(), w.c.stats)
	}
	if _, to, _ := w.send(99, accessRequest()); to != first {
		t.Errorf("where all are dead, %v was tried", to)
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
