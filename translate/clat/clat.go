// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package clat is the engine of a customer-side translator (CLAT) of 464XLAT (RFC
// 6877): programs that know IPv4 alone work on a host or a small network that has IPv6
// alone, with a NAT64 somewhere beyond. IPv4 packets become IPv6 packets statelessly
// (RFC 7915), from an IPv6 address of our own to the NAT64's prefix; of ICMP messages in
// fragments alone it remembers something, for their checksum.
//
// That IPv6 address is one that the host's own stack does not have. The engine claims it
// on the link, by duplicate address detection, and answers for it, so that no route, no
// rule of a firewall and no forwarding of the host's is needed.
//
//house:engine
package clat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/siit"
)

// Addresses of the translator in 192.0.0.0/29, which is for this use (RFC 7335): the
// host's, and the one from which errors come.
var (
	HostIPv4  = netip.AddrFrom4([4]byte{192, 0, 0, 1})
	ErrorIPv4 = netip.AddrFrom4([4]byte{192, 0, 0, 2})
	Reserved  = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 0, 0}), 29)
)

// errorRate is how many ICMP errors are sent a second: one host asks for few.
const errorRate = 50

var errorLimit = ratelimit.PerSecond(errorRate, errorRate)

// Settings of an Engine.
type Settings struct {
	// Prefixes are the NAT64's, the first for what we send.
	Prefixes []netip.Prefix
	// Address is the IPv6 address that stands for [HostIPv4].
	Address netip.Addr
	// MAC is the link-layer address that we answer with; empty on links without.
	MAC []byte
	// LAN is a prefix of our own, of 96 bits, routed to this host: with it private
	// IPv4 addresses behind this host have IPv6 addresses, by RFC 6052. Not valid:
	// there is none.
	LAN netip.Prefix
	// MTU6 is the largest IPv6 packet that the way to the NAT64 takes, as far as the host
	// knows, in bytes.
	MTU6 int
}

// privateRanges may stand behind the host (RFC 1918, RFC 6598).
var privateRanges = special.Privates4()

// Engine translates for one host. It is for one thread at a time. Packets that it puts
// out are for the host's stack if they are IPv4, and for the network if they are IPv6.
type Engine struct {
	translator *siit.Engine
	claim      claimed
	lan        netip.Prefix
	// outward and inward are ICMP messages in fragments, from the host and from the link.
	outward, inward messages
	strangers       uint64
	foreign         uint64 // packets of the host whose source is not ours, and of the network whose source is
	bucket          ratelimit.Bucket
	// answered and suppressed are errors about packets that the host does not send, and about
	// those of foreign sources.
	answered, suppressed uint64
}

// New makes an engine.
func New(s Settings, random io.Reader) (*Engine, error) {
	inner, err := s.translation()
	if err != nil {
		return nil, err
	}
	t, err := siit.New(inner, random)
	if err != nil {
		return nil, err
	}
	e := &Engine{translator: t, claim: claimed{addr: s.Address, mac: s.MAC}, lan: s.LAN}
	if _, err := io.ReadFull(random, e.claim.nonce[:]); err != nil {
		return nil, fmt.Errorf("no randomness for the claim of an address: %w", err)
	}
	return e, nil
}

// Reconfigure takes other prefixes, another MTU or another LAN; the address stays.
func (e *Engine) Reconfigure(s Settings) error {
	if s.Address != e.claim.addr {
		return errors.New("a claimed address does not change: make a new engine")
	}
	inner, err := s.translation()
	if err != nil {
		return err
	}
	if err := e.translator.Reconfigure(inner); err != nil {
		return err
	}
	e.lan = s.LAN
	return nil
}

