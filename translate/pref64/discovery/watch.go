// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const (
	dnsPort = 53
	// Solicitations of a host (RFC 4861 section 10).
	solicitations    = 3
	solicitationWait = 4 * time.Second
	// DefaultAdvertisementWait is how long routers may take before name servers are
	// asked: the delay of an answer, and a lost message less than another
	// solicitation.
	DefaultAdvertisementWait = 1500 * time.Millisecond
	// lookAgain is how often Fallback is called where its name servers are asked.
	lookAgain = 5 * time.Second
	// leastBetween is the time between two questions where advertisements name other name
	// servers each time.
	leastBetween = time.Second
)

// Settings say where prefixes are looked for.
type Settings struct {
	// Interface is the link whose NAT64 is meant. Empty: name servers alone are asked,
	// by any link.
	Interface string
	// Resolvers are asked in place of the name servers that routers of that link name in their
	// advertisements (RFC 8106).
	Resolvers []netip.AddrPort
	// Fallback returns those to ask behind those of routers, where Resolvers names none. It is
	// called again and again: the list of a host changes. Nil: there are none.
	Fallback func() []netip.AddrPort
	// Moves reports the network of 64 bits that the host is in now, by the same interface. Nil:
	// it stays in one.
	Moves <-chan netip.Prefix
	// AdvertisementWait is how long routers have before name servers are asked; 0 is
	// DefaultAdvertisementWait.
	AdvertisementWait time.Duration
	// Log is told of changes. Nil: no one.
	Log *slog.Logger
}

// Watch reports what the prefixes of the NAT64 behind an interface are: once something is
// known, at the latest when routers and name servers had their time, and at each change.
// An empty set is the word that there is none now. The channel holds the latest set
// alone: a slow reader misses what is outdated. It is closed when ctx is done.
//
// Router Advertisements go before name servers (RFC 8781 section 5.1); while they say
// something, no name server is asked. Sockets are opened in the network namespace of the
// process. The right to use raw sockets is needed, but not without an interface.
func Watch(ctx context.Context, s Settings) (<-chan pref64.Set, error) {
	w := &watcher{
		settings: s, log: s.Log,
		sets: make(chan pref64.Set, 1), heard: make(chan heard), answers: make(chan asked, 1), ask: ask,
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.settings.AdvertisementWait == 0 {
		w.settings.AdvertisementWait = DefaultAdvertisementWait
	}
	if s.Interface == "" && len(s.Resolvers) == 0 {
		return nil, errors.New("neither an interface nor a name server is given, so there is no one to ask: name one of them")
	}
	if s.Interface != "" {
		var err error
		if w.socket, err = listen(s.Interface, []netip.Addr{packet.AllNodes}, ipv6.ICMPTypeRouterAdvertisement); err != nil {
			return nil, err
		}
		go w.read(ctx)
	}
	go w.run(ctx)
	return w.sets, nil
}

// Discover returns what [Watch] finds first. A set without prefixes is no error: there is
// no NAT64, or no one tells.
func Discover(ctx context.Context, s Settings) (pref64.Set, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sets, err := Watch(ctx, s)
	if err != nil {
		return pref64.Set{}, err
	}
	set, ok := <-sets
	if !ok {
		return set, ctx.Err()
	}
	return set, nil
}

// heard is an advertisement.
type heard struct {
	from netip.Addr
	said pref64.Advertisement
}

// asked is what became of a question.
type asked struct {
	answer answer
	err    error
	moves  int // of the host, when it was asked
}

// watcher is the state of one Watch, which one goroutine has.
type watcher struct {
	settings Settings
	log      *slog.Logger
	socket   *socket // nil without an interface
	sets     chan pref64.Set
	heard    chan heard
	answers  chan asked
	ask      func(ctx context.Context, link string, resolvers []netip.AddrPort) (answer, error)

	known        pref64.Known
	told         *pref64.Set // nil: nothing yet
	moves        int
	asking       bool
	askedAt      time.Time        // last
	askedOf      []netip.AddrPort // likewise
	answeredOnce bool             // by name servers, or not in their time
	failures     int              // of name servers, in a row
	askAt        time.Time
	solicitAt    time.Time // zero: no more
	solicited    int
	// routersUntil, while not zero, is until when no one hears that there is no NAT64: a
	// router that has just advertised answers only three seconds later.
	routersUntil time.Time
}

// read hands advertisements on until the socket is closed.
func (w *watcher) read(ctx context.Context) {
	buffer := make([]byte, maxMessage)
	for {
		b, from, err := w.socket.read(buffer)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				w.log.Warn("router advertisements cannot be received any more; name servers are asked alone", "interface", w.settings.Interface, "error", err)
			}
			return
		}
		a, err := pref64.ParseAdvertisement(b)
		if err != nil || !from.IsLinkLocalUnicast() {
			continue
		}
		select {
		case w.heard <- heard{from, a}:
		case <-ctx.Done():
			return
		}
	}
}

// run does everything else.
func (w *watcher) run(ctx context.Context) {
	defer close(w.sets)
	if w.socket != nil {
		defer w.socket.close()
	}
	w.begin(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-w.heard:
			w.advertised(h, time.Now())
		case a := <-w.answers:
			w.answered(a, time.Now())
		case network := <-w.settings.Moves:
			w.moved(network, time.Now())
		case <-timer.C:
		}
		now := time.Now()
		w.due(ctx, now)
		w.tell(now)
		timer.Reset(time.Until(w.next(now)))
	}
}

