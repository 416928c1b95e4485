// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/offer"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// call is the media of a call, with sockets on every path, so that a move waits for none. It
// is the call's [ua.Media].
type call struct {
	a       *Agent
	id      ua.CallID
	session *offer.Session
	stream  *media.Stream
	sockets map[int]*sockets // by paths
	hold    bool
	// Of the agent's clock.
	at    time.Time
	place int // in the queue, counted from 1; 0: it is not there
}

// sockets are those of RTP and RTCP on one path. The stream knows them by a slot, for paths
// are numbered without end.
type sockets struct {
	slot      int
	rtp, rtcp *net.UDPConn
	local     netip.AddrPort
}

// newCall makes the media of a call.
func (a *Agent) newCall() (*call, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	c := &call{a: a, sockets: map[int]*sockets{}}
	id, ok := a.choose()
	if !ok {
		return nil, ua.ErrNoPath
	}
	var err error
	c.session, err = offer.New(offer.Settings{
		ID: binary.BigEndian.Uint64(random[:]) >> 2, Origin: a.paths[id].Local.Addr(), Secure: a.set.Secure, Random: rand.Reader,
	})
	if err != nil {
		return nil, err
	}
	set := media.Settings{Name: token(), Latch: a.set.Latch}
	if a.set.Sound != nil {
		set.Source, set.Sink = a.set.Sound()
	}
	if c.stream, err = media.New(set, rand.Reader, time.Now()); err != nil {
		return nil, err
	}
	if err := c.openSockets(a.paths[id]); err != nil {
		c.close()
		return nil, err
	}
	for _, other := range a.preferred() {
		if other != id {
			_ = c.openSockets(a.paths[other]) // a call that has none there says so when it is asked for them
		}
	}
	return c, nil
}

// begin has the agent know the call by its number.
func (c *call) begin(id ua.CallID) {
	c.id = id
	c.a.calls[id] = c
	c.schedule()
}

// schedule has the agent's clock know when the media are due, from the beginning of the call to its
// end.
func (c *call) schedule() {
	if c.a.calls[c.id] == c {
		c.a.clock.set(c, c.stream.Next())
	}
}

func token() string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// tries bounds how often two ports beside each other are looked for.
const tries = 16

// openSockets opens RTP's and RTCP's on a path.
func (c *call) openSockets(p *path) error {
	slot := c.freeSlot()
	if slot < 0 {
		return errors.New("a call has too many addresses")
	}
	s := &sockets{slot: slot}
	err := c.a.ns.Do(func() error {
		for range tries {
			one, err := c.listen(p, 0)
			if err != nil {
				return err
			}
			// Whichever of a pair the kernel gave, RTP has the even one (RFC 3550 section 11).
			port := one.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			other, err := c.listen(p, port^1)
			if err != nil {
				_ = one.Close()
				continue
			}
			s.rtp, s.rtcp = one, other
			if port%2 == 1 {
				s.rtp, s.rtcp = other, one
			}
			s.local = netip.AddrPortFrom(p.Local.Addr(), port&^1)
			return nil
		}
		return fmt.Errorf("no two ports are free on %s", p.Local.Addr())
	})
	if err != nil {
		return err
	}
	c.sockets[p.ID] = s
	go c.receive(s.rtp, media.Socket(slot, false))
	go c.receive(s.rtcp, media.Socket(slot, true))
	return nil
}

func (c *call) listen(p *path, number uint16) (*net.UDPConn, error) {
	at := netip.AddrPortFrom(p.Local.Addr(), number).String()
	conn, err := (&net.ListenConfig{Control: boundTo(p.link, p.Local.Addr())}).ListenPacket(context.Background(), "udp", at)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

func (c *call) freeSlot() int {
	used := [media.MaxPaths]bool{}
	for _, s := range c.sockets {
		used[s.slot] = true
	}
	return slices.Index(used[:], false)
}

// receive reads media until the socket is closed.
func (c *call) receive(conn *net.UDPConn, socket int) {
	b := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		data, now := slices.Clone(b[:n]), time.Now()
		c.a.post(func() {
			c.stream.Handle(socket, from, data, now, &c.a.media)
			c.flush()
		})
	}
}

func (c *call) tick(now time.Time) {
	c.stream.Tick(now, &c.a.media)
	c.flush()
}

// flush sends what the stream put out, and passes on its events.
func (c *call) flush() {
	out := &c.a.media
	for _, d := range out.UDP {
		slot, control := media.PathOf(d.Socket)
		for _, s := range c.sockets {
			if s.slot != slot {
				continue
			}
			conn := s.rtp
			if control {
				conn = s.rtcp
			}
			_, _ = conn.WriteToUDPAddrPort(d.Payload, d.To)
		}
	}
	for _, v := range out.Events {
		c.a.tell(Event{Event: ua.Event{Call: c.id}, Media: &v, Time: time.Now()})
	}
	out.Reset()
	c.schedule()
}

// event has media follow the call.
func (c *call) event(v ua.Event, now time.Time) {
	switch v.Kind {
	case ua.Moving:
		c.stream.Mark(now)
		c.sendBy(v.Path, now)
	case ua.Established:
		c.sendBy(v.Path, now)
	case ua.MoveFailed:
		c.sendBy(v.From, now)
	case ua.Ended:
		delete(c.a.calls, c.id)
		c.stream.Bye(now, &c.a.media)
		c.flush()
		c.close()
	}
}

// sendBy sends media by a path, if it is there.
func (c *call) sendBy(id int, now time.Time) {
	if s := c.sockets[id]; s != nil {
		_ = c.stream.SendBy(s.slot, now)
		c.tick(now)
	}
}

func (c *call) closeSockets(id int) {
	if s := c.sockets[id]; s != nil {
		_ = s.rtp.Close()
		_ = s.rtcp.Close()
		delete(c.sockets, id)
	}
}

func (c *call) close() {
	c.a.clock.set(c, time.Time{})
	for id := range c.sockets {
		c.closeSockets(id)
	}
}

// local is what we have on a path.
func (c *call) local(id int) (offer.Local, error) {
	s := c.sockets[id]
	if s == nil {
		return offer.Local{}, errors.New("the call has no sockets on that address")
	}
	return offer.Local{RTP: s.local, RTCP: netip.AddrPortFrom(s.local.Addr(), s.local.Port()+1), Send: true, Receive: !c.hold}, nil
}

// Offer implements [ua.Media].
func (c *call) Offer(id int) ([]byte, error) {
	local, err := c.local(id)
	if err != nil {
		return nil, err
	}
	return c.session.Offer(local)
}

// Answer implements [ua.Media].
func (c *call) Answer(body []byte, id int) ([]byte, error) {
	local, err := c.local(id)
	if err != nil {
		return nil, err
	}
	if _, err := c.session.Offered(body); err != nil {
		return nil, err
	}
	answer, agreed, err := c.session.Answer(local)
	if err != nil {
		c.session.Withdraw()
		return nil, err
	}
	defer c.schedule()
	return answer, c.stream.Agree(agreed, time.Now())
}

// Accept implements [ua.Media].
func (c *call) Accept(answer []byte) error {
	agreed, err := c.session.Answered(answer)
	if err != nil {
		return err
	}
	defer c.schedule()
	return c.stream.Agree(agreed, time.Now())
}

// Withdraw implements [ua.Media].
func (c *call) Withdraw() { c.session.Withdraw() }

// Hold implements [ua.Media].
func (c *call) Hold(on bool) { c.hold = on }
