// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
)

var (
	first     = netip.MustParseAddrPort("[2001:db8::1]:49170")
	second    = netip.MustParseAddrPort("[2001:db8:2::1]:49180")
	far       = netip.MustParseAddrPort("[2001:db8:f::9]:7000")
	firstIPv4 = netip.MustParseAddrPort("192.0.2.1:49170")
)

// side makes one side's session at the address of its socket.
func side(t testing.TB, origin netip.AddrPort, change func(*Settings)) *Session {
	t.Helper()
	set := Settings{ID: 7, Origin: origin.Addr(), Random: rand.Reader}
	if change != nil {
		change(&set)
	}
	s, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func both(rtp netip.AddrPort) Local { return Local{RTP: rtp, Send: true, Receive: true} }

// sdp joins lines.
func text(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

// exchange has one side offer and the other answer, and returns what each made of it.
func exchange(t testing.TB, from, to *Session, l, r Local) (offer, answer string, ours, theirs media.Agreement) {
	t.Helper()
	o, err := from.Offer(l)
	if err != nil {
		t.Fatal("offer:", err)
	}
	if _, err := to.Offered(o); err != nil {
		t.Fatalf("offered: %v\n%s", err, o)
	}
	a, theirs, err := to.Answer(r)
	if err != nil {
		t.Fatal("answer:", err)
	}
	if ours, err = from.Answered(a); err != nil {
		t.Fatalf("answered: %v\n%s", err, a)
	}
	return string(o), string(a), ours, theirs
}

const head = "v=0\r\no=- 7 1 IN IP6 2001:db8::1\r\ns=-\r\n"

var goldenOffer = text("v=0", "o=- 7 1 IN IP6 2001:db8::1", "s=-", "c=IN IP6 2001:db8::1", "t=0 0",
	"m=audio 49170 RTP/AVP 0 8 101", "a=rtpmap:0 PCMU/8000", "a=rtpmap:8 PCMA/8000",
	"a=rtpmap:101 telephone-event/8000", "a=fmtp:101 0-15", "a=ptime:20", "a=sendrecv")

func TestGolden(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, func(s *Settings) { s.ID = 9 })
	o, a, ours, theirs := exchange(t, us, them, both(first), both(far))
	if o != goldenOffer {
		t.Errorf("the offer is\n%s", o)
	}
	want := strings.NewReplacer("o=- 7 1 IN IP6 2001:db8::1", "o=- 9 1 IN IP6 2001:db8:f::9", "c=IN IP6 2001:db8::1", "c=IN IP6 2001:db8:f::9", "49170", "7000").Replace(goldenOffer)
	if a != want {
		t.Errorf("the answer is\n%s", a)
	}
	format := media.Format{Law: g711.PCMU, Send: media.DefaultTypes, Receive: media.DefaultTypes, Digits: media.AllDigits}
	if wanted := (media.Agreement{RTP: far, RTCP: nextPort(far), Send: true, Receive: true, Format: format}); ours != wanted {
		t.Errorf("we agreed on %+v", ours)
	}
	if wanted := (media.Agreement{RTP: first, RTCP: nextPort(first), Send: true, Receive: true, Format: format}); theirs != wanted {
		t.Errorf("they agreed on %+v", theirs)
	}
}

// TestMove changes nothing but what a move changes: o= is the same with version +1, although
// it has the old address (RFC 3264 section 8).
func TestMove(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, nil)
	exchange(t, us, them, both(first), both(far))
	o, _, _, theirs := exchange(t, us, them, both(second), both(far))
	want := strings.NewReplacer("o=- 7 1 ", "o=- 7 2 ", "c=IN IP6 2001:db8::1", "c=IN IP6 2001:db8:2::1", "49170", "49180").Replace(goldenOffer)
	if o != want {
		t.Errorf("the offer is\n%s", o)
	}
	if theirs.RTP != second {
		t.Errorf("media goes to %s", theirs.RTP)
	}
	// Who answered moves in turn: the lines are those of the offer, the version is its own.
	o, _, ours, _ := exchange(t, them, us, both(netip.AddrPortFrom(far.Addr(), 7002)), both(second))
	if !strings.Contains(o, "o=- 7 2 IN IP6 2001:db8:f::9") || ours.RTP != second {
		t.Errorf("the offer back is\n%s, and media goes to %s", o, ours.RTP)
	}
}

