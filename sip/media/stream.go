// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// Frame is how much sound a packet carries, and Samples how many octets that is.
const (
	Frame   = 20 * time.Millisecond
	Samples = g711.Rate / 50
)

// Source is what a stream sends.
type Source interface {
	// Frame fills b with the octets of a law, from the sample at a place on. The first
	// packet's is 0, and places follow the clock from then on: what was not sent, on hold
	// or behind time, is left out.
	Frame(b []byte, law g711.Law, at int64)
}

// Sink is what becomes of what a stream receives.
type Sink interface {
	// Write takes octets of a law whose first is the sample at a place, by the timestamps
	// of the peer; the first packet's is 0. Packets come as they do: late ones, and those
	// in another order, have earlier places, and what is lost leaves a gap. Nothing comes
	// twice. b is the caller's.
	Write(at int64, law g711.Law, b []byte)
}

// Settings of a [Stream].
type Settings struct {
	// Name is the canonical name that RTCP tells (RFC 3550 section 6.5.1): for one call, a
	// random one (RFC 7022).
	Name string
	// Source and Sink; nil: silence, and nowhere.
	Source Source
	Sink   Sink
	// RequireKeys has nothing taken but SRTP, so nothing at all before keys are agreed on: what comes earlier proves
	// nothing, and may be a stranger's (RFC 4568 section 5.1.1: media before the answer is lost).
	RequireKeys bool
	// Latch has media go to where the peer's comes from, under the guards of this package,
	// and not only to where its SDP says. LatchWindow is how long after a change by
	// signalling that is taken easily; 0: 2 s. LostAfter is how long the old source must
	// have been silent at any other time; 0: 60 ms.
	Latch       bool
	LatchWindow time.Duration
	LostAfter   time.Duration
	// KeepAlive is how often something is sent while there is nothing to send (RFC 6263);
	// 0: 15 s.
	KeepAlive time.Duration
	// SilentAfter is when media that should come is lost; 0: 5 s.
	SilentAfter time.Duration
	// Press is how long a key is pressed, in whole packets; 0: 100 ms.
	Press time.Duration
}

// maxName bounds the name (RFC 3550 section 6.5).
const maxName = 255

// Stream is one end of a call's media. It is for one thread at a time. See the package for
// how it is used.
type Stream struct {
	set    Settings
	random *rand.ChaCha8
	epoch  time.Time // when the media clock began
	format Format
	// kinds says what each payload type that has ever been agreed on is: those of a session
	// never change (RFC 3264 section 8.3.2).
	kinds    [128]kind
	keepType uint8 // the payload type that is none

	// protect and open are nil for RTP without keys; opened is the key before the last.
	secure        bool
	protect, open *sdes.Context
	opened        *sdes.Context
	openedUntil   time.Time

	out      sender
	in       receiver
	guard    guard
	report   reporter
	dialer   dialer
	listener listener
	handoff  handoff
	drops    [NumDrops]uint64

	held, heldTold bool // by the peer, and as an event has told
	heldSince      time.Time
}

// kind is what a payload type carries.
type kind uint8

const (
	kindUnknown kind = iota
	kindPCMU
	kindPCMA
	kindEvents
)

// New makes a stream that neither sends nor expects anything yet.
func New(s Settings, random io.Reader, now time.Time) (*Stream, error) {
	if s.Name == "" || len(s.Name) > maxName {
		return nil, errors.New("a stream needs a name for RTCP, of 255 octets at most")
	}
	s.LatchWindow = cmp.Or(s.LatchWindow, 2*time.Second)
	s.LostAfter = cmp.Or(s.LostAfter, 3*Frame)
	s.KeepAlive = cmp.Or(s.KeepAlive, 15*time.Second)
	s.SilentAfter = cmp.Or(s.SilentAfter, 5*time.Second)
	s.Press = cmp.Or(s.Press, 5*Frame)
	if s.Press < 2*Frame || s.Press > longestPress {
		return nil, fmt.Errorf("a key is pressed for %s to %s, not for %s", 2*Frame, longestPress, s.Press)
	}
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no randomness for a stream: %w", err)
	}
	numbers := rand.NewChaCha8(seed)
	st := &Stream{set: s, random: numbers, epoch: now, format: Format{Send: DefaultTypes, Receive: DefaultTypes, Digits: AllDigits}}
	st.out = sender{path: -1, ssrc: uint32(numbers.Uint64()), base: uint32(numbers.Uint64())}
	// In the lower half, so that receivers of SRTP cannot miss the first turn (RFC 4568
	// section 6.4).
	st.out.sequence = uint16(numbers.Uint64() & 0x7fff)
	st.guard = guard{latch: s.Latch, window: s.LatchWindow, lostAfter: s.LostAfter}
	st.learn(st.format.Receive)
	return st, nil
}

