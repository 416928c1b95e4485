// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/mediaio"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// call is a call with its media, which have sockets on every path, so that a move waits for none.
type call struct {
	*mediaio.Call
	a    *Agent
	sink media.Sink
	id   atomic.Int64 // the [ua.CallID]; the sockets' readers tell events by it
}

// newCall makes the media of a call.
func (a *Agent) newCall() (*call, error) {
	id, ok := a.choose()
	if !ok {
		return nil, ua.ErrNoPath
	}
	c := &call{a: a}
	set := mediaio.Settings{
		Stream: media.Settings{Latch: a.set.Latch}, Origin: a.paths[id].Local.Addr(), Secure: a.set.Secure, OnEvent: c.tell, Toward: a.mediaToward,
	}
	if a.set.Sound != nil {
		set.Stream.Source, set.Stream.Sink = a.set.Sound()
		c.sink = set.Stream.Sink
	}
	var err error
	if c.Call, err = a.media.NewCall(set); err != nil {
		c.closeSink()
		return nil, err
	}
	if err := c.open(a.paths[id]); err != nil {
		c.Close()
		return nil, err
	}
	for _, other := range a.preferred() {
		if other != id {
			_ = c.open(a.paths[other]) // a call that has none there says so when it is asked for them
		}
	}
	return c, nil
}

// mediaToward returns the path of media whose family is not that of signalling. To a socket that is bound to a link the
// kernel lets any address of IPv4 be one of that link, so there must be a route that any socket could take.
func (a *Agent) mediaToward(to netip.Addr) (int, bool) {
	if _, err := a.host.Egress(to); err != nil && to.Is4() {
		return 0, false
	}
	return a.toward(to, a.preferred())
}

// Close ends the media, and closes what took them, if that is an [io.Closer]. Whoever made it knows what became of it.
func (c *call) Close() {
	c.Call.Close()
	c.closeSink()
}

func (c *call) closeSink() {
	if sink, ok := c.sink.(io.Closer); ok {
		_ = sink.Close()
	}
}

// open opens the sockets of media on a path.
func (c *call) open(p *path) error {
	return c.a.ns.Do(func() error {
		return c.Open(p.ID, mediaio.Local{Address: p.Local.Addr(), Device: boundTo(p.link, p.Local.Addr())})
	})
}

// begin has the agent know the call by its number.
func (c *call) begin(id ua.CallID) {
	c.id.Store(int64(id))
	c.a.calls[id] = c
}

// tell passes on what has happened to the media.
func (c *call) tell(v media.Event) {
	c.a.tell(Event{Event: ua.Event{Call: ua.CallID(c.id.Load())}, Media: &v, Time: time.Now()})
}

// event has media follow the call. A path that is no more needs no word: the next one comes by a move.
func (c *call) event(v ua.Event) {
	switch v.Kind {
	case ua.Moving:
		_ = c.Move(v.Path)
	case ua.Established:
		_ = c.SendBy(v.Path)
	case ua.MoveFailed:
		_ = c.SendBy(v.From)
	case ua.Ended:
		delete(c.a.calls, v.Call)
		c.Close()
	}
}

// state adds to what the engine knows of the call what its media do.
func (c *call) state(of ua.CallInfo) CallState {
	s := CallState{CallInfo: of, Unsent: c.Unsent()}
	c.Do(func(stream *media.Stream, now time.Time, _ *media.Output) {
		s.Media, s.Handoff = stream.Stats(), stream.Handoff(now)
	})
	return s
}

// press sends digits.
func (c *call) press(digits string) (err error) {
	c.Do(func(stream *media.Stream, _ time.Time, _ *media.Output) { err = stream.Press(digits) })
	return err
}
