// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const (
	maxMessage = 65535
	// The last word is said several times, since no one answers it.
	lastWords     = 3
	lastWordsTime = 100 * time.Millisecond
	// maxWithdrawn bounds what is remembered of prefixes that came and went.
	maxWithdrawn = 16
)

var (
	// newsLimit bounds what the log hears of other routers, of which a hostile neighbour can
	// feign any number.
	newsLimit = ratelimit.Every(time.Minute, 10)
	errGone   = errors.New("the interface has gone, or was made again")
)

// AnnounceSettings are what an [Announcer] needs to know.
type AnnounceSettings struct {
	// Interface is where the hosts are.
	Interface string
	// Prefixes are those to announce, which are checked by RFC 6052.
	Prefixes []netip.Prefix
	// Interval is the longest time between two advertisements; 0 is ten minutes.
	Interval time.Duration
	// Lifetime is how long hosts use a prefix without hearing of it; 0 is three
	// intervals (RFC 8781 section 4.1).
	Lifetime time.Duration
}

// Announcer sends Router Advertisements with the prefixes of a NAT64 and nothing else
// (RFC 8781), beside those of the router that the hosts have. They come from a
// link-local address of their own, which is an anycast address of the interface while it
// runs: hosts forget a default router that says from its own address that it is none (RFC
// 4861 section 6.3.4), and the router may be this very host, whose daemon would take a
// further unicast address for its own (docs/decisions/0016-pref64-source.md).
type Announcer struct {
	log    *slog.Logger
	link   string
	wake   chan struct{} // settings or hosts want an advertisement sooner
	source netip.Addr    // set by Run

	mu          sync.Mutex // guards what follows
	options     []pref64.Option
	withdrawn   []pref64.Option // no longer announced
	farewells   int             // how often withdrawn are still to be told
	interval    time.Duration
	schedule    *pref64.Schedule // nil unless Run is
	running     bool             // the interface carries packets
	consistency pref64.Consistency
	news        ratelimit.Bucket

	sent, failed, solicited, inconsistent, malformed atomic.Uint64
}

// NewAnnouncer checks the settings and changes nothing on the host.
func NewAnnouncer(s AnnounceSettings, log *slog.Logger) (*Announcer, error) {
	a := &Announcer{log: log.With("interface", s.Interface), link: s.Interface, wake: make(chan struct{}, 1)}
	return a, a.Set(s)
}

// Set changes prefixes, interval and lifetime, also while the announcer runs. Prefixes
// that are no longer among them are withdrawn. The interface stays.
func (a *Announcer) Set(s AnnounceSettings) error {
	if s.Interval == 0 {
		s.Interval = pref64.DefaultInterval
	}
	if s.Interval < pref64.MinInterval || s.Interval > pref64.MaxInterval {
		return fmt.Errorf("prefixes cannot be announced every %v; choose %v to %v", s.Interval, pref64.MinInterval, pref64.MaxInterval)
	}
	if s.Lifetime == 0 {
		s.Lifetime = pref64.DefaultLifetime(s.Interval)
	}
	var options []pref64.Option
	for _, p := range s.Prefixes {
		if _, err := translate.NewPrefix(p); err != nil {
			return err
		}
		options = append(options, pref64.Option{Prefix: p, Lifetime: s.Lifetime})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if fresh := gone(a.options, options); len(fresh) > 0 {
		a.withdrawn, a.farewells = append(a.withdrawn, fresh...), lastWords
	}
	a.withdrawn = gone(a.withdrawn, options) // not what is back
	a.withdrawn = a.withdrawn[max(len(a.withdrawn)-maxWithdrawn, 0):]
	a.options, a.interval = options, s.Interval
	a.consistency.Own(options)
	if a.schedule != nil {
		a.schedule.Soon(a.interval, time.Now())
		a.hurry()
	}
	return nil
}

// gone are the options of the first list that the second lacks, withdrawn, each once.
func gone(before, now []pref64.Option) (withdrawn []pref64.Option) {
	for _, o := range before {
		same := func(n pref64.Option) bool { return n.Prefix == o.Prefix }
		if !slices.ContainsFunc(now, same) && !slices.ContainsFunc(withdrawn, same) {
			withdrawn = append(withdrawn, pref64.Option{Prefix: o.Prefix})
		}
	}
	return withdrawn
}

func newRandom() *rand.Rand {
	var seed [16]byte
	_, _ = crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
}

// hurry has the loop look at the schedule again.
func (a *Announcer) hurry() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run announces until ctx is done, then withdraws the prefixes, unless a successor goes
// on (see [role.Leaving]). It opens its sockets in the network namespace of the calling
// thread.
func (a *Announcer) Run(ctx context.Context) error {
	s, err := listen(a.link, []netip.Addr{packet.AllRouters}, ipv6.ICMPTypeRouterSolicitation, ipv6.ICMPTypeRouterAdvertisement)
	if err != nil {
		return err
	}
	defer s.close()
	a.source = sourceOf(s.link)
	if err := s.assume(a.source); err != nil {
		return err
	}
	a.mu.Lock()
	a.schedule = pref64.NewSchedule(a.interval, newRandom(), time.Now())
	a.mu.Unlock()
	a.log.Info("announcing NAT64 prefixes in router advertisements", "from", a.source)
	reading := make(chan error, 1)
	go func() { reading <- a.read(s) }()
	err = a.sendUntil(ctx, s, reading)
	if err == nil && !role.Leaving(ctx) {
		a.withdraw(s)
	}
	_ = s.close()
	<-reading
	return err
}

// sendUntil sends by the schedule until ctx is done, nothing can be received, or the
// interface is another.
func (a *Announcer) sendUntil(ctx context.Context, s *socket, reading chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes, err := port.Watch(watching)
	if err != nil {
		return err
	}
	a.look(s.link)
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-changes:
			if change.Kind != port.LinkChanged && change.Kind != port.Overrun {
				continue
			}
			if !a.look(s.link) {
				return errGone
			}
		case err := <-reading:
			reading <- nil
			return fmt.Errorf("cannot receive router messages on %s: %w", a.link, err)
		case <-a.wake:
		case <-timer.C:
			a.advertise(s)
		}
		a.mu.Lock()
		timer.Reset(time.Until(a.schedule.Next()))
		a.mu.Unlock()
	}
}

