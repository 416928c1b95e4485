// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

const sessionRecord = 64

// quiet returns an instant at which the clocks of engine and programs have the same
// stamp: that of the programs is a tick behind, or more where no one sets it.
func (w *natWorld) quiet() time.Duration {
	for ; ; time.Sleep(time.Millisecond) {
		if now := fastpath.Monotonic(); isQuiet(now) {
			return now
		}
	}
}

// isQuiet reports whether both clocks have the stamp of an instant.
func isQuiet(at time.Duration) bool {
	return state.Stamp(coarse()) == state.Stamp(at) && state.Stamp(fastpath.Monotonic()) == state.Stamp(at)
}

// check gives a frame to the programs, and then to the engine with the state as the
// programs found it.
func (w *natWorld) check(r *runtest.Runner, frame []byte) (fastpath.Verdict, error) {
	now := w.quiet()
	copy(w.before, w.sessions)
	given := slices.Clone(frame)
	res, err := r.Run(given)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(frame, given) {
		return 0, fmt.Errorf("the test run changed its input")
	}
	if !isQuiet(now) {
		w.skipped++
		return res.Verdict, nil
	}
	c := comparison{natWorld: w, now: now, frame: frame, res: res, changed: -1}
	copy(w.after, w.sessions)
	c.findChange()
	switch res.Verdict {
	case fastpath.Forward:
		err = c.forwarded(r.Hook)
	case fastpath.Punt:
		err = c.punted()
	default:
		err = c.dropped()
	}
	return res.Verdict, err
}

// comparison is of one packet.
type comparison struct {
	*natWorld
	now     time.Duration
	frame   []byte
	res     runtest.Result
	changed int // the session whose word the programs changed; -1: none
	made    bool
	fed     int // how often the engine had the packet
}

// findChange finds the session that the programs changed or made.
func (c *comparison) findChange() {
	if bytes.Equal(c.before, c.after) {
		return
	}
	for at := 0; at < len(c.before); at += sessionRecord {
		was, is := binary.NativeEndian.Uint64(c.before[at:]), binary.NativeEndian.Uint64(c.after[at:])
		// A record that was taken and given back, for want of room elsewhere, is free still.
		if was != is && state.Word(was).Status()|state.Word(is).Status() != state.Free {
			c.changed = at / sessionRecord
			c.made = state.Word(was).Generation() != state.Word(is).Generation()
			return
		}
	}
}

// restore gives the changed session the word that it had.
func (c *comparison) restore() {
	if c.changed >= 0 && !c.made {
		at := c.changed * sessionRecord
		copy(c.sessions[at:at+8], c.before[at:at+8])
	}
}

// forwarded holds what left against what the engine sends.
func (c *comparison) forwarded(at runtest.Hook) error {
	if len(c.res.Out) < ethLen+ip4Len {
		return fmt.Errorf("a frame of %d bytes left", len(c.res.Out))
	}
	ip := slices.Clone(c.frame[ethLen:])
	if at == runtest.InXDP && c.partial {
		finishTransport(ip)
	}
	path := c.path(ip)
	c.restore()
	if err := c.same(c.feed(ip, path), c.res.Out); err != nil {
		return err
	}
	if !bytes.Equal(c.sessions, c.after) {
		return fmt.Errorf("sessions differ: %s", c.difference())
	}
	if c.made {
		return c.remade(ip, path)
	}
	return nil
}

// remade ends the session that the programs made, and has the engine make it.
func (c *comparison) remade(ip []byte, path translate.Path) error {
	var was, is state.Session
	if !c.table.View(uint32(c.changed), &was) {
		return fmt.Errorf("the new session is not there")
	}
	if o := c.table.End(&was); o != state.Made {
		return fmt.Errorf("the new session does not end: %s", o)
	}
	key := was.Key6()
	var b state.Binding
	inside := key.Inside()
	bound := c.table.FindBinding6(&inside, &b)
	out := c.feed(ip, path)
	switch {
	case !c.table.Find6(&key, &is):
		return fmt.Errorf("the engine makes no session of its own, and sends %x; it drops for %s", out, c.why())
	case is.Word.Status() != was.Word.Status() || is.Word.Flags() != was.Word.Flags() || is.Word.Stamp() != was.Word.Stamp():
		return fmt.Errorf("the engine makes a session of state %s, flags %d, stamp %d; the programs of %s, %d, %d",
			is.Word.Status(), is.Word.Flags(), is.Word.Stamp(), was.Word.Status(), was.Word.Flags(), was.Word.Stamp())
	case is.Pool != was.Pool:
		return fmt.Errorf("the engine binds to %v, the programs to %v", is.Pool, was.Pool)
	case bound && is.PoolPort != was.PoolPort:
		return fmt.Errorf("the engine binds to port %d, the binding's is %d", is.PoolPort, was.PoolPort)
	case is.PoolPort == was.PoolPort:
		return c.same(out, c.res.Out)
	case is.PoolPort < 1024 != (was.PoolPort < 1024):
		return fmt.Errorf("the engine binds to port %d, the programs to %d", is.PoolPort, was.PoolPort)
	case len(out) != 1 || len(out[0]) != len(c.res.Out)-ethLen:
		return fmt.Errorf("the engine sends %x, the programs %x", out, c.res.Out)
	}
	return nil
}

