// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/offer"
)

// Settings of a [Call].
type Settings struct {
	// Stream has source, sink and guards. Its name may be left out: then it is random.
	Stream media.Settings
	// Origin is the address that session descriptions have in o=, which stays.
	Origin netip.Addr
	// Laws, Secure and KeepKeys are those of [offer.Settings].
	Laws             []g711.Law
	Secure, KeepKeys bool
	// OnEvent is called for what happens, one thing after the other. It may call the call, and close it.
	OnEvent func(media.Event)
	// Toward returns the open path by which the routes lead to media of the other family than signalling's; not ok, or nil:
	// an offer of these is refused. It is called within the methods that describe the stream or move it, and must not call
	// the call.
	Toward func(to netip.Addr) (path int, ok bool)
}

// Local is where the sockets of a path are.
type Local struct {
	Address netip.Addr
	// Device, if set, is the interface that media of the path keeps to.
	Device string
}

// Call is the media of one call. Its methods may be called by several goroutines.
type Call struct {
	host  *Host
	clock *clock
	tell  func(media.Event)
	turn  turn // of the clock, under its lock

	mu      sync.Mutex
	stream  *media.Stream
	session *offer.Session
	held    bool
	toward  func(netip.Addr) (int, bool)
	apart   netip.Addr            // of the peer's media, if they are of another family than the path of signalling
	aside   *pair                 // by which they go then
	paths   [media.MaxPaths]*pair // by the numbers that the stream has for them
	out     media.Output
	closed  bool
	unsent  []unsent // what waits for a way, the oldest first
	events  []media.Event
	telling bool

	readers sync.WaitGroup
	lost    atomic.Uint64
	missed  atomic.Uint64
}

// maxEvents is how many events wait for OnEvent.
const maxEvents = 256

// NewCall makes the media of a call. It has no paths yet.
func (h *Host) NewCall(s Settings) (*Call, error) {
	if s.Stream.Name == "" {
		var name [12]byte // RFC 7022 section 4.2: at least 96 bits, for this call alone
		_, _ = rand.Read(name[:])
		s.Stream.Name = base64.StdEncoding.EncodeToString(name[:])
	}
	s.Stream.RequireKeys = s.Stream.RequireKeys || s.Secure
	stream, err := media.New(s.Stream, rand.Reader, time.Now())
	if err != nil {
		return nil, err
	}
	session, err := offer.New(offer.Settings{
		ID: uint64(randomNumber()), Origin: s.Origin, Laws: s.Laws, Secure: s.Secure, KeepKeys: s.KeepKeys, Random: rand.Reader,
	})
	if err != nil {
		return nil, err
	}
	if s.OnEvent == nil {
		s.OnEvent = func(media.Event) {}
	}
	k := h.clocks[h.next.Add(1)%uint32(len(h.clocks))]
	c := &Call{host: h, clock: k, tell: s.OnEvent, toward: s.Toward, stream: stream, session: session}
	c.turn.call = c
	return c, nil
}

func randomNumber() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint32(b[:])
}

// ErrClosed says that the call is over.
var ErrClosed = errors.New("the call's media is closed")

// Open opens the sockets of a path, which takes what comes from then on. The number is the
// caller's, for a path that is not open.
func (c *Call) Open(path int, l Local) error {
	p, err := openPair(l, c.host.config.LowPort, c.host.config.HighPort, randomNumber())
	if err != nil {
		return err
	}
	p.path = path
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.add(p); err != nil {
		p.close()
		return err
	}
	return nil
}

// add gives a path a place among the stream's.
func (c *Call) add(p *pair) error {
	if c.closed {
		return ErrClosed
	}
	if c.find(p.path) != nil {
		return fmt.Errorf("path %d is open already", p.path)
	}
	p.slot = slices.Index(c.paths[:], nil)
	if p.slot < 0 {
		return fmt.Errorf("a call has %d paths at most", media.MaxPaths)
	}
	if p.slot == c.stream.Path() { // of a path that is closed: a move from it to this one is to be a move
		if more := slices.Index(c.paths[p.slot+1:], nil); more >= 0 {
			p.slot += 1 + more
		}
	}
	c.paths[p.slot] = p
	c.readers.Go(func() { c.read(p, p.rtp, media.Socket(p.slot, false)) })
	c.readers.Go(func() { c.read(p, p.rtcp, media.Socket(p.slot, true)) })
	return nil
}