// advertised takes an advertisement.
func (w *watcher) advertised(h heard, now time.Time) {
	w.known.Announced(h.from, h.said.Networks, now)
	w.known.Advertised(h.from, h.said.Options, now)
	w.known.Named(h.from, h.said.Resolvers, now)
	if len(h.said.Options) > 0 {
		w.solicitAt = time.Time{}
	}
}

// moved begins again in another network, with what its routers have said before the host had
// an address there.
func (w *watcher) moved(network netip.Prefix, now time.Time) {
	w.moves++
	w.known.Moved(network)
	w.failures, w.answeredOnce = 0, false
	w.begin(now)
}

// begin gives routers and name servers their time.
func (w *watcher) begin(now time.Time) {
	w.askAt = now
	if w.socket == nil {
		return
	}
	w.askAt, w.routersUntil = now.Add(w.settings.AdvertisementWait), now.Add(solicitationWait)
	if w.solicited, w.solicitAt = 0, now; w.known.Set(now).Source == pref64.SourceAdvertisement {
		w.solicitAt = time.Time{}
	}
}

// answered takes what name servers said.
func (w *watcher) answered(a asked, now time.Time) {
	w.asking = false
	switch {
	case a.moves != w.moves: // of another network
		return
	case a.err != nil:
		w.failures++
		w.askAt = now.Add(pref64.AskAfterFailures(w.failures))
	case len(a.answer.prefixes) > 0:
		w.failures = 0
		w.known.Resolved(a.answer.prefixes, now.Add(pref64.Keep(a.answer.ttl)))
		w.askAt = now.Add(pref64.AskAgain(a.answer.ttl))
	default:
		w.failures = 0
		w.known.Resolved(nil, now)
		w.askAt = now.Add(pref64.AskAfterNegative(a.answer.ttl))
	}
	w.answeredOnce = true
}

// due sends what it is time for.
func (w *watcher) due(ctx context.Context, now time.Time) {
	if !now.Before(w.routersUntil) {
		w.routersUntil = time.Time{}
	}
	if !w.solicitAt.IsZero() && !now.Before(w.solicitAt) {
		if err := w.socket.write(pref64.AppendSolicitation(nil), netip.Addr{}, packet.AllRouters); err != nil {
			w.log.Debug("no router could be asked", "error", err)
		}
		w.solicitAt = now.Add(solicitationWait)
		if w.solicited++; w.solicited == solicitations {
			w.solicitAt = time.Time{}
		}
	}
	if !w.asking && w.known.Set(now).Source != pref64.SourceAdvertisement {
		w.question(ctx, now)
	}
}

// question asks name servers when it is time, or when they are others than those that were asked.
func (w *watcher) question(ctx context.Context, now time.Time) {
	resolvers := w.resolvers(now)
	if w.answeredOnce && !slices.Equal(resolvers, w.askedOf) {
		w.failures, w.askAt = 0, w.askedAt.Add(leastBetween)
	}
	if now.Before(w.askAt) {
		return
	}
	w.asking, w.askedAt, w.askedOf = true, now, resolvers
	moves := w.moves
	go func() {
		a, err := w.ask(ctx, w.settings.Interface, resolvers)
		w.answers <- asked{a, err, moves} // there is room: one question at a time
	}()
}

// resolvers are the name servers to ask now. Those that the host has itself come last, for no
// one knows whether they are of this link (RFC 8880 section 7.1); but one that DHCPv6 has told
// may be the DNS64 where routers name another.
func (w *watcher) resolvers(now time.Time) (list []netip.AddrPort) {
	if len(w.settings.Resolvers) > 0 {
		return w.settings.Resolvers
	}
	for _, r := range w.known.Resolvers(now) {
		if r.IsLinkLocalUnicast() {
			r = r.WithZone(w.settings.Interface)
		}
		list = append(list, netip.AddrPortFrom(r, dnsPort))
	}
	if w.settings.Fallback == nil {
		return list
	}
	for _, at := range w.settings.Fallback() {
		if len(list) < pref64.MaxResolvers && !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	return list
}

// tell reports a set that differs from the last one.
func (w *watcher) tell(now time.Time) {
	set := w.known.Set(now)
	switch {
	case w.told == nil && len(set.Prefixes) == 0 && (!w.answeredOnce || !w.routersUntil.IsZero()):
		return // no one has had the time to say anything
	case w.told != nil && set.Equal(*w.told):
		return
	}
	w.told = &set
	w.log.Info("NAT64 prefixes", "prefixes", set.Prefixes, "source", set.Source)
	for {
		select {
		case w.sets <- set:
			return
		default:
		}
		select {
		case <-w.sets: // outdated
		default:
		}
	}
}

// next is when something is due.
func (w *watcher) next(now time.Time) time.Time {
	next := now.Add(time.Hour)
	for _, t := range []time.Time{w.solicitAt, w.known.Next(), w.routersUntil} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if w.asking || w.known.Set(now).Source == pref64.SourceAdvertisement {
		return next
	}
	if look := now.Add(lookAgain); w.settings.Fallback != nil && look.Before(next) {
		next = look
	}
	if w.askAt.Before(next) {
		next = w.askAt
	}
	return next
}
