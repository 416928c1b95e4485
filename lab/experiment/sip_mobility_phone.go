// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// sipWait bounds the wait for a telephone: RFC 3261's transactions end after 32 s.
const sipWait = 40 * time.Second

// sipPhone is the user agent on a node, a part of this process: the experiment needs its events.
// What it is measured by is read from captures.
type sipPhone struct {
	*agent.Agent
	stop context.CancelFunc
	done chan error
}

// phoneSettings are those of a telephone that takes every call, and knows the server's address.
func phoneSettings(aor string, server netip.Addr, latch bool) agent.Settings {
	u, err := message.ParseURI(aor)
	if err != nil {
		panic(err) // a mistake in this program
	}
	return agent.Settings{
		UA: ua.Settings{AOR: u, UserAgent: "isthmus"}, AutoAnswer: true, Latch: latch,
		Names: map[string]netip.Addr{"example.net": server},
		Sound: func() (media.Source, media.Sink) { return media.Numbered{}, nil },
	}
}

// terminalSettings are those of the terminal's telephone, which registers at the server.
func terminalSettings(server netip.Addr) agent.Settings {
	set := phoneSettings(sipUE, server, true)
	set.UA.Password, set.UA.Register = sipSecret, time.Hour
	return set
}

// startPhone starts a telephone on a node.
func startPhone(ctx context.Context, node *lab.Node, set agent.Settings) (*sipPhone, error) {
	loop.Hurry() // as isthmus sip ua does
	p := &sipPhone{done: make(chan error, 1)}
	if err := node.Do(func() (err error) { p.Agent, err = agent.New(set); return err }); err != nil {
		return nil, fmt.Errorf("the telephone on node %s: %w", node.Name(), err)
	}
	ctx, p.stop = context.WithCancel(ctx)
	go func() { p.done <- p.Run(ctx) }()
	return p, nil
}

// close ends the telephone, if there is one.
func (p *sipPhone) close() error {
	if p == nil {
		return nil
	}
	p.stop()
	return <-p.done
}

// forget drops the events that no one has waited for.
func (p *sipPhone) forget() {
	for {
		select {
		case <-p.Events():
		default:
			return
		}
	}
}

// await waits for the next event of a kind.
func (p *sipPhone) await(ctx context.Context, k ua.Kind) error {
	_, err := p.awaitEvent(ctx, k)
	return err
}

// awaitAll waits until there was an event of each kind.
func (p *sipPhone) awaitAll(ctx context.Context, kinds ...ua.Kind) error {
	for len(kinds) > 0 {
		v, err := p.awaitEvent(ctx, kinds...)
		if err != nil {
			return err
		}
		kinds = slices.DeleteFunc(kinds, func(k ua.Kind) bool { return k == v.Kind })
	}
	return nil
}

// awaitEvent waits for the next event of one of these kinds.
func (p *sipPhone) awaitEvent(ctx context.Context, kinds ...ua.Kind) (ua.Event, error) {
	late := time.After(sipWait)
	for {
		select {
		case v, ok := <-p.Events():
			switch {
			case !ok:
				return ua.Event{}, errors.New("the telephone has ended")
			case v.Media != nil:
			case slices.Contains(kinds, v.Kind):
				return v.Event, nil
			case v.Kind == ua.Ended || v.Kind == ua.MoveFailed:
				return v.Event, fmt.Errorf("%v: %d %s", v.Kind, v.Status, v.Reason)
			}
		case <-late:
			return ua.Event{}, fmt.Errorf("nothing is %v after %v", kinds, sipWait)
		case <-ctx.Done():
			return ua.Event{}, ctx.Err()
		}
	}
}

// endCall ends the one call, and waits until the other end knows.
func (p *sipPhone) endCall(ctx context.Context, other *sipPhone) error {
	s, err := p.State(ctx)
	if err == nil && len(s.Calls) != 1 {
		err = fmt.Errorf("the telephone has %d calls", len(s.Calls))
	}
	if err == nil {
		err = p.HangUp(ctx, s.Calls[0].ID)
	}
	if err != nil {
		return err
	}
	return errors.Join(other.await(ctx, ua.Ended), p.await(ctx, ua.Ended))
}

// awaitPaths waits until calls would go by an address, and so many others stand by.
func (p *sipPhone) awaitPaths(ctx context.Context, using netip.Addr, standby int) error {
	return poll(ctx, sipWait, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		s, err := p.State(ctx)
		return s.Path.Addr() == using && len(s.Standby) == standby, err
	})
}

// established waits until a call stands between these telephones, and each has heard so many packets.
func established(ctx context.Context, packets uint64, phones ...*sipPhone) error {
	for _, p := range phones {
		if err := p.await(ctx, ua.Established); err != nil {
			return err
		}
	}
	return awaitMedia(ctx, packets, phones...)
}

// errSeveralCalls tells that the one call is not the only one.
var errSeveralCalls = errors.New("the telephone has several calls")

// received is how many packets the one call has heard.
func (p *sipPhone) received(ctx context.Context) (uint64, error) {
	s, err := p.State(ctx)
	switch {
	case err != nil:
		return 0, err
	case len(s.Calls) > 1:
		return 0, errSeveralCalls
	case len(s.Calls) == 0:
		return 0, errors.New("the telephone has no call")
	}
	return s.Calls[0].Media.Received, nil
}

// awaitMedia waits until all have heard so many packets more.
func awaitMedia(ctx context.Context, more uint64, phones ...*sipPhone) error {
	until := make([]uint64, len(phones))
	for i, p := range phones {
		n, err := p.received(ctx)
		if err != nil {
			return err
		}
		until[i] = n + more
	}
	for i, p := range phones {
		err := poll(ctx, sipWait, flowGap, func(ctx context.Context) (bool, error) {
			n, err := p.received(ctx)
			return n >= until[i], err
		})
		if err != nil {
			return fmt.Errorf("media: %w", err)
		}
	}
	return nil
}