// Agree takes what signalling has agreed on, for the first time and whenever it changes. A
// key that stays keeps its rollover counter, and an old one is taken for a while beside the
// new.
func (s *Stream) Agree(a Agreement, now time.Time) error {
	if err := s.useKeys(&a, now); err != nil {
		return err
	}
	s.format = a.Format
	s.learn(a.Format.Receive)
	s.dialer.restrict(&s.format)
	s.guard.signal(a.RTP, a.RTCP, now)
	s.out.wanted = a.Send
	if s.held != a.Held {
		s.held, s.heldSince = a.Held, now
	}
	if s.in.wanted != a.Receive {
		s.in.wanted = a.Receive
		s.in.pause(now)
	}
	s.resume(now)
	s.startReports(now)
	return nil
}

// useKeys changes the contexts whose keys have changed.
func (s *Stream) useKeys(a *Agreement, now time.Time) error {
	if !a.Secure {
		if s.set.RequireKeys {
			return errors.New("a stream that requires keys has none")
		}
		s.secure, s.protect, s.open, s.opened = false, nil, nil, nil
		return nil
	}
	protect, open := s.protect, s.open
	var err error
	if protect == nil || !protect.Attribute().Equal(a.Sending) {
		if protect, err = sdes.NewContext(a.Sending); err != nil {
			return err
		}
	}
	if open == nil || !open.Attribute().Equal(a.Receiving) {
		if open, err = sdes.NewContext(a.Receiving); err != nil {
			return err
		}
		s.opened, s.openedUntil = s.open, now.Add(s.set.LatchWindow)
	}
	s.secure, s.protect, s.open = true, protect, open
	return nil
}

// learn adds payload types that the peer may send.
func (s *Stream) learn(t Types) {
	for number, k := range map[uint8]kind{t.PCMU: kindPCMU, t.PCMA: kindPCMA, t.Events: kindEvents} {
		if int(number) < len(s.kinds) {
			s.kinds[number] = k
		}
	}
	for n := uint8(127); n >= 96; n-- {
		if s.kinds[n] == kindUnknown && n != s.format.Send.Events && n != s.format.Send.PCMU && n != s.format.Send.PCMA {
			s.keepType = n
			return
		}
	}
}

// SendBy sends by another path from the next packet on, whatever signalling has done yet. All
// paths go on receiving.
func (s *Stream) SendBy(path int, now time.Time) error {
	if path < 0 || path >= MaxPaths {
		return fmt.Errorf("a stream has no path %d", path)
	}
	if path == s.out.path {
		return nil
	}
	s.out.path, s.out.began, s.in.pathHeard = path, time.Time{}, false
	s.out.last = time.Time{} // on hold, a keep-alive shows the new path at once
	s.resume(now)
	s.startReports(now)
	return nil
}

// Path is the path that is sent by; -1: none.
func (s *Stream) Path() int { return s.out.path }

// Remote is where media goes: where SDP says, or where the stream has latched.
func (s *Stream) Remote() netip.AddrPort { return s.guard.target }

// Handle takes a datagram that came by a socket.
func (s *Stream) Handle(socket int, from netip.AddrPort, b []byte, now time.Time, out *Output) {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	path, control := PathOf(socket)
	if socket < 0 || path >= MaxPaths {
		return
	}
	if s.set.RequireKeys && !s.secure {
		s.drops[DropNotAuthentic]++
		return
	}
	if control {
		s.handleControl(from, b, now, out)
		return
	}
	s.handleMedia(path, from, b, now, out)
}

// Tick does what is due.
func (s *Stream) Tick(now time.Time, out *Output) {
	s.sendDue(now, out)
	s.reportDue(now, out)
	s.listener.due(now, out)
	if !s.heldAt().IsZero() {
		s.heldTold = s.held
		kind := ResumedByPeer
		if s.held {
			kind = HeldByPeer
		}
		out.Events = append(out.Events, Event{Kind: kind, Path: s.out.path})
	}
	if at := s.in.silentAt(s.set.SilentAfter); !at.IsZero() && !at.After(now) {
		s.in.lost = true
		out.Events = append(out.Events, Event{Kind: MediaLost, Path: s.out.path})
	}
}

// Next is when Tick has something to do; zero is never.
func (s *Stream) Next() time.Time {
	var next time.Time
	for _, at := range [...]time.Time{s.sendAt(), s.reportAt(), s.listener.until, s.heldAt(), s.in.silentAt(s.set.SilentAfter)} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// heldAt is when the peer has held the call or resumed it; zero: that is told.
func (s *Stream) heldAt() time.Time {
	if s.held == s.heldTold {
		return time.Time{}
	}
	return s.heldSince
}