// translation makes the settings of the stateless translator. The host is an explicit
// mapping (RFC 7757), and so is each private range, which with 96 bits is the same as
// RFC 6052; all else is beyond the NAT64.
func (s *Settings) translation() (siit.Settings, error) {
	out := siit.Settings{MTU6: s.MTU6, ErrorRate: errorRate}
	for _, p := range s.Prefixes {
		made, err := translate.NewPrefix(p)
		if err != nil {
			return out, err
		}
		out.Translate.Prefixes = append(out.Translate.Prefixes, made)
	}
	if len(s.Prefixes) == 0 {
		return out, errors.New("no prefix of a NAT64 is known, so nothing can be translated")
	}
	host, err := translate.ParseMapping(HostIPv4.String(), s.Address.String())
	if err != nil {
		return out, err
	}
	mappings := []translate.Mapping{host}
	if s.LAN.IsValid() {
		lan, err := s.lanMappings()
		if err != nil {
			return out, err
		}
		mappings = append(mappings, lan...)
	}
	out.Translate.Mappings, err = translate.NewTable(mappings, false)
	out.Translate.Own4, out.Translate.Own6 = ErrorIPv4, s.Address
	out.Translate.UDPZeroChecksum = translate.ZeroChecksumCompute
	return out, err
}

func (s *Settings) lanMappings() (list []translate.Mapping, err error) {
	if s.LAN.Bits() != 96 {
		return nil, fmt.Errorf("the prefix of the IPv4 network, %s, has not 96 bits; take one such as %s", s.LAN, netip.PrefixFrom(s.LAN.Addr(), 96))
	}
	raw := s.LAN.Masked().Addr().As16()
	for _, r := range privateRanges {
		four := r.Addr().As4()
		copy(raw[12:], four[:])
		six := netip.PrefixFrom(netip.AddrFrom16(raw), 96+r.Bits())
		m, err := translate.ParseMapping(r.String(), six.String())
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Claim reports how far the address is ours.
func (e *Engine) Claim() Claim { return e.claim.state }

// Stats returns the counters of the translator, and how many packets of the link were
// not for it.
func (e *Engine) Stats() (s siit.Stats, strangers uint64) {
	s = e.translator.Stats()
	s.ErrorsSent += e.answered
	s.ErrorsSuppressed += e.suppressed
	return s, e.strangers
}

// HandleHost takes what the host's stack sends to the device: IPv4 packets of its own or
// of the network behind it, and IPv6 packets for the LAN's prefix. Others, and all
// before the address is ours, are not for us.
func (e *Engine) HandleHost(ip []byte, now time.Time, out *packet.Batch) {
	if e.claim.state != Owned || !e.takes(ip) {
		e.strangers++
		return
	}
	switch {
	case ip[0]>>4 != 4 && e.pretends(ip):
		e.foreign++
	case ip[0]>>4 == 4 && !e.admits(ip):
		e.foreign++
		e.refuse(ip, now, out)
	default:
		e.translate(&e.outward, ip, now, out)
	}
}

// pretends reports whether an IPv6 packet, which is of the network, has a source that stands for
// the host or the network behind it. Those send IPv4; so it is forged, and translated it would
// come from one of them (RFC 6877 section 6.3: what is no address of theirs is the NAT64's).
func (e *Engine) pretends(p packet.IPv6) bool {
	return p.Src() == e.claim.addr || e.lan.IsValid() && e.lan.Contains(p.Src())
}

// admits reports whether an IPv4 packet has a source of ours, without which it would leave as
// from the NAT64's prefix: the host, or the network behind it (RFC 6877 section 6.3). An ICMP
// error of a router there, which may have any address, becomes the host's (RFC 6791). What
// cannot be read the translator refuses.
func (e *Engine) admits(ip []byte) bool {
	if len(ip) < packet.IPv4HeaderLen {
		return true
	}
	src := netip.AddrFrom4([4]byte(ip[12:16]))
	behind := e.lan.IsValid() && slices.ContainsFunc(privateRanges, func(p netip.Prefix) bool { return p.Contains(src) })
	if src == HostIPv4 || behind {
		return true
	}
	v, bad := translate.ViewIPv4(ip)
	switch {
	case bad != translate.ReasonNone:
		return true
	case !e.lan.IsValid() || !v.IsError():
		return false
	}
	host := HostIPv4.As4()
	copy(ip[12:], host[:])
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip[:v.Headers])))
	return true
}

