// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Misdeed is something that a good SGSN does not do, to try what a GGSN makes of it.
type Misdeed string

// Misdeeds.
const (
	// MisdeedRestart tells another restart counter from now on, and at once.
	MisdeedRestart Misdeed = "restart"
	// MisdeedLose loses messages of GGSNs, so that they, or we, have to repeat.
	MisdeedLose Misdeed = "lose"
	// MisdeedDuplicate sends requests twice.
	MisdeedDuplicate Misdeed = "duplicate"
	// MisdeedDuplicateOther sends a second request with the sequence number of the first, and
	// other octets.
	MisdeedDuplicateOther Misdeed = "duplicate-other"
	// MisdeedMalformed sends requests about a context that cannot be read, each in another way.
	MisdeedMalformed Misdeed = "malformed"
	// MisdeedStrayUser sends user packets by tunnels that are not.
	MisdeedStrayUser Misdeed = "stray-user"
	// MisdeedStrayControl sends requests about contexts that are not.
	MisdeedStrayControl Misdeed = "stray-control"
	// MisdeedVersion sends requests of a version that is not.
	MisdeedVersion Misdeed = "version"
)

// Misdeeds are all of them.
func Misdeeds() []Misdeed {
	return []Misdeed{MisdeedRestart, MisdeedLose, MisdeedDuplicate, MisdeedDuplicateOther, MisdeedMalformed, MisdeedStrayUser, MisdeedStrayControl, MisdeedVersion}
}

// misdeeds are what is still to be done.
type misdeeds struct{ lose, double, doubleOther int }

// loses reports whether the message that has come is lost.
func (d *misdeeds) loses() bool {
	lost := d.lose > 0
	if lost {
		d.lose--
	}
	return lost
}

// maxStrays bounds what one order sends at once.
const maxStrays = 10_000

// Misbehave does a misdeed so many times: to the GGSN of a context at once, or with what is
// sent and received next.
func (e *Engine) Misbehave(key gtp.TID, what Misdeed, times int, now time.Time, out *Output) error {
	times = min(max(times, 1), maxStrays)
	switch what {
	case MisdeedLose:
		e.misdeeds.lose += times
		return nil
	case MisdeedDuplicate:
		e.misdeeds.double += times
		return nil
	case MisdeedDuplicateOther:
		e.misdeeds.doubleOther += times
		return nil
	}
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case c.state == Opening:
		return ErrBusy
	case what == MisdeedRestart:
		e.set.Recovery += uint8(times)
		return e.Update(key, gtp.QoS{}, now, out)
	}
	for i := range times {
		switch what {
		case MisdeedMalformed:
			e.sendOctets(c, malformed(e.plausible(c), i), out)
		case MisdeedStrayUser:
			e.strayUser(c, now, out)
		case MisdeedStrayControl:
			e.sendOctets(c, e.stray(c), out)
		case MisdeedVersion:
			b := e.plausible(c)
			b[0] = b[0]&^0xe0 | byte(2+i%6)<<5
			e.sendOctets(c, b, out)
		}
	}
	return nil
}

// doubled sends a request a second time.
func (e *Engine) doubled(r *request, out *Output) {
	if e.misdeeds.double > 0 {
		e.misdeeds.double--
		out.SendUDP(r.key.socket, r.to(), out.Copy(r.octets))
	}
	if e.misdeeds.doubleOther > 0 && r.kind != gtp.TypeEchoRequest {
		e.misdeeds.doubleOther--
		b := append(out.Alloc(len(r.octets)+5), r.octets...)
		b = gtp.AppendElement(b, gtp.ElementPrivateExtension, []byte{0x28, 0xaf})
		out.SendUDP(r.key.socket, r.to(), fixLength(b, r.path.key.plane.version()))
	}
}

// fixLength writes the length field of a message that was changed.
func fixLength(b []byte, v gtp.Version) []byte {
	head := 8
	if v == gtp.V0 {
		head = 20
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-head))
	return b
}

// sendOctets sends what is no request of the engine to the GGSN of a context.
func (e *Engine) sendOctets(c *PDPContext, b []byte, out *Output) {
	p := c.session.path
	to := request{key: requestKey{peer: p.key.peer}, port: p.key.plane.Port()}
	out.SendUDP(Socket(p.key.local, p.key.plane), to.to(), out.Copy(b))
}

// plausible is an update of the context with nothing wrong.
func (e *Engine) plausible(c *PDPContext) []byte {
	s := c.session
	h := s.header(c)
	h.HasSequence, h.Sequence = true, e.nextSequence()
	own := e.set.Addresses[c.local]
	m := gtp.UpdateRequest{
		NSAPI: c.key.NSAPI(), TEIDData: gtp.Some(c.data), TEIDControl: gtp.Some(s.control),
		AddressControl: gtp.Some(own), AddressUser: gtp.Some(own), QoS: gtp.Some(c.qos),
	}
	if h.Version == gtp.V0 {
		m.NSAPI = 0
	}
	b, err := e.codec.Append(e.scratch[:0], h, &m)
	if err != nil {
		e.refused(err)
	}
	return b
}

// malformed spoils a message in one of several ways.
func malformed(b []byte, way int) []byte {
	v := gtp.Version(b[0] >> 5)
	elements := 12
	if v == gtp.V0 {
		elements = 20
	}
	switch way % 7 {
	case 0: // it ends inside its last element
		return fixLength(b[:len(b)-1], v)
	case 1: // the length field says more than there is
		binary.BigEndian.PutUint16(b[2:], binary.BigEndian.Uint16(b[2:])+1)
		return b
	case 2: // no elements at all
		return fixLength(b[:elements], v)
	case 3: // an element of unknown fixed length comes first
		b[elements] = 100
		return b
	case 4: // a second element of the lowest type behind the highest
		return fixLength(append(b, byte(gtp.ElementRecovery), 1), v)
	case 5: // no message has this type
		b[1] = 127
		return b
	}
	return b[:elements/2] // it ends inside the header
}

// stray is a request to delete a context that is not.
func (e *Engine) stray(c *PDPContext) []byte {
	h := c.session.header(c)
	h.HasSequence, h.Sequence = true, e.nextSequence()
	m := gtp.DeleteRequest{}
	if h.Version == gtp.V0 {
		h.FlowLabel = uint16(e.label())
		h.TID[1] ^= 0x11
	} else {
		h.TEID = uint32(e.random.Uint64())
		m.NSAPI, m.Teardown = c.key.NSAPI(), gtp.Some(true)
	}
	b, err := e.codec.Append(e.scratch[:0], h, &m)
	if err != nil {
		e.refused(err)
	}
	return b
}

// strayUser sends a user packet by a tunnel that is not.
func (e *Engine) strayUser(c *PDPContext, now time.Time, out *Output) {
	lost := *c
	lost.counts = Traffic{}
	if lost.remoteData = uint32(e.random.Uint64()); c.session.version() == gtp.V0 {
		lost.key[1] ^= 0x11
	}
	lost.state = Open
	packet := [20]byte{0: 0x45, 3: 20, 8: 64, 9: 59}
	e.encapsulate(&lost, packet[:], now, out)
}
