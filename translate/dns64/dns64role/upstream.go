// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

const (
	// rounds is how often all upstreams are asked, while none says a word.
	rounds = 2
	// silenceAgain is how soon the log tells again that an upstream is silent: clients
	// who ask for names of slow servers can make it seem so often.
	silenceAgain = time.Minute
)

// upstreams are the name servers to ask. They never change: a reload makes new ones.
type upstreams struct {
	log            *slog.Logger
	list           []*upstream
	each, together time.Duration
	mixedCase      bool

	mu     sync.Mutex // guards health, and said of the list
	health *dns64.Health
}

// upstream is one name server.
type upstream struct {
	at      netip.AddrPort
	trusted bool
	asked   atomic.Uint64
	failed  atomic.Uint64 // without an answer
	said    silence
}

// silence is what the log has been told of an upstream's.
type silence struct {
	at   time.Time // when it was told last
	open bool      // its end was not
}

// news reports whether the log is to be told how the upstream is.
func (s *silence) news(well bool, now time.Time) bool {
	if well {
		open := s.open
		s.open = false
		return open
	}
	if s.open || !s.at.IsZero() && now.Sub(s.at) < silenceAgain {
		return false
	}
	s.at, s.open = now, true
	return true
}

func newUpstreams(cfg *Settings, log *slog.Logger) *upstreams {
	u := &upstreams{
		log: log, each: cfg.UpstreamTimeout, together: cfg.QueryTimeout, mixedCase: cfg.MixedCase,
		health: dns64.NewHealth(len(cfg.Upstreams)),
	}
	for _, at := range cfg.Upstreams {
		u.list = append(u.list, &upstream{at: at, trusted: slices.Contains(cfg.Trusted, at)})
	}
	return u
}

// ask asks one upstream after the other until one knows. An error that a trusted one
// tells is the answer, since it may be about forged data; of others the next may know
// better.
func (u *upstreams) ask(ctx context.Context, a dns64.Ask) dns64.Result {
	ctx, cancel := context.WithTimeout(ctx, u.together)
	defer cancel()
	var last dns64.Result
	for range rounds {
		u.mu.Lock()
		order := u.health.Order()
		u.mu.Unlock()
		for _, i := range order {
			m := u.askOne(ctx, i, a)
			if ctx.Err() != nil && m == nil {
				return last
			}
			if m == nil {
				continue
			}
			last = dns64.Result{Msg: m, Trusted: u.list[i].trusted}
			if m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError || last.Trusted && m.Rcode == dns.RcodeServerFailure {
				return last
			}
		}
		if last.Msg != nil {
			return last
		}
	}
	return last
}

// askOne asks one upstream; nil is no answer.
func (u *upstreams) askOne(ctx context.Context, i int, a dns64.Ask) *dns.Msg {
	one := u.list[i]
	one.asked.Add(1)
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, u.each)
	m, err := exchange(within, one.at, a, u.mixedCase)
	cancel()
	if err != nil {
		one.failed.Add(1)
		hurried := ctx.Err() != nil && time.Since(begun) < u.each/2 // others left it little time
		// That no one waits any more is not the upstream's fault either.
		if !hurried && !errors.Is(ctx.Err(), context.Canceled) {
			u.report(i, false, err)
		}
		return nil
	}
	u.report(i, true, nil)
	if u.mixedCase {
		lower(m, a.Name)
	}
	return m
}

// report notes whether an upstream answered, and logs what changes by that, but not
// often.
func (u *upstreams) report(i int, answered bool, err error) {
	now := time.Now()
	u.mu.Lock()
	u.health.Report(i, answered, now)
	well := u.health.Well(i)
	news := u.list[i].said.news(well, now)
	u.mu.Unlock()
	switch {
	case !news:
	case well:
		u.log.Info("upstream answers again", "upstream", u.list[i].at)
	default:
		u.log.Warn("upstream does not answer: others are asked first until it does", "upstream", u.list[i].at, "error", err)
	}
}

// probe asks upstreams that do not answer for a sign of life, until ctx is done.
func (u *upstreams) probe(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	// Resolvers answer this one themselves (RFC 6303 section 4.2), so that a network
	// behind them that is down is not held against them.
	sign := dns64.Ask{Name: "1.0.0.127.in-addr.arpa.", Type: dns.TypePTR, Class: dns.ClassINET}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			u.mu.Lock()
			due := u.health.Probes(now)
			u.mu.Unlock()
			for _, i := range due {
				u.askOne(ctx, i, sign)
			}
		}
	}
}

// UpstreamStatus is the status of one upstream.
type UpstreamStatus struct {
	Address netip.AddrPort `json:"address"`
	// Trusted reports that its word about DNSSEC counts.
	Trusted bool `json:"trusted"`
	// Answers is false while it is asked last, because it was silent.
	Answers bool `json:"answers"`
	// Asked are the questions to it, Failed those that it did not answer.
	Asked  uint64 `json:"asked"`
	Failed uint64 `json:"failed"`
}

func (u *upstreams) status() []UpstreamStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []UpstreamStatus
	for i, one := range u.list {
		list = append(list, UpstreamStatus{
			Address: one.at, Trusted: one.trusted, Answers: u.health.Well(i),
			Asked: one.asked.Load(), Failed: one.failed.Load(),
		})
	}
	return list
}

func (u *upstreams) collect(emit func(role.Metric)) {
	well := 0.0
	for _, s := range u.status() {
		if s.Answers {
			well++
		}
		emit(role.Metric{
			Name: "upstream_questions_total", Kind: role.Counter, Help: "Questions to upstreams since the last change of their list.",
			Path: s.Address.String(), Value: float64(s.Asked),
		})
		emit(role.Metric{
			Name: "upstream_failures_total", Kind: role.Counter, Help: "Questions that an upstream did not answer, since the last change of their list.",
			Path: s.Address.String(), Value: float64(s.Failed),
		})
	}
	emit(role.Level("upstreams_answering", "Upstreams that answer.", well))
}