// punted checks that a frame and the state of others are untouched, and goes on.
func (c *comparison) punted() error {
	if !bytes.Equal(c.frame, c.res.Out) {
		return fmt.Errorf("a punted frame was changed to %x", c.res.Out)
	}
	kind := binary.BigEndian.Uint16(c.frame[12:])
	if kind == etherIPv6 && c.changed >= 0 {
		return fmt.Errorf("a punted packet changed sessions: %s", c.difference())
	}
	ip := c.frame[ethLen:]
	if len(ip) == 0 || !bytes.Equal(c.frame[:6], c.ports[0].mac) || kind == etherIPv6 != (ip[0]>>4 == 6) {
		return nil
	}
	// The way back is known too late to leave the session alone: then it became what the
	// engine makes of it.
	c.restore()
	c.feed(ip, translate.Path{MTU4: 1500, MTU6: 1500})
	if c.changed >= 0 && !c.made && !bytes.Equal(c.sessions, c.after) {
		return fmt.Errorf("sessions differ behind a punt: %s", c.difference())
	}
	return nil
}

// dropped checks that the engine drops a packet too.
func (c *comparison) dropped() error {
	news, err := c.counted()
	c.reasons = news
	limited := news["punt_limit"] > 0
	// One from IPv4 that was to be left to the engine may have renewed its session, as above.
	if c.changed >= 0 && !(limited && binary.BigEndian.Uint16(c.frame[12:]) == etherIPv4) {
		return fmt.Errorf("a dropped packet changed sessions: %s", c.difference())
	}
	if err != nil || limited {
		return err
	}
	drops := c.engine.Stats().Dropped
	if out := c.feed(c.frame[ethLen:], translate.Path{MTU4: 1500, MTU6: 1500}); len(out) != 0 {
		return fmt.Errorf("dropped, but the engine sends %x", out)
	}
	for why, n := range c.engine.Stats().Dropped {
		if n != drops[why] {
			return c.sameReason(nat64.Reason(why), news)
		}
	}
	return fmt.Errorf("dropped, but the engine does not count a drop")
}

// sameReason compares reasons of a drop. Of a packet with several faults each side may see
// another first; but the fault that the programs name must be there.
func (c *comparison) sameReason(why nat64.Reason, news map[string]uint64) error {
	ip := c.frame[ethLen:]
	switch {
	case news[why.String()] > 0:
		return nil
	case news["bad_header_checksum"] > 0 && packet.Fold(packet.Sum(0, ip[:ip4Len])) != 0xffff:
		return nil
	case news["bad_icmp_checksum"] > 0 && !isSound(ip):
		return nil
	}
	return fmt.Errorf("dropped for %v; the engine drops for %s", news, why)
}

// isSound reports whether the checksum of an ICMP message without options in front is right.
func isSound(ip []byte) bool {
	if ip[0]>>4 == 4 {
		return packet.Fold(packet.Sum(0, ip[ip4Len:binary.BigEndian.Uint16(ip[2:])])) == 0xffff
	}
	v, _, ok := packet.ParseIPv6(ip)
	return ok && packet.Fold(packet.Sum(uint64(pseudo6(v)), v.Payload())) == 0xffff
}

// feed gives a packet to the engine and returns what it sends.
func (c *comparison) feed(ip []byte, path translate.Path) [][]byte {
	w, now := c.natWorld, c.epoch.Add(c.now)
	c.fed++
	w.out.Reset()
	if ip[0]>>4 == 4 {
		w.engine.HandleIPv4(ip, path, now, &w.out)
	} else {
		w.engine.HandleIPv6(ip, path, now, &w.out)
	}
	return w.out.IP
}

// why lists the engine's drops so far.
func (w *natWorld) why() (list []string) {
	for why, n := range w.engine.Stats().Dropped {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %d", nat64.Reason(why), n))
		}
	}
	return list
}

// path is that of a packet that left: of an ICMP error that of the packet it quotes.
func (c *comparison) path(ip []byte) translate.Path {
	out := c.res.Out[ethLen:]
	var p translate.Path
	if ip[0]>>4 == 6 {
		p.MTU4 = c.mtuTo(netip.AddrFrom4([4]byte(out[16:])))
		if isQuoting(ip) {
			p.MTU6 = c.mtuTo(netip.AddrFrom16([16]byte(ip[72:])))
		}
		return p
	}
	p.MTU6 = c.mtuTo(netip.AddrFrom16([16]byte(out[24:])))
	if isQuoting(ip) {
		p.MTU4 = c.mtuTo(netip.AddrFrom4([4]byte(ip[44:])))
	}
	return p
}

