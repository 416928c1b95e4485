// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package offer

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// settle takes the answer to our offer (RFC 3264 section 7, RFC 4568 section 7.1.3).
func (s *Session) settle(r *remote) (media.Agreement, error) {
	if len(r.lines) != len(s.lines) {
		return media.Agreement{}, fmt.Errorf("%w: the answer has %d lines m=, and the offer had %d", ErrMalformed, len(r.lines), len(s.lines))
	}
	a := &r.lines[s.audio]
	switch {
	case a.port == 0:
		return media.Agreement{}, fmt.Errorf("%w: the peer refused it", ErrNotAcceptable)
	case a.media != "audio" || a.secure() != s.secure || !a.known():
		return media.Agreement{}, fmt.Errorf("%w: the answer has another kind of stream", ErrMalformed)
	}
	if err := a.usable(s.laws, s.secure); err != nil { // what this offer had, not what we could have
		return media.Agreement{}, err
	}
	if a.rtp.IsValid() && a.rtp.Addr().Is4() != s.local.RTP.Addr().Unmap().Is4() {
		return media.Agreement{}, ErrFamily
	}
	agreement := s.agreement(a, s.local)
	if s.secure {
		theirs := a.keys[0]
		i := slices.IndexFunc(s.keys, func(k sdes.Attribute) bool { return k.Tag == theirs.Tag && k.Suite == theirs.Suite })
		if i < 0 || len(a.keys) != 1 || s.keys[i].Key.Equal(theirs.Key) {
			return media.Agreement{}, fmt.Errorf("%w: the answer has a key that was not asked for", ErrNotAcceptable)
		}
		s.keys = s.keys[i : i+1 : i+1]
		agreement.Sending, agreement.Receiving = s.keys[0], theirs
	}
	return agreement, nil
}

// choose finds the line of an offer that we take: the one of the stream as it is, or the
// first that can be had.
func (s *Session) choose(r *remote) error {
	if len(r.lines) < len(s.lines) {
		return fmt.Errorf("%w: the offer has %d lines m=, and %d stood in the last", ErrMalformed, len(r.lines), len(s.lines))
	}
	reason := ErrNotAcceptable
	order := make([]int, 0, len(r.lines)+1)
	if s.audio >= 0 {
		order = append(order, s.audio)
	}
	for i := range r.lines {
		order = append(order, i)
	}
	for _, i := range order {
		a := &r.lines[i]
		if a.port == 0 || a.media != "audio" || !a.known() || s.set.Secure && !a.secure() {
			continue
		}
		err := a.usable(s.set.Laws, a.secure())
		if err == nil {
			r.chosen = i
			return nil
		}
		reason = err
	}
	return reason
}

// accept takes the line that was chosen.
func (s *Session) accept(l Local) (media.Agreement, error) {
	r := s.theirs
	a := &r.lines[r.chosen]
	if a.rtp.IsValid() && a.rtp.Addr().Is4() != l.RTP.Addr().Unmap().Is4() {
		return media.Agreement{}, ErrFamily
	}
	s.lines, s.audio, s.timing = make([]line, len(r.lines)), r.chosen, r.timing
	for i := range r.lines {
		s.lines[i] = r.lines[i].line
	}
	// By the numbers of the offer (RFC 3264 section 6.1), so that both have the same.
	s.laws, s.types = nil, media.Types{PCMU: media.None, PCMA: media.None, Events: media.None}
	for _, f := range a.formats {
		if slices.Contains(s.set.Laws, f.law) {
			s.laws = append(s.laws, f.law)
			s.types.Set(f.law, f.payloadType)
		}
	}
	if !s.set.NoEvents {
		s.types.Events = a.events
	}
	agreement := s.agreement(a, l)
	wasSecure := s.secure
	if s.secure = a.secure(); !s.secure {
		s.keys = nil
		return agreement, nil
	}
	theirs := a.keys[0]
	// A key of ours stays while our address does (RFC 4568 section 7.1.4).
	keep := wasSecure && len(s.keys) == 1 && s.keys[0].Suite == theirs.Suite && (s.keyAt == l.RTP || s.set.KeepKeys)
	if keep {
		own := s.keys[0]
		own.Tag = theirs.Tag
		s.keys = []sdes.Attribute{own}
	} else if err := s.makeKeys(l, theirs.Tag, theirs.Suite); err != nil {
		return media.Agreement{}, err
	}
	agreement.Sending, agreement.Receiving = s.keys[0], theirs
	return agreement, nil
}

// agreement is what a line of the peer and what we have come to, but for keys.
func (s *Session) agreement(a *stream, l Local) media.Agreement {
	receives := a.receives && a.rtp.IsValid()
	agreement := media.Agreement{
		RTP: a.rtp, RTCP: a.rtcp,
		Send: l.Send && receives, Receive: l.Receive && a.sends, Held: !receives,
		Secure: a.secure(),
		Format: media.Format{
			Send:    media.Types{PCMU: media.None, PCMA: media.None, Events: media.None},
			Receive: s.types, Digits: a.digits,
		},
	}
	agreement.Format.Law, _ = a.law(s.laws) // there is one: the line is usable
	for _, f := range a.formats {
		agreement.Format.Send.Set(f.law, f.payloadType)
	}
	if s.types.Events != media.None {
		agreement.Format.Send.Events = a.events
	}
	return agreement
}

// law is the first of the line that is among ours.
func (s *stream) law(ours []g711.Law) (law g711.Law, ok bool) {
	for _, f := range s.formats {
		if slices.Contains(ours, f.law) {
			return f.law, true
		}
	}
	return 0, false
}

// usable says what is missing for a stream.
func (s *stream) usable(laws []g711.Law, secure bool) error {
	_, common := s.law(laws)
	switch {
	case s.fault != nil:
		return s.fault
	case !common:
		return fmt.Errorf("%w: no codec is known to both", ErrNotAcceptable)
	case secure && len(s.keys) == 0:
		return fmt.Errorf("%w: no key can be used", ErrNotAcceptable)
	}
	return nil
}

// known reports whether the line is of RTP, or SRTP, as we speak it.
func (s *stream) known() bool {
	return slices.Equal(s.protos, protos(false)) || slices.Equal(s.protos, protos(true))
}

func (s *stream) secure() bool { return slices.Equal(s.protos, protos(true)) }