// look reports whether the interface is still the one that the socket listens on: one that is
// removed and made again has no more than its name. Where it has begun to carry packets, hosts
// are told soon and several times (RFC 4861 section 6.2.4).
func (a *Announcer) look(link *net.Interface) (same bool) {
	now, err := net.InterfaceByIndex(link.Index)
	if err != nil || now.Name != a.link {
		return false
	}
	const on = net.FlagUp | net.FlagRunning
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.running
	if a.running = now.Flags&on == on; a.running && !before {
		a.schedule.Soon(a.interval, time.Now())
	}
	return true
}

// advertise sends what is to be said now, if it is time.
func (a *Announcer) advertise(s *socket) {
	now := time.Now()
	if options := a.due(now); len(options) > 0 {
		a.said(a.send(s, options), now)
	}
}

// due is what is to be said now; none if it is not time. It counts as said already: while it is
// sent no lock is held, and what is set meanwhile must not be taken for it.
func (a *Announcer) due(now time.Time) []pref64.Option {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.schedule.Next()) {
		return nil
	}
	a.schedule.Sent(now)
	a.farewells = max(a.farewells-1, 0)
	return append(slices.Clone(a.options), a.withdrawn...)
}

// said takes whether that was sent.
func (a *Announcer) said(sent bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !sent:
		a.schedule.Failed(now)
		if len(a.withdrawn) > 0 {
			a.farewells = min(a.farewells+1, lastWords)
		}
	case a.farewells == 0:
		a.withdrawn = nil
	}
}

// send sends one advertisement, and reports whether it could. Its source is assumed again,
// for the kernel takes it away, or the route to it, when the interface goes down.
func (a *Announcer) send(s *socket, options []pref64.Option) bool {
	message, err := pref64.AppendAdvertisement(nil, options)
	if err == nil {
		err = s.assume(a.source)
	}
	if err == nil {
		err = s.write(message, a.source, packet.AllNodes)
	}
	if err != nil {
		a.failed.Add(1)
		return false
	}
	a.sent.Add(1)
	return true
}

// withdraw tells hosts to use the prefixes no more.
func (a *Announcer) withdraw(s *socket) {
	a.mu.Lock()
	options := gone(append(slices.Clone(a.options), a.withdrawn...), nil)
	a.mu.Unlock()
	if len(options) == 0 {
		return
	}
	for i := range lastWords {
		if i > 0 {
			time.Sleep(lastWordsTime)
		}
		a.send(s, options)
	}
}

// read takes what hosts and other routers say until the socket is closed.
func (a *Announcer) read(s *socket) error {
	buffer := make([]byte, maxMessage)
	for {
		b, from, err := s.read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		a.hear(b, from)
	}
}

// hear takes one message.
func (a *Announcer) hear(b []byte, from netip.Addr) {
	now := time.Now()
	if pref64.IsSolicitation(b) {
		a.solicited.Add(1)
		a.mu.Lock()
		a.schedule.Solicited(now)
		a.mu.Unlock()
		a.hurry()
		return
	}
	other, err := pref64.ParseAdvertisement(b)
	if err != nil || !from.IsLinkLocalUnicast() { // RFC 4861 section 6.1.2
		a.malformed.Add(1)
		return
	}
	if from == a.source {
		return
	}
	a.mu.Lock()
	differs, news := a.consistency.Heard(from, other.Options)
	news = news && a.news.Allow(newsLimit, now)
	a.mu.Unlock()
	if differs {
		a.inconsistent.Add(1)
	}
	switch {
	case differs && news:
		a.log.Warn("another router announces other NAT64 prefixes: one of the two is wrongly set up", "router", from, "says", other.Options)
	case news:
		a.log.Info("another router contradicts this one about NAT64 prefixes no longer", "router", from)
	}
}

// sourceOf makes a link-local address of the interface's hardware address, the same each
// time, so that a successor goes on with it.
func sourceOf(link *net.Interface) netip.Addr {
	sum := sha256.Sum256(append([]byte("isthmus pref64 anycast "), link.HardwareAddr...))
	raw := [16]byte{0xfe, 0x80}
	copy(raw[8:], sum[:8])
	return netip.AddrFrom16(raw)
}

// Collect reports what the announcer has done, with the interface as the path.
func (a *Announcer) Collect(emit func(role.Metric)) {
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"pref64_sent_total", "Router advertisements with NAT64 prefixes sent.", a.sent.Load()},
		{"pref64_failed_total", "Router advertisements that could not be sent.", a.failed.Load()},
		{"pref64_solicited_total", "Router solicitations heard.", a.solicited.Load()},
		{"pref64_inconsistent_total", "Advertisements of other routers with other NAT64 prefixes.", a.inconsistent.Load()},
		{"pref64_malformed_total", "Advertisements that could not be read.", a.malformed.Load()},
	} {
		emit(role.Metric{Name: c.name, Kind: role.Counter, Help: c.help, Path: a.link, Value: float64(c.value)})
	}
}