func TestSameVersionForTheSame(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, nil)
	once, _, _, _ := exchange(t, us, them, both(first), both(far))
	again, _, _, _ := exchange(t, us, them, both(first), both(far))
	if once != again {
		t.Errorf("a refresh says\n%s", again)
	}
}

// TestHold goes through what each side may want (RFC 3264 sections 6.1 and 8.4).
func TestHold(t *testing.T) {
	tests := []struct {
		name              string
		send, receive     bool // of who offers
		theySend, theyGet bool // of who answers
		offered, answered string
		ours, theirs      [2]bool // sends, receives
		held              bool    // who answers is held
	}{
		{"a talk", true, true, true, true, "sendrecv", "sendrecv", [2]bool{true, true}, [2]bool{true, true}, false},
		{"on hold", true, false, true, true, "sendonly", "recvonly", [2]bool{true, false}, [2]bool{false, true}, true},
		{"on hold without music", false, false, true, true, "inactive", "inactive", [2]bool{}, [2]bool{}, true},
		{"listening alone", false, true, true, true, "recvonly", "sendonly", [2]bool{false, true}, [2]bool{true, false}, false},
		{"held by both", true, false, true, false, "sendonly", "inactive", [2]bool{}, [2]bool{}, true},
		{"resumed, held by the other", true, true, true, false, "sendrecv", "sendonly", [2]bool{false, true}, [2]bool{true, false}, false},
	}
	us, them := side(t, first, nil), side(t, far, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, a, ours, theirs := exchange(t, us, them, Local{RTP: first, Send: tt.send, Receive: tt.receive}, Local{RTP: far, Send: tt.theySend, Receive: tt.theyGet})
			if !strings.HasSuffix(o, "a="+tt.offered+"\r\n") || !strings.HasSuffix(a, "a="+tt.answered+"\r\n") {
				t.Errorf("the offer is\n%sthe answer\n%s", o, a)
			}
			if ours.Send != tt.ours[0] || ours.Receive != tt.ours[1] || theirs.Send != tt.theirs[0] || theirs.Receive != tt.theirs[1] || theirs.Held != tt.held {
				t.Errorf("ours %+v\ntheirs %+v", ours, theirs)
			}
		})
	}
}

