// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

const (
	// flowGap is the pause between the packets of a flow: 50 a second, as of a
	// telephone call.
	flowGap = 20 * time.Millisecond
	// flowEnd is how long a flow waits for answers that are missing when its last
	// packet is answered, or will not be.
	flowEnd = time.Second
	// flowWarm is how many answers in a row make a flow steady.
	flowWarm = 25
)

// flowSize is the length of a flow's packets, in octets of UDP payload.
const flowSize = 64

// flowPlan says between whom a flow goes.
type flowPlan struct {
	from, to *lab.Node
	// source is from's address. Without one each packet leaves from what the kernel
	// thinks is the current one.
	source netip.Addr
	listen netip.AddrPort // of to
	target netip.AddrPort // where from sends to, which leads there
	gap    time.Duration  // between packets
}

// flow is a stream of small UDP packets from a node to another one, which sends
// each back.
type flow struct {
	plan           flowPlan
	client, server *net.UDPConn
	stop           context.CancelFunc
	interrupted    <-chan struct{} // no one waits for answers any more
	done           sync.WaitGroup

	mu      sync.Mutex
	packets []flowPacket // by sequence number
	change  chan struct{}
	seen    netip.AddrPort // where its packets come from
	moved   int            // how often that changed
	wrong   int            // packets that came twice, or not as they were sent
}

// flowPacket is what became of one packet. Times are zero for what did not
// happen.
type flowPacket struct{ sent, there, back time.Time }

// startFlow starts a flow from a node to the host.
func startFlow(ctx context.Context, from, host *lab.Node, addr netip.Addr) (*flow, error) {
	at := netip.AddrPortFrom(addr, echoPort)
	return flowPlan{from: from, to: host, listen: at, target: at, gap: flowGap}.start(ctx)
}

// start starts the flow.
func (p flowPlan) start(ctx context.Context) (*flow, error) {
	f := &flow{plan: p, change: make(chan struct{}, 1), interrupted: ctx.Done()}
	if err := p.to.Do(func() (err error) {
		f.server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.listen))
		return err
	}); err != nil {
		return nil, err
	}
	var source *net.UDPAddr
	if p.source.IsValid() {
		source = net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.source, 0))
	}
	if err := p.from.Do(func() (err error) { f.client, err = net.ListenUDP("udp", source); return err }); err != nil {
		f.server.Close()
		return nil, err
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.done.Add(3)
	go f.echo()
	go f.receive()
	go f.send(ctx)
	return f, nil
}

// send sends packets until ctx is done. What the kernel refuses, for want of an
// address or a route, counts as sent and lost.
func (f *flow) send(ctx context.Context) {
	defer f.done.Done()
	ticker := time.NewTicker(f.plan.gap)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f.mu.Lock()
		n := len(f.packets)
		f.packets = append(f.packets, flowPacket{sent: time.Now()})
		f.mu.Unlock()
		_, _ = f.client.WriteToUDPAddrPort(f.payload(uint64(n)), f.plan.target)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// payload is that of the packet of a number: no other flow has one that is equal.
func (f *flow) payload(n uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, flowSize), n)
	b = f.plan.target.Addr().AppendTo(b)
	b = binary.BigEndian.AppendUint16(b, f.plan.target.Port())
	return append(b, checkedOctets(n, flowSize-len(b))...)
}

// note lets set write into the packet that b is, unless it is none of this flow.
func (f *flow) note(b []byte, set func(*flowPacket)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(b) == flowSize {
		n := binary.BigEndian.Uint64(b)
		if n < uint64(len(f.packets)) && bytes.Equal(b, f.payload(n)) {
			set(&f.packets[n])
			return
		}
	}
	f.wrong++
}

// first sets a time, once.
func (f *flow) first(t *time.Time) {
	if !t.IsZero() {
		f.wrong++
		return
	}
	*t = time.Now()
}