// find returns a path that is open, or nil.
func (c *Call) find(path int) *pair {
	for _, p := range c.paths {
		if p != nil && p.path == path {
			return p
		}
	}
	return nil
}

// ClosePath closes the sockets of a path, if it is open.
func (c *Call) ClosePath(path int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.find(path); p != nil {
		c.remove(p)
	}
}

func (c *Call) remove(p *pair) {
	p.close()
	c.paths[p.slot] = nil
}

// At is where a path takes media; zero: it is not open.
func (c *Call) At(path int) netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.find(path); p != nil {
		return p.rtp.local
	}
	return netip.AddrPort{}
}

// Move sends by another path from now on, and marks the time for [media.Stream.Handoff].
func (c *Call) Move(path int) error { return c.sendBy(path, true) }

// SendBy sends by a path from now on: by the one before, where a move has failed.
func (c *Call) SendBy(path int) error { return c.sendBy(path, false) }

func (c *Call) sendBy(path int, mark bool) error {
	c.mu.Lock()
	defer c.report()
	defer c.mu.Unlock()
	p := c.carrier(path, mark)
	if p == nil {
		return fmt.Errorf("path %d is not open", path)
	}
	now := time.Now()
	if mark {
		c.stream.Mark(now)
	}
	c.sendAgain(p, c.stream.Remote())
	err := c.stream.SendBy(p.slot, now)
	c.flush()
	return err
}

// Do lets a function use the stream. It must not wait, nor call the call.
func (c *Call) Do(f func(s *media.Stream, now time.Time, out *media.Output)) {
	c.mu.Lock()
	now := time.Now()
	f(c.stream, now, &c.out)
	c.flush()
	c.mu.Unlock()
	c.report()
}

// Close says goodbye to the peer, and closes all sockets.
func (c *Call) Close() {
	c.Do(func(s *media.Stream, now time.Time, out *media.Output) {
		if !c.closed {
			s.Bye(now, out)
		}
	})
	c.mu.Lock()
	c.closed = true
	for _, p := range c.paths {
		if p != nil {
			c.remove(p)
		}
	}
	c.clock.schedule(c, time.Time{})
	telling := c.telling
	c.mu.Unlock()
	if !telling { // else OnEvent may have called this, and a reader OnEvent
		c.readers.Wait()
	}
}

// Unsent is how many packets no socket took: the address was gone for too long, or the device is full.
func (c *Call) Unsent() uint64 { return c.lost.Load() }

// Missed is how many events were dropped since too many waited for OnEvent.
func (c *Call) Missed() uint64 { return c.missed.Load() }

// tick does what is due.
func (c *Call) tick(now time.Time) {
	c.mu.Lock()
	if !c.closed {
		c.stream.Tick(now, &c.out)
		c.flush()
	}
	c.mu.Unlock()
	c.report()
}

// read takes what comes to a socket of a path until that is closed.
func (c *Call) read(p *pair, s *socket, number int) {
	var b [maxDatagram]byte
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(b[:])
		c.mu.Lock()
		if c.paths[p.slot] != p {
			c.mu.Unlock()
			return
		}
		if err == nil {
			c.stream.Handle(number, from, b[:n], time.Now(), &c.out)
			c.flush()
		}
		c.mu.Unlock()
		c.report()
	}
}

// flush sends what the stream has put out, keeps its events, and says when it is due again.
func (c *Call) flush() {
	for _, d := range c.out.UDP {
		slot, control := media.PathOf(d.Socket)
		c.send(slot, control, d.To, d.Payload)
	}
	for _, e := range c.out.Events {
		if len(c.events) == maxEvents {
			c.missed.Add(1)
			continue
		}
		if p := c.slot(e.Path); p != nil {
			e.Path = p.path
		}
		c.events = append(c.events, e)
	}
	c.out.Reset()
	if !c.closed {
		c.clock.schedule(c, c.stream.Next())
	}
}

// slot is the path of a number of the stream's, if it is open.
func (c *Call) slot(n int) *pair {
	if n < 0 {
		return nil
	}
	return c.paths[n]
}

// report tells events, one after the other, without the lock.
func (c *Call) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.telling {
		return // whoever does tells these, too
	}
	c.telling = true
	for len(c.events) > 0 {
		e := c.events[0]
		c.events = c.events[1:]
		c.mu.Unlock()
		c.tell(e)
		c.mu.Lock()
	}
	c.events, c.telling = c.events[:0], false
}
