// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab/load"
	"golang.org/x/sys/unix"
)

// throughput sends packets of so many clients, in random order, as fast as it can,
// and returns how many a second reach the host.
func (c *crowd) throughput(clients int, d time.Duration) (float64, error) {
	frames := make([][]byte, 64*peerBatch)
	for i := range frames {
		client, mapped := clientOf(int(uint32(i) * 2654435761 % uint32(clients)))
		frames[i] = c.toHost(client, mapped)
	}
	before, err := received(c.host, "v6")
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = onCPU(senderCPU, func() error {
		for i := 0; time.Since(start) < d; i++ {
			part := frames[i*peerBatch%len(frames):][:peerBatch]
			if _, err := c.fromInternet.SendAll(part); err != nil {
				return err
			}
			scatter(part, clients, uint32(i))
		}
		return nil
	})
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	time.Sleep(loadDrain)
	after, err := received(c.host, "v6")
	return float64(after-before) / took.Seconds(), err
}

// Where a frame of toHost holds what tells its client.
const (
	frameSource = 14 + 12               // IPv4 source
	framePort   = 14 + 20               // UDP source port
	frameInner  = 14 + 20 + 8           // the IPv6 packet
	frameClient = frameInner + 8        // its source
	frameIPSum  = 14 + 10               // IPv4 header checksum
	frameMax    = frameInner + 40       // end of the inner header
	scatterStep = uint32(2_654_435_761) // spreads numbers over the clients
)

// scatter makes the frames those of other clients.
func scatter(frames [][]byte, clients int, round uint32) {
	for i, f := range frames {
		client, mapped := clientOf(int((round*peerBatch + uint32(i)) * scatterStep % uint32(clients)))
		ip := mapped.Addr().As4()
		copy(f[frameSource:], ip[:])
		binary.BigEndian.PutUint16(f[framePort:], mapped.Port())
		copy(f[frameClient:frameMax], client[:])
		f[frameIPSum], f[frameIPSum+1] = 0, 0
		binary.BigEndian.PutUint16(f[frameIPSum:], ^packet.Fold(packet.Sum(0, f[14:34])))
	}
}

// Choices of the traffic beside a flood.
const (
	goodClients = 500
	goodRate    = 5_000  // packets a second, half of them each way
	floodRate   = 50_000 // packets a second
	floodNames  = 100_000
	floodTick   = 2 * time.Millisecond
)

// flood is what comes beside the good traffic.
type flood string

// The floods.
const (
	noFlood    flood = "nothing"
	datagrams  flood = "datagrams of strangers"
	newClients flood = "packets to strangers"
)

// beside is what became of good traffic beside a flood.
type beside struct {
	sent, lost int           // good packets
	bad        int           // packets of the flood
	took       time.Duration // to send them
}

// traffic sends good traffic beside a flood.
func (c *crowd) traffic(ctx context.Context, f flood, d time.Duration, first uint64) (b beside, err error) {
	good, bad := c.goodFrames(first), c.floodFrames(f)
	ticks := int(d / floodTick)
	perTick := int(goodRate * floodTick / time.Second / 2)
	badPerTick := int(floodRate * floodTick / time.Second)
	start := time.Now()
	err = onCPU(senderCPU, func() error {
		next := time.Now()
		for tick := range ticks {
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, side := range good {
				if err := side.send(tick, perTick); err != nil {
					return err
				}
			}
			if err := bad.send(tick, badPerTick); err != nil {
				return err
			}
			next = awaitTick(next)
		}
		return nil
	})
	if err != nil {
		return b, err
	}
	n := ticks * perTick
	b = beside{sent: 2 * n, took: time.Since(start)}
	if f != noFlood {
		b.bad = ticks * badPerTick
	}
	for _, side := range good {
		for _, at := range side.to.Take(side.first, n, 2*time.Second) {
			if at.IsZero() {
				b.lost++
			}
		}
	}
	return b, nil
}

// awaitTick waits for the tick after the one that was due. A sender that was kept waiting
// makes nothing up: that would be a flood of another kind.
func awaitTick(due time.Time) (next time.Time) {
	next = due.Add(floodTick)
	if now := time.Now(); now.After(next.Add(floodTick)) {
		next = now
	}
	if wait := time.Until(next); wait > 0 {
		ts := unix.NsecToTimespec(int64(wait))
		_ = unix.Nanosleep(&ts, nil)
	}
	return next
}

// goodTraffic is frames of clients that the relay knows, one way, numbered from first.
type goodTraffic struct {
	by     *load.Sender
	to     *load.Tap
	first  uint64
	frames [][]byte
}

// goodFrames are good traffic each way.
func (c *crowd) goodFrames(first uint64) [2]goodTraffic {
	g := [2]goodTraffic{{by: c.fromHost, to: c.atInternet, first: first}, {by: c.fromInternet, to: c.atHost, first: first + 1<<32}}
	for i := range goodClients {
		client, mapped := clientOf(i)
		g[0].frames = append(g[0].frames, c.toClient(crowdHost, client))
		g[1].frames = append(g[1].frames, c.toHost(client, mapped))
	}
	return g
}

// send sends the n packets of one tick.
func (g *goodTraffic) send(tick, n int) error {
	part := g.frames[tick*n%len(g.frames):][:n]
	for i, frame := range part {
		if err := load.Number(frame, g.first+uint64(tick*n+i)); err != nil {
			return err
		}
	}
	if sent, err := g.by.SendAll(part); err != nil || sent != len(part) {
		return fmt.Errorf("%d of %d good packets could be sent: %w", sent, len(part), err)
	}
	return nil
}

// badTraffic is frames of a flood, and who sends them; none without a flood.
type badTraffic struct {
	by     *load.Sender
	frames [][]byte
}

// floodFrames makes a frame for each of the forged sources of a flood.
func (c *crowd) floodFrames(f flood) (b badTraffic) {
	for i := range floodNames {
		nat := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i%250)})
		client, mapped := strangerOf(i/250, nat, nat.Next())
		switch f {
		case datagrams:
			b.by = c.fromInternet
			b.frames = append(b.frames, c.bubble(crowdHost, client, mapped))
		case newClients:
			b.by = c.fromHost
			src := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0x80 | byte(i>>16), byte(i >> 8), byte(i), 15: 1})
			b.frames = append(b.frames, load.Frame6(c.hostMAC, c.in6MAC, load.Packet(src, netip.AddrFrom16(client), load.MinSize)))
		}
	}
	return b
}

// send sends the n packets of one tick.
func (b *badTraffic) send(tick, n int) error {
	if len(b.frames) == 0 {
		return nil
	}
	_, err := b.by.SendAll(b.frames[tick*n%len(b.frames):][:n])
	return err
}