// TestOffered answers what peers offer.
func TestOffered(t *testing.T) {
	plain := []string{"c=IN IP6 2001:db8:f::9", "t=0 0"}
	with := func(lines ...string) string { return head + text(append(plain[:2:2], lines...)...) }
	tests := []struct {
		name, offer string
		answer      string // lines m= and a= of the answer that must be there, each after the other
		rtp         string
		check       func(media.Agreement) bool
	}{
		{"static types without rtpmap", with("m=audio 7000 RTP/AVP 8 0"), "m=audio 49170 RTP/AVP 8 0|a=rtpmap:8 PCMA/8000", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return a.Format.Law == g711.PCMA && a.Format.Send.Events == media.None }},
		{"dynamic types, by their numbers", with("m=audio 7000 RTP/AVP 97 96", "a=rtpmap:96 pcmu/8000", "a=rtpmap:97 telephone-event/8000", "a=fmtp:97 0-11,16"), "m=audio 49170 RTP/AVP 96 97|a=rtpmap:96 PCMU/8000|a=rtpmap:97 telephone-event/8000", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool {
				return a.Format.Send == media.Types{PCMU: 96, PCMA: media.None, Events: 97} && a.Format.Receive == a.Format.Send && a.Format.Digits == 0x0fff
			}},
		{"codecs that are unknown, and one of another rate", with("m=audio 7000 RTP/AVP 111 9 97 0", "a=rtpmap:111 opus/48000/2", "a=rtpmap:97 PCMA/16000"), "m=audio 49170 RTP/AVP 0|", "[2001:db8:f::9]:7000", nil},
		{"a static number that is something else", with("m=audio 7000 RTP/AVP 0 8", "a=rtpmap:0 opus/48000/2"), "m=audio 49170 RTP/AVP 8|", "[2001:db8:f::9]:7000", nil},
		{"video beside it", with("m=audio 7000 RTP/AVP 0", "m=video 7002 RTP/AVP 31 34"), "m=audio 49170 RTP/AVP 0|m=video 0 RTP/AVP 31", "[2001:db8:f::9]:7000", nil},
		{"video before it, and what nobody knows", with("m=video 7002 RTP/AVP 31", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "m=audio 7000 RTP/AVP 0"), "m=video 0 RTP/AVP 31|m=application 0 UDP/DTLS/SCTP webrtc-datachannel|m=audio 49170 RTP/AVP 0", "[2001:db8:f::9]:7000", nil},
		{"two of audio: the first that can be had", with("m=audio 7000 RTP/AVP 9", "m=audio 7002 RTP/AVP 0", "m=audio 7004 RTP/AVP 8"), "m=audio 0 RTP/AVP 9|m=audio 49170 RTP/AVP 0|m=audio 0 RTP/AVP 8", "[2001:db8:f::9]:7002", nil},
		{"a removed one before", with("m=audio 0 RTP/AVP 0", "m=audio 7002 RTP/AVP 0"), "m=audio 0 RTP/AVP 0|m=audio 49170 RTP/AVP 0", "[2001:db8:f::9]:7002", nil},
		{"an address of the line's own", with("m=audio 7000 RTP/AVP 0", "c=IN IP6 2001:db8:e::1"), "m=audio 49170 RTP/AVP 0", "[2001:db8:e::1]:7000", nil},
		{"an address in brackets", head + text("c=IN IP6 [2001:db8:e::1]", "t=0 0", "m=audio 7000 RTP/AVP 0"), "m=audio 49170 RTP/AVP 0", "[2001:db8:e::1]:7000", nil},
		{"reports elsewhere", with("m=audio 7000 RTP/AVP 0", "a=rtcp:7100"), "m=audio", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return a.RTCP == netip.MustParseAddrPort("[2001:db8:f::9]:7100") }},
		{"reports to another host", with("m=audio 7000 RTP/AVP 0", "a=rtcp:7100 IN IP6 2001:db8:e::2"), "m=audio", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return a.RTCP == netip.MustParseAddrPort("[2001:db8:e::2]:7100") }},
		{"reports nowhere to be read", with("m=audio 7000 RTP/AVP 0", "a=rtcp:x IN IP6"), "m=audio", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return a.RTCP == netip.MustParseAddrPort("[2001:db8:f::9]:7001") }},
		{"the highest port, beside which none is", with("m=audio 65535 RTP/AVP 0"), "m=audio", "[2001:db8:f::9]:65535",
			func(a media.Agreement) bool { return !a.RTCP.IsValid() && a.Send }},
		{"the highest port, and reports elsewhere", with("m=audio 65535 RTP/AVP 0", "a=rtcp:7100"), "m=audio", "[2001:db8:f::9]:65535",
			func(a media.Agreement) bool { return a.RTCP == netip.MustParseAddrPort("[2001:db8:f::9]:7100") }},
		{"on hold for the whole session", head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "a=sendonly", "m=audio 7000 RTP/AVP 0"), "a=recvonly", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return a.Held && !a.Send && a.Receive }},
		{"on hold but for this line", head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "a=inactive", "m=audio 7000 RTP/AVP 0", "a=sendrecv"), "a=sendrecv", "[2001:db8:f::9]:7000",
			func(a media.Agreement) bool { return !a.Held && a.Send && a.Receive }},
		{"on hold in the old manner", head + text("c=IN IP4 0.0.0.0", "t=0 0", "m=audio 7000 RTP/AVP 0"), "a=recvonly", "invalid AddrPort",
			func(a media.Agreement) bool { return a.Held && !a.Send && a.Receive && !a.RTCP.IsValid() }},
		{"a time that is not 0", head + text("c=IN IP6 2001:db8:f::9", "t=3034423619 3042462419", "m=audio 7000 RTP/AVP 0"), "t=3034423619 3042462419|m=audio", "[2001:db8:f::9]:7000", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := side(t, first, nil)
			rtp, err := s.Offered([]byte(tt.offer))
			if err != nil || rtp.String() != tt.rtp {
				t.Fatalf("media is to go to %s, %v", rtp, err)
			}
			body, agreement, err := s.Answer(both(first))
			if err != nil {
				t.Fatal(err)
			}
			rest := string(body)
			for _, want := range strings.Split(tt.answer, "|") {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Errorf("the answer lacks %q:\n%s", want, body)
				}
				rest = after
			}
			if tt.check != nil && !tt.check(agreement) {
				t.Errorf("agreed on %+v", agreement)
			}
			// What we offer later has the same lines and numbers.
			again, err := s.Offer(both(second))
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.NewReplacer(" 7 1 IN", " 7 2 IN", "c=IN IP6 2001:db8::1", "c=IN IP6 2001:db8:2::1", "49170", "49180", "recvonly", "sendrecv").Replace(string(body))
			if string(again) != changed {
				t.Errorf("after a move:\n%s, want\n%s", again, changed)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	with := func(lines ...string) string { return head + text(lines...) }
	const c, m = "c=IN IP6 2001:db8:f::9", "m=audio 7000 RTP/AVP 0"
	tests := []struct {
		name, offer string
		want        error
	}{
		{"nothing", "", ErrMalformed},
		{"no SDP", "hello", ErrMalformed},
		{"another version", strings.Replace(with(c, "t=0 0", m), "v=0", "v=1", 1), ErrMalformed},
		{"too long", with(c, "t=0 0", m, "a="+strings.Repeat("x", maxOctets)), ErrTooLarge},
		{"too many lines", with(append([]string{c, "t=0 0"}, strings.Split(strings.Repeat(m+"|", maxLines)+m, "|")...)...), ErrTooLarge},
		{"too many formats", with(c, "t=0 0", m+strings.Repeat(" 0", maxFormats)), ErrTooLarge},
		{"no streams", with(c, "t=0 0"), ErrNotAcceptable},
		{"no audio", with(c, "t=0 0", "m=video 7000 RTP/AVP 31"), ErrNotAcceptable},
		{"no codec of ours", with(c, "t=0 0", "m=audio 7000 RTP/AVP 9 18"), ErrNotAcceptable},
		{"events alone", with(c, "t=0 0", "m=audio 7000 RTP/AVP 101", "a=rtpmap:101 telephone-event/8000"), ErrNotAcceptable},
		{"a profile that is not ours", with(c, "t=0 0", "m=audio 7000 UDP/TLS/RTP/SAVPF 0"), ErrNotAcceptable},
		{"no address", with("t=0 0", m), ErrMalformed},
		{"a name", with("c=IN IP6 ch.example", "t=0 0", m), ErrNotAcceptable},
		{"multicast", with("c=IN IP4 233.252.0.1/127", "t=0 0", m), ErrNotAcceptable},
		{"a zone", with("c=IN IP6 fe80::1%eth0", "t=0 0", m), ErrNotAcceptable},
		{"IPv6 that says IPv4", with("c=IN IP4 2001:db8::1", "t=0 0", m), ErrMalformed},
		{"SRTP without a key", with(c, "t=0 0", "m=audio 7000 RTP/SAVP 0"), ErrNotAcceptable},
		{"SRTP with keys that cannot be used", with(c, "t=0 0", "m=audio 7000 RTP/SAVP 0", "a=crypto:1 F8_128_HMAC_SHA1_80 inline:AAAA"), ErrNotAcceptable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := side(t, first, nil)
			if _, err := s.Offered([]byte(tt.offer)); !errors.Is(err, tt.want) {
				t.Errorf("the error is %v, want %v", err, tt.want)
			}
			if o, err := s.Offer(both(first)); err != nil || string(o) != goldenOffer {
				t.Errorf("the session is not as before: %v\n%s", err, o)
			}
		})
	}
}

