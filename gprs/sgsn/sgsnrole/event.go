// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
)

// settled takes the events of a batch, with the engine's mutex held.
func (s *SGSN) settled(out *sgsn.Output) {
	if len(out.Events) == 0 {
		return
	}
	s.mu.Lock()
	s.events = append(s.events, out.Events...)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default: // those before it are not taken yet
	}
}

// follow acts on events until the instance ends, the last ones included: what a terminal has
// follows its contexts.
func (s *SGSN) follow() {
	for ended := false; !ended; {
		select {
		case <-s.ctx.Done():
			ended = true
		case <-s.news:
		}
		s.mu.Lock()
		events := s.events
		s.events = nil
		s.mu.Unlock()
		for _, e := range events {
			s.happened(e)
		}
	}
}

// happened acts on one event: the host first, so that whoever waits for it finds all set up.
func (s *SGSN) happened(e sgsn.Event) {
	got := outcome{event: e}
	there := false
	s.loop.Do(func(time.Time, *sgsn.Output) { got.info, there = s.engine.Context(e.Key) })
	if t := s.terminal(e.Link); t != nil && e.Key != (gtp.TID{}) {
		if err := t.apply(e.Key, got.info, there); err != nil {
			s.log.Warn("the terminal could not be set up as the network says", "imsi", imsiOf(e.Key), "error", err)
		}
		if !there {
			if err := s.vacate(t, e.Key); err != nil {
				s.log.Warn("something of the terminal stays behind", "terminal", t.String(), "error", err)
			}
		}
	}
	s.tell(got)
	if again := there && gone(e.Kind); !again { // elsewhere, or by GTPv0
		s.wake(got)
	}
}

// refusal is the error of an event that is none of success.
func refusal(e sgsn.Event) error {
	switch e.Kind {
	case sgsn.Refused, sgsn.UpdateFailed, sgsn.MoveFailed:
	case sgsn.Ended:
		if e.Reason == sgsn.ReasonDetached {
			return nil
		}
	default:
		return nil
	}
	text := fmt.Sprintf("GGSN %s: %s", e.Peer, e.Reason)
	if e.Cause != 0 {
		text += fmt.Sprintf(" (%s, cause %d)", e.Cause, e.Cause)
	}
	if e.Auth != sgsn.AuthUnanswered {
		text += fmt.Sprintf(", user and password %s", e.Auth)
	}
	if e.AuthMessage != "" {
		text += fmt.Sprintf(" with the words %q", e.AuthMessage)
	}
	if what := remedy(e); what != "" {
		text += ": " + what
	}
	return errors.New(text)
}

// remedy says what can be done about an event that is none of success; empty: that is not known.
func remedy(e sgsn.Event) string {
	switch e.Reason {
	case sgsn.ReasonNoAnswer:
		return "see that it is there, that it takes requests of our address, and that it speaks this version of GTP (--gtp, --gtp-fallback)"
	case sgsn.ReasonVersion:
		return "choose the other one (--gtp, --gtp-fallback)"
	}
	switch e.Cause {
	case gtp.CauseUnknownAPN:
		return "name an access point that it has (--apn; of ours name below [[ggsn.apn]], and default_apn), and that the subscriber may use (subscribers_file)"
	case gtp.CauseAPNDenied:
		return "have the subscriber be given this access point (subscribers_file of ours), or name another one (--apn)"
	case gtp.CauseUnknownPDPType:
		return "ask for another type (--type), or have the access point give that one (types, pool4 and pool6 below [[ggsn.apn]] of ours)"
	case gtp.CauseNoResources:
		return "the GGSN has as many contexts as it takes (max_contexts, contexts_per_peer of ours), or is drained: try again later"
	case gtp.CauseAddressesOccupied:
		return "the pool of the access point is full, or its addresses rest (pool4, pool6, hold of ours): try again later"
	case gtp.CauseUserAuthentication:
		return "say who the terminal is (--user, --password-file, --auth)"
	case gtp.CauseFilterSemantic, gtp.CauseTFTSemantic:
		return "another context of the address has the precedence, or one without filters is there (--filter precedence=N)"
	}
	return ""
}

// tell logs an event in one line.
func (s *SGSN) tell(got outcome) {
	e, i := got.event, got.info
	about := []any{"ggsn", e.Peer}
	if e.Key != (gtp.TID{}) {
		about = append(about, "imsi", imsiOf(e.Key), "nsapi", e.Key.NSAPI())
	}
	if e.Took > 0 {
		about = append(about, "took", e.Took)
	}
	if e.Cause != 0 {
		about = append(about, "cause", e.Cause.String())
	}
	if e.Reason != sgsn.ReasonNone {
		about = append(about, "reason", e.Reason.String())
	}
	level, told := slog.LevelInfo, ""
	switch e.Kind {
	case sgsn.Attached:
		if i.Auth == sgsn.AuthRefused {
			level = slog.LevelWarn
		}
		about = append(about, described(&i)...)
	case sgsn.Configured, sgsn.Changed, sgsn.Moved:
		properties := described(&i)
		if told = fmt.Sprint(e.Kind, properties); told == s.told[e.Key] {
			return // an advertisement that has come again
		}
		about = append(about, properties...)
	case sgsn.Refused, sgsn.UpdateFailed, sgsn.MoveFailed, sgsn.NoRouter, sgsn.PathDown, sgsn.PeerRestarted:
		level = slog.LevelWarn
		about = append(about, proved(e.Auth, e.AuthMessage)...)
	}
	if e.Key != (gtp.TID{}) {
		if told != "" {
			s.told[e.Key] = told
		} else {
			delete(s.told, e.Key)
		}
	}
	s.log.Log(s.ctx, level, e.Kind.String(), about...)
}

// described are the properties of a context for the log.
func described(i *sgsn.Info) (about []any) {
	add := func(name string, value any, there bool) {
		if there {
			about = append(about, name, value)
		}
	}
	add("ipv4", i.IPv4, i.IPv4.IsValid())
	add("link_local", i.LinkLocal, i.LinkLocal.IsValid())
	add("ipv6", addresses(i.IPv6), len(i.IPv6) > 0)
	add("delegated", delegated(i.Delegated), len(i.Delegated) > 0)
	add("dns", i.DNS, len(i.DNS) > 0)
	add("nat64", i.NAT64, len(i.NAT64) > 0)
	add("search", i.Domains, len(i.Domains) > 0)
	add("pcscf", i.PCSCF, len(i.PCSCF) > 0)
	add("mtu4", i.MTU4, i.MTU4 > 0)
	add("mtu6", i.MTU6, i.MTU6 > 0)
	about = append(about, proved(i.Auth, i.AuthMessage)...)
	add("sgsn", i.Local, true)
	add("gtp", i.Version, true)
	add("teids", fmt.Sprintf("%#x %#x, theirs %#x %#x", i.TEIDControl, i.TEIDData, i.RemoteControl, i.RemoteData), true)
	return about
}

// proved is what was said to user and password.
func proved(result sgsn.AuthResult, message string) (about []any) {
	if result != sgsn.AuthUnanswered {
		about = append(about, "auth", result.String())
	}
	if message != "" {
		about = append(about, "auth_message", message)
	}
	return about
}

func imsiOf(key gtp.TID) string {
	m, _ := key.IMSI()
	return m.String()
}
