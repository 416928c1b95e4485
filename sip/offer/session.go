// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"errors"
	"io"
	"net/netip"
	"slices"

	"github.com/pion/sdp/v3"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// Errors. Each may be wrapped in another that says more.
var (
	// ErrMalformed: what came is no SDP, or not as RFC 3264 has it. 400 for an offer.
	ErrMalformed = errors.New("the session description is malformed")
	// ErrTooLarge: it has more octets or lines than are looked at. 413.
	ErrTooLarge = errors.New("the session description is too large")
	// ErrNotAcceptable: there is no stream, codec or key that both have. 488.
	ErrNotAcceptable = errors.New("the session description has no stream that can be had")
	// ErrFamily: the peer's address is of the other family than ours. 488, or another path.
	ErrFamily = errors.New("the stream's address is of another family")
	// ErrPending: an offer is open already, of one side or the other. 491, or 500 with
	// Retry-After (RFC 3261 section 14.2).
	ErrPending = errors.New("an offer is open already")
	// ErrNoOffer: there is no open offer of the side that it was asked of.
	ErrNoOffer = errors.New("no offer is open")
)

// Settings of a [Session].
type Settings struct {
	// ID is the session's number, different from those of other sessions: a random one.
	ID uint64
	// Origin is the address of the line o=, which stays when the host moves.
	Origin netip.Addr
	// Laws are offered in this order; nil: PCMU, PCMA.
	Laws []g711.Law
	// NoEvents leaves out RFC 4733.
	NoEvents bool
	// Secure offers SRTP, and takes nothing else. Without it RTP is offered, and SRTP taken
	// from whoever offers that.
	Secure bool
	// KeepKeys keeps the key of what is sent when the address changes, although RFC 4568
	// section 7.1.4 asks for a new one: for peers that take that for a new stream.
	KeepKeys bool
	// Random makes keys: crypto/rand.
	Random io.Reader
}

// Local is what we have for the stream.
type Local struct {
	// RTP is where media is to come. RTCP is where reports are; zero: the next port.
	RTP, RTCP netip.AddrPort
	// Send and Receive are what we want; neither is a call on hold in both directions.
	Send, Receive bool
}

// agreed is what changes when an offer is answered, and does not when it is refused. Slices
// in it are never written to.
type agreed struct {
	lines  []line // all m= lines, in their order
	audio  int    // the place of the stream among them; -1: none
	laws   []g711.Law
	types  media.Types // that we receive by
	timing sdp.Timing
	secure bool
	keys   []sdes.Attribute // ours, as they are told
	keyAt  netip.AddrPort   // the address that they were made for
}

// line is an m= line that is no stream of ours: refused or removed.
type line struct {
	media  string
	protos []string
	format string
}

// open is whose offer waits for its answer.
type open uint8

const (
	openNone open = iota
	openOurs
	openTheirs
)

// Session is one side's half of a session. It is for one thread at a time.
type Session struct {
	set     Settings
	version uint64 // of what was told last
	last    []byte
	agreed
	before agreed // what holds if the open offer is refused
	open   open
	local  Local   // of the open offer of ours
	theirs *remote // the open offer of the peer
}

// New makes a session.
func New(s Settings) (*Session, error) {
	if s.Laws == nil {
		s.Laws = []g711.Law{g711.PCMU, g711.PCMA}
	}
	switch {
	case !s.Origin.IsValid() || s.Origin.Zone() != "":
		return nil, errors.New("a session needs an address of its origin, without a zone")
	case len(s.Laws) == 0:
		return nil, errors.New("a session needs a codec")
	case s.Random == nil:
		return nil, errors.New("a session needs randomness for its keys")
	}
	s.Origin = s.Origin.Unmap()
	types := media.DefaultTypes
	if s.NoEvents {
		types.Events = media.None
	}
	return &Session{set: s, agreed: agreed{audio: -1, laws: s.Laws, types: types, secure: s.Secure}}, nil
}