// refuse tells the sender of an IPv4 packet that it may not pass (RFC 7915 section 4.4), so
// often that errors of [Engine.TooBig] have room.
func (e *Engine) refuse(ip []byte, now time.Time, out *packet.Batch) {
	const unreachable, prohibited = 3, 13 // RFC 1812 section 5.2.7.1
	b := packet.AppendICMPv4Error(out.Alloc(packet.MinMTU), ErrorIPv4, 0, unreachable, prohibited, 0, ip)
	switch {
	case len(b) == 0: // none may be sent
	case !e.bucket.AllowSpare(errorLimit, now):
		e.suppressed++
	default:
		e.answered++
		out.SendIP(b)
	}
}

func (e *Engine) takes(ip []byte) bool {
	if len(ip) > 0 && ip[0]>>4 == 4 {
		return true
	}
	p, _, ok := packet.ParseIPv6(ip)
	return ok && e.lan.IsValid() && e.lan.Contains(p.Dst())
}

// HandleLink takes a packet of the link: Neighbor Discovery about the address, or one to
// be translated.
func (e *Engine) HandleLink(ip []byte, now time.Time, out *packet.Batch) {
	p, _, ok := packet.ParseIPv6(ip)
	switch {
	case !ok:
		e.strangers++
	case e.claim.handle(p, out):
	case e.claim.state != Owned:
		e.strangers++
	case e.pretends(p):
		e.foreign++
	default:
		e.translate(&e.inward, p, now, out)
	}
}

// TooBig answers a packet of ours that the host refuses to send, since its route to the
// destination takes no more than mtu: what a router there would answer is translated (RFC 7915
// section 5.2). It reports whether there is an answer; there are so many in a second.
func (e *Engine) TooBig(ip []byte, mtu int, now time.Time, out *packet.Batch) bool {
	p, _, ok := packet.ParseIPv6(ip)
	if !ok || len(p) <= mtu || !packet.MayAnswerWithError(p) {
		return false
	}
	if !e.bucket.Allow(errorLimit, now) {
		e.suppressed++
		return false
	}
	// The Subnet-Router anycast address (RFC 4291 section 2.6.1): no IPv4 address stands for
	// it, so the error comes from [ErrorIPv4].
	router := netip.PrefixFrom(e.claim.addr, 64).Masked().Addr()
	b := packet.AppendICMPv6Error(out.Alloc(packet.MinMTU), router, packet.ICMPv6PacketTooBig, 0, uint32(mtu), p)
	e.answered++
	e.translator.Handle(b, now, out)
	return true
}

// Tick does what is due: the detection of another owner of the address, and the end of
// messages that no one completes.
func (e *Engine) Tick(now time.Time, out *packet.Batch) {
	e.claim.tick(now, out)
	e.outward.expire(now)
	e.inward.expire(now)
}

// Next is when Tick has something to do; zero is never.
func (e *Engine) Next() (next time.Time) {
	for _, at := range [...]time.Time{e.claim.next(), e.outward.next(), e.inward.next()} {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// EachReport calls f for each report of a dropped packet since the last call.
func (e *Engine) EachReport(f func(translate.Report)) { e.translator.EachReport(f) }

// EachDropped calls f for every drop reason, in a fixed order.
func (e *Engine) EachDropped(f func(reason string, n uint64)) {
	s := e.translator.Stats()
	s.EachDropped(f)
	f("not_for_us", e.strangers)
	f("foreign_source", e.foreign)
	f("fragment_timeout", e.outward.expired+e.inward.expired)
	f("fragment_evicted", e.outward.evicted+e.inward.evicted)
	f("fragment_duplicate", e.outward.duplicates+e.inward.duplicates)
}