// same compares what the engine sends with the frame that left.
func (c *comparison) same(sent [][]byte, frame []byte) error {
	if len(sent) != 1 {
		return fmt.Errorf("forwarded as %x, but the engine sends %x; it drops for %s", frame, sent, c.why())
	}
	want := slices.Clone(sent[0])
	got := slices.Clone(frame[ethLen:])
	kind, dst := uint16(etherIPv6), netip.Addr{}
	if want[0]>>4 == 4 && got[0]>>4 == 4 {
		if packet.Fold(packet.Sum(0, got[:ip4Len])) != 0xffff {
			return fmt.Errorf("wrong header checksum: %x", got)
		}
		kind, dst = etherIPv4, netip.AddrFrom4([4]byte(got[16:]))
		if err := maskIDs(got, want, c.fed); err != nil {
			return err
		}
	} else {
		dst = netip.AddrFrom16([16]byte(got[24:]))
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("packets differ:\n got %x\nwant %x", got, want)
	}
	way, ok := natRoute(dst)
	if !ok {
		return fmt.Errorf("forwarded to %s, where no route leads", dst)
	}
	if header := link(way, kind, nil); !bytes.Equal(frame[:ethLen], header) {
		return fmt.Errorf("Ethernet header %x, want %x", frame[:ethLen], header)
	}
	return nil
}

// isQuoting reports whether a packet without options is an ICMP error that quotes a header.
func isQuoting(ip []byte) bool {
	if ip[0]>>4 == 4 {
		return ip[9] == 1 && len(ip) >= 48 && ip[20] != 0 && ip[20] != 8
	}
	return len(ip) >= 88 && ip[6] == packet.ProtoICMPv6 && ip[40] < 128
}

// maskIDs takes identifications and what depends on them out of two IPv4 packets, also of
// those that errors quote. The engine's is that many behind that of the programs, which take
// them from the same memory.
func maskIDs(got, want []byte, behind int) error {
	first, second := binary.BigEndian.Uint16(got[4:]), binary.BigEndian.Uint16(want[4:])
	if second != first+uint16(behind) {
		return fmt.Errorf("the identification is %#x, and that of the engine, %d behind, %#x", first, behind, second)
	}
	for _, ip := range [][]byte{got, want} {
		quotes := isQuoting(ip)
		if quotes && packet.Fold(packet.Sum(0, ip[20:])) != 0xffff {
			return fmt.Errorf("wrong ICMP checksum: %x", ip)
		}
		if quotes && !bytes.Equal(ip[4:6], ip[32:34]) {
			return fmt.Errorf("the quoted packet has another identification: %x", ip)
		}
		clear(ip[4:6])
		clear(ip[10:12])
		if quotes {
			clear(ip[22:24])
			clear(ip[32:34])
			clear(ip[38:40])
		}
	}
	return nil
}

// difference reports the first session that is not as the programs left it.
func (c *comparison) difference() string {
	for at := 0; at < len(c.after); at += sessionRecord {
		a, b, is := c.before[at:at+sessionRecord], c.after[at:at+sessionRecord], c.sessions[at:at+sessionRecord]
		if !bytes.Equal(b, is) || !bytes.Equal(a, b) {
			word := func(b []byte) string {
				w := state.Word(binary.NativeEndian.Uint64(b))
				return fmt.Sprintf("%s flags %d generation %d age %d", w.Status(), w.Flags(), w.Generation(), w.Age(state.Stamp(c.now)))
			}
			return fmt.Sprintf("session %d was %s; programs %s; engine %s", at/sessionRecord, word(a), word(b), word(is))
		}
	}
	return "none"
}

// finishTransport finishes a checksum that the sender has left to hardware.
func finishTransport(ip []byte) {
	if v, _, ok := packet.ParseIPv6(ip); ok && ip[0]>>4 == 6 {
		finish(v)
		return
	}
	total := int(binary.BigEndian.Uint16(ip[2:]))
	at := checksumAt(ip[9])
	if total > len(ip) || at < 0 || ip4Len+at+2 > total {
		return
	}
	m := ip[ip4Len:total]
	if binary.BigEndian.Uint16(m[at:]) != packet.Fold(pseudoOf4(ip[:total])) {
		return
	}
	sum := ^packet.Fold(packet.Sum(0, m))
	if ip[9] == packet.ProtoUDP && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], sum)
}

// pseudoOf4 is the sum of the pseudo-header of a packet without options.
func pseudoOf4(ip []byte) uint64 {
	return packet.Sum(uint64(len(ip)-ip4Len)+uint64(ip[9]), ip[12:20])
}