// echo is the host's side.
func (f *flow) echo() {
	defer f.done.Done()
	b := make([]byte, 2*flowSize)
	for {
		n, from, err := f.server.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		f.note(b[:n], func(p *flowPacket) {
			f.first(&p.there)
			if f.seen != from && f.seen.IsValid() {
				f.moved++
			}
			f.seen = from
		})
		_, _ = f.server.WriteToUDPAddrPort(b[:n], from)
	}
}

// receive takes the answers.
func (f *flow) receive() {
	defer f.done.Done()
	b := make([]byte, 2*flowSize)
	for {
		n, _, err := f.client.ReadFromUDPAddrPort(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMPv6 error about an earlier packet
		}
		f.note(b[:n], func(p *flowPacket) { f.first(&p.back) })
		select {
		case f.change <- struct{}{}:
		default:
		}
	}
}

// await waits until the last packets were answered one after the other, and all
// of them sent since a time.
func (f *flow) await(ctx context.Context, since time.Time, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		select {
		case <-f.change:
		case <-ctx.Done():
			return fmt.Errorf("the flow of packets was not answered within %v: %w", wait, ctx.Err())
		}
		if f.steady(since) {
			return nil
		}
	}
}

// steady reports whether flowWarm packets in a row were answered, the last ones but
// for those on the way.
func (f *flow) steady(since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := 0
	for _, p := range slices.Backward(f.packets) {
		switch {
		case !p.back.IsZero() && p.sent.After(since):
			run++
		case run > 0:
			return false
		}
		if run == flowWarm {
			return true
		}
	}
	return false
}

// awaitAnswers waits until the packets are as they should be, or for some time. It
// reports whether they are.
func (f *flow) awaitAnswers(wait time.Duration, enough func([]flowPacket) bool) bool {
	late := time.After(wait)
	for {
		f.mu.Lock()
		done := enough(f.packets)
		f.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-f.change:
		case <-late:
			return false
		case <-f.interrupted:
			return false
		}
	}
}

// end stops, waits for the last answers, and gives the packets.
func (f *flow) end() []flowPacket {
	f.stop()
	f.awaitAnswers(answerWait, func(p []flowPacket) bool { return len(p) == 0 || !p[len(p)-1].back.IsZero() })
	// Nothing reports that a missing one does not come.
	f.awaitAnswers(flowEnd, func(p []flowPacket) bool {
		return !slices.ContainsFunc(p, func(x flowPacket) bool { return x.back.IsZero() })
	})
	f.client.Close()
	f.server.Close()
	f.done.Wait()
	return f.packets
}

// moment is when something was changed: it began and ended then.
type moment struct{ began, ended time.Time }

func (m moment) length() time.Duration { return m.ended.Sub(m.began) }

// longer is that of two which took longer.
func longer(a, b moment) moment {
	if b.length() > a.length() {
		return b
	}
	return a
}

// recovery is the time from a change to the first answer to a packet that was sent
// behind it, of the first so many that were answered one after the other: a box may
// pass a few more by a mapping that it is about to drop.
func recovery(packets []flowPacket, m moment, steady int) (took time.Duration, ok bool) {
	run := 0
	for _, p := range packets {
		switch {
		case p.back.IsZero() || !p.sent.After(m.ended):
			run = 0
			continue
		case run == 0:
			took = p.back.Sub(m.began)
		}
		if run++; run == steady {
			return took, true
		}
	}
	return 0, false
}

// unanswered counts the packets sent since a time that were not answered.
func unanswered(packets []flowPacket, since time.Time) (n int) {
	for _, p := range packets {
		if p.sent.After(since) && p.back.IsZero() {
			n++
		}
	}
	return n
}

// gapAcross is the time at the host between the last packet that was sent before
// the first one which got through behind a change, and that one.
func gapAcross(packets []flowPacket, m moment) time.Duration {
	var last time.Time
	for _, p := range packets {
		if p.there.IsZero() {
			continue
		}
		if p.sent.After(m.began) {
			return p.there.Sub(last)
		}
		if p.there.After(last) {
			last = p.there
		}
	}
	return 0
}