// TestAnswers refuses answers that do not fit the offer, which leaves the session as it was.
func TestAnswers(t *testing.T) {
	with := func(lines ...string) string {
		return head + text(append([]string{"c=IN IP6 2001:db8:f::9", "t=0 0"}, lines...)...)
	}
	tests := []struct {
		name, answer string
		want         error
	}{
		{"no SDP", "hello", ErrMalformed},
		{"no lines", with(), ErrMalformed},
		{"more lines than asked for", with("m=audio 7000 RTP/AVP 0", "m=audio 7002 RTP/AVP 0"), ErrMalformed},
		{"refused", with("m=audio 0 RTP/AVP 0"), ErrNotAcceptable},
		{"of another kind", with("m=video 7000 RTP/AVP 31"), ErrMalformed},
		{"secure although it was not asked for", with("m=audio 7000 RTP/SAVP 0"), ErrMalformed},
		{"codecs that were not offered", with("m=audio 7000 RTP/AVP 18"), ErrNotAcceptable},
		{"of the other family", head + text("c=IN IP4 192.0.2.1", "t=0 0", "m=audio 7000 RTP/AVP 0"), ErrFamily},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			us, them := side(t, first, nil), side(t, far, nil)
			exchange(t, us, them, both(first), both(far))
			if _, err := us.Offer(both(second)); err != nil {
				t.Fatal(err)
			}
			if _, err := us.Answered([]byte(tt.answer)); !errors.Is(err, tt.want) {
				t.Errorf("the error is %v, want %v", err, tt.want)
			}
			if _, err := us.Answered([]byte(tt.answer)); !errors.Is(err, ErrNoOffer) {
				t.Errorf("answered twice: %v", err)
			}
			// The call is as it was, and can be changed.
			exchange(t, us, them, both(second), both(far))
		})
	}
}

