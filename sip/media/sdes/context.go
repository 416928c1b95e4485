// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sdes

import (
	"errors"
	"fmt"

	"github.com/pion/rtp"
	"github.com/pion/srtp/v3"
)

// Overhead is how much longer protection makes a packet at most, without a master key
// identifier: the tag, and of RTCP the index.
const Overhead = 10 + 4

// replayWindow is how many packets late one may come: 20 s of speech, so that what an old
// path delivers after a move is taken (RFC 3711 section 3.3.2 asks for 64 at least).
const replayWindow = 1024

// maxControl is how many packets of RTCP a key protects (RFC 3711 section 9.2).
const maxControl = 1 << 31

// ErrExpired says that a key has protected as many packets as it may.
var ErrExpired = errors.New("the key has protected as many packets as it may")

// Context is one direction of a protected stream: the sender's or the receiver's. Its
// rollover counter lives as long as it does, whatever path packets take.
type Context struct {
	attribute   Attribute
	context     *srtp.Context
	header      rtp.Header // for the next packet
	data, calls uint64     // packets of RTP and RTCP
}

// NewContext makes a context of an attribute. It is either for protecting or for opening.
func NewContext(a Attribute) (*Context, error) {
	if !a.Key.Valid() {
		return nil, errors.New("SRTP needs a key")
	}
	options := []srtp.ContextOption{srtp.SRTPReplayProtection(replayWindow), srtp.SRTCPReplayProtection(64)}
	if mki := a.mki(); mki != nil {
		options = append(options, srtp.MasterKeyIndicator(mki))
	}
	c, err := srtp.CreateContext(a.Key.secret()[:keyLen], a.Key.secret()[keyLen:], a.Suite.profile(), options...)
	if err != nil {
		return nil, fmt.Errorf("cannot use a key of %s: %w", a.Suite, err)
	}
	return &Context{attribute: a, context: c}, nil
}

// Attribute is what the context was made of.
func (c *Context) Attribute() Attribute { return c.attribute }

// Overhead is how much longer protection makes a packet at most.
func (c *Context) Overhead() int { return Overhead + c.attribute.MKILen }

// expired reports whether the lifetime of the key is over.
func (c *Context) expired(packets, greatest uint64) bool {
	if c.attribute.Lifetime != 0 {
		greatest = min(greatest, c.attribute.Lifetime)
	}
	return packets >= greatest
}

// Protect puts a packet of RTP, protected, into dst, which should have room for it and
// [Context.Overhead].
func (c *Context) Protect(dst, packet []byte) ([]byte, error) {
	if c.expired(c.data, maxLifetime) {
		return nil, ErrExpired
	}
	c.data++
	return c.context.EncryptRTP(dst, packet, &c.header)
}

// Open puts a packet of RTP, opened, into dst, which may be the packet itself. What is not
// authentic, or has been there, is an error.
func (c *Context) Open(dst, packet []byte) ([]byte, error) {
	if c.expired(c.data, maxLifetime) {
		return nil, ErrExpired
	}
	opened, err := c.context.DecryptRTP(dst, packet, &c.header)
	if err == nil {
		c.data++
	}
	return opened, err
}

// ProtectControl is [Context.Protect] for RTCP.
func (c *Context) ProtectControl(dst, packet []byte) ([]byte, error) {
	if c.expired(c.calls, maxControl) {
		return nil, ErrExpired
	}
	c.calls++
	return c.context.EncryptRTCP(dst, packet, nil)
}

// OpenControl is [Context.Open] for RTCP.
func (c *Context) OpenControl(dst, packet []byte) ([]byte, error) {
	if c.expired(c.calls, maxControl) {
		return nil, ErrExpired
	}
	opened, err := c.context.DecryptRTCP(dst, packet, nil)
	if err == nil {
		c.calls++
	}
	return opened, err
}