// Offer makes an offer. It is open until [Session.Answered] or [Session.Withdraw]. The same
// lines stand in it as before, in the same order, and the same payload types.
func (s *Session) Offer(l Local) ([]byte, error) {
	if s.open != openNone {
		return nil, ErrPending
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	s.before = s.agreed
	if s.audio < 0 {
		s.audio = len(s.lines)
		s.lines = append(slices.Clip(s.lines), line{})
		s.laws, s.secure = s.set.Laws, s.set.Secure
	}
	if err := s.renewKeys(l); err != nil {
		s.agreed = s.before
		return nil, err
	}
	s.open, s.local = openOurs, l
	return s.describe(l, l.Send, l.Receive)
}

// Answered takes the answer to our offer. After an error the session is as before it.
func (s *Session) Answered(answer []byte) (media.Agreement, error) {
	if s.open != openOurs {
		return media.Agreement{}, ErrNoOffer
	}
	r, err := parse(answer)
	if err != nil {
		s.Withdraw()
		return media.Agreement{}, err
	}
	a, err := s.settle(r)
	if err != nil {
		s.Withdraw()
		return media.Agreement{}, err
	}
	s.open = openNone
	return a, nil
}

// Withdraw ends the open offer, of whichever side, without an answer: the session is as it
// was before it (RFC 3261 section 14.1). The version of an offer of ours stays used.
func (s *Session) Withdraw() {
	if s.open == openOurs {
		s.agreed = s.before
	}
	s.open, s.theirs = openNone, nil
}

// Offered takes an offer of the peer. It returns where the peer wants its media, so that a
// path can be chosen for the answer. The offer is open until [Session.Answer] or
// [Session.Withdraw], unless there is an error.
func (s *Session) Offered(offer []byte) (netip.AddrPort, error) {
	if s.open != openNone {
		return netip.AddrPort{}, ErrPending
	}
	r, err := parse(offer)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if err := s.choose(r); err != nil {
		return netip.AddrPort{}, err
	}
	s.open, s.theirs = openTheirs, r
	return r.lines[r.chosen].rtp, nil
}

// Answer makes the answer to the peer's offer. Streams that cannot be had are refused in it.
// After an error the offer stays open.
func (s *Session) Answer(l Local) ([]byte, media.Agreement, error) {
	if s.open != openTheirs {
		return nil, media.Agreement{}, ErrNoOffer
	}
	if err := l.check(); err != nil {
		return nil, media.Agreement{}, err
	}
	before := s.agreed
	a, err := s.accept(l)
	var body []byte
	if err == nil {
		body, err = s.describe(l, a.Send, a.Receive)
	}
	if err != nil {
		s.agreed = before
		return nil, media.Agreement{}, err
	}
	s.open, s.theirs = openNone, nil
	return body, a, nil
}

// check says what is wrong with what we have.
func (l *Local) check() error {
	a := l.RTP.Addr()
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || l.RTP.Port() == 0 {
		return errors.New("a stream needs a unicast address without a zone, and a port")
	}
	return nil
}

// renewKeys makes the keys that we tell in an offer (RFC 4568 sections 5.1.1 and 7.1.4): one
// for each suite at first, a new one of the suite in use when our address changes.
func (s *Session) renewKeys(l Local) error {
	if !s.secure || len(s.keys) > 0 && (s.keyAt == l.RTP || s.set.KeepKeys) {
		return nil
	}
	suites := []sdes.Suite{sdes.AES80, sdes.AES32}
	if len(s.keys) > 0 {
		suites = []sdes.Suite{s.keys[0].Suite}
	}
	return s.makeKeys(l, 1, suites...)
}

// makeKeys makes a key for each suite, with tags from one on.
func (s *Session) makeKeys(l Local, tag int, suites ...sdes.Suite) error {
	var keys []sdes.Attribute
	for i, suite := range suites {
		key, err := sdes.NewKey(s.set.Random)
		if err != nil {
			return err
		}
		keys = append(keys, sdes.Attribute{Tag: tag + i, Suite: suite, Key: key})
	}
	s.keys, s.keyAt = keys, l.RTP
	return nil
}