// TestOneOfferAtATime holds RFC 3261 section 14: neither side has two open.
func TestOneOfferAtATime(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, nil)
	o, _ := us.Offer(both(first))
	theirs, _ := them.Offer(both(far))
	if _, err := us.Offer(both(second)); !errors.Is(err, ErrPending) {
		t.Errorf("a second offer of ours: %v", err)
	}
	if _, err := us.Offered(theirs); !errors.Is(err, ErrPending) {
		t.Errorf("glare: %v", err)
	}
	if _, _, err := us.Answer(both(first)); !errors.Is(err, ErrNoOffer) {
		t.Errorf("an answer to nothing: %v", err)
	}
	us.Withdraw()
	them.Withdraw()
	if _, err := them.Answered(o); !errors.Is(err, ErrNoOffer) {
		t.Errorf("an answer after a withdrawal: %v", err)
	}
	if _, err := us.Offered(theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := us.Offer(both(first)); !errors.Is(err, ErrPending) {
		t.Errorf("an offer while one of the peer is open: %v", err)
	}
	if _, _, err := us.Answer(Local{}); err == nil {
		t.Error("an answer without an address")
	}
	if _, _, err := us.Answer(Local{RTP: netip.MustParseAddrPort("192.0.2.1:7000")}); !errors.Is(err, ErrFamily) {
		t.Errorf("an answer of the other family: %v", err)
	}
	if _, _, err := us.Answer(both(first)); err != nil {
		t.Errorf("the offer is no longer open: %v", err)
	}
}

// TestVersionAfterARefusal goes on counting, since the refused one was provided, too.
func TestVersionAfterARefusal(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, nil)
	exchange(t, us, them, both(first), both(far))
	refused, _ := us.Offer(Local{RTP: first})
	us.Withdraw()
	o, _, _, _ := exchange(t, us, them, both(first), both(far))
	if !bytes.Contains(refused, []byte("o=- 7 2 ")) || !strings.Contains(o, "o=- 7 3 ") {
		t.Errorf("refused\n%sthen\n%s", refused, o)
	}
}

// TestOfferWithoutOne answers a re-INVITE without an offer: the offer is in the 200, the
// answer in the ACK (RFC 3261 section 14.2).
func TestOfferWithoutOne(t *testing.T) {
	us, them := side(t, first, nil), side(t, far, nil)
	exchange(t, us, them, both(first), both(far))
	o, _, ours, theirs := exchange(t, them, us, both(far), both(first))
	if !strings.Contains(o, "m=audio 7000 RTP/AVP 0 8 101") || ours.RTP != first || theirs.RTP != far {
		t.Errorf("the offer is\n%s%+v\n%+v", o, ours, theirs)
	}
}

func TestPeerDropsALine(t *testing.T) {
	s := side(t, first, nil)
	two := head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "m=audio 7000 RTP/AVP 0", "m=video 7002 RTP/AVP 31")
	if _, err := s.Offered([]byte(two)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Answer(both(first)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Offered([]byte(head + text("c=IN IP6 2001:db8:f::9", "t=0 0", "m=audio 7000 RTP/AVP 0"))); !errors.Is(err, ErrMalformed) {
		t.Errorf("the error is %v", err)
	}
}

func TestSettings(t *testing.T) {
	for name, set := range map[string]Settings{
		"no origin":     {Random: rand.Reader},
		"a zone":        {Origin: netip.MustParseAddr("fe80::1%eth0"), Random: rand.Reader},
		"no codec":      {Origin: first.Addr(), Laws: []g711.Law{}, Random: rand.Reader},
		"no randomness": {Origin: first.Addr()},
	} {
		if _, err := New(set); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	s := side(t, first, func(s *Settings) { s.NoEvents, s.Laws = true, []g711.Law{g711.PCMA} })
	o, err := s.Offer(Local{RTP: first, RTCP: second})
	if want := text("m=audio 49170 RTP/AVP 8", "a=rtpmap:8 PCMA/8000", "a=ptime:20", "a=rtcp:49180 IN IP6 2001:db8:2::1", "a=inactive"); err != nil || !strings.HasSuffix(string(o), want) {
		t.Errorf("the offer is\n%s%v", o, err)
	}
}
