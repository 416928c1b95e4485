// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/teredo"
)

// Choices of the flood of strangers.
const (
	strangersGood    = 10_000  // packets per second of clients that the relay knows, half each way
	strangersBad     = 200_000 // packets per second of strangers, half each way
	strangersClients = 500
	strangersNames   = 100_000 // forged clients of each kind
	strangersTime    = 5 * time.Second
	strangersSlack   = 10 * time.Millisecond
	newTries         = 5 // new clients, one after the other
	newAgain         = 250 * time.Millisecond
	newPatience      = 5 * time.Second
)

// Classes of test packets.
const (
	classGood = iota
	classBad
	classNew
)

// besideStrangers measures one way beside a flood of strangers: forged Teredo
// clients from the IPv4 side, and forged hosts that send to clients which are not
// there from the IPv6 side.
func besideStrangers(ctx context.Context, e *lab.Env, rep *report.Report, w way, rounds int) (err error) {
	c, err := newCrowd(ctx, e, overloadName+"-"+w.name, w, strangersClients+2*strangersNames)
	if err != nil {
		return err
	}
	defer closing(&err, c.close)
	e.Step("%s: %d good packets a second for %v, alone and beside %d of strangers", w.title, strangersGood, strangersTime, strangersBad)
	if err := c.start(ctx, 1<<20); err != nil {
		return err
	}
	if err := c.fill(ctx, strangersClients); err != nil {
		return err
	}
	// Receiving runs at once, as an interrupt would have it, and not in turn with
	// the relay's own process.
	for _, iface := range []string{"in6", "out4"} {
		if err := c.router.EnableGRO(iface); err != nil {
			return err
		}
	}
	c.strangers()
	length := strangersTime
	if rounds < overloadRounds {
		length = time.Second
	}
	alone, err := c.goodAlone(ctx, length)
	if err != nil {
		return err
	}
	if alone.broken() {
		rep.Fault("%s lost %d of %d good packets without a flood", w.title, alone.lost, alone.sent)
	}
	flooded, err := c.good(ctx, length, true)
	if err != nil {
		return err
	}
	first, err := c.newClients(ctx, true)
	if err != nil {
		return err
	}
	rep.Figures = append(rep.Figures,
		report.Figure{Name: w.title + ": " + figureGoodLost, Unit: "%", Decimals: 2,
			Isthmus: report.Measured(flooded.share()), Must: must(overloadName, figureGoodLost)},
		report.Figure{Name: w.title + ": " + figureNewClient, Unit: "s", Decimals: 2,
			Isthmus: report.Measured(first...), Must: must(overloadName, figureNewClient)},
	)
	rep.Notes = append(rep.Notes, fmt.Sprintf(
		"%s, beside %.0f packets a second of strangers (%d forged clients, %d forged hosts): %d of %d good packets lost; without the flood %d of %d. New clients are sent a packet each %v until one arrives.",
		w.title, flooded.badRate, strangersNames, strangersNames, flooded.lost, flooded.sent, alone.lost, alone.sent, newAgain))
	return nil
}

// strangers fills the generator's table: good clients, then forged ones.
func (c *crowd) strangers() {
	table := c.generator.Peers()
	for i := range strangersClients {
		client, mapped := clientOf(i)
		table[i] = load.Peer{Client: client, IP: mapped.Addr().As4(), Port: portBytes(mapped)}
	}
	for i := range 2 * strangersNames {
		nat := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		client, mapped := strangerOf(i>>16, nat, netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i%250)}))
		table[strangersClients+i] = load.Peer{Client: client, IP: mapped.Addr().As4(), Port: portBytes(mapped), Net: [2]byte{0x80 | byte(i>>8), byte(i)}}
	}
}

func portBytes(a netip.AddrPort) [2]byte { return [2]byte{byte(a.Port() >> 8), byte(a.Port())} }

// strangerLanes are good and bad lanes in both directions.
func (c *crowd) strangerLanes(bad bool) []load.Lane {
	lanes := []load.Lane{c.lane(toIPv4, 0, strangersClients), c.lane(toIPv6, 0, strangersClients)}
	if !bad {
		return lanes
	}
	client, mapped := clientOf(0)
	host := netip.MustParseAddr("2001:db8:8000::1")
	out := load.Packet(host, netip.AddrFrom16(client), load.MinTaggedSize)
	load.Classify(out, classBad)
	in := load.Packet(netip.AddrFrom16(client), crowdHost, load.MinTaggedSize)
	load.Classify(in, classBad)
	const share = strangersBad / strangersGood
	return append(lanes,
		load.Lane{Frame: load.Frame6(c.hostMAC, c.in6MAC, out), ToClient: true, Target: targetHost,
			First: strangersClients, Count: strangersNames, Share: share},
		load.Lane{Frame: load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, in), Target: targetInternet,
			First: strangersClients + strangersNames, Count: strangersNames, Share: share},
	)
}

// goodLoad is what became of good packets.
type goodLoad struct {
	sent, lost int
	badRate    float64
}

// share is the percentage of lost packets.
func (g goodLoad) share() float64 { return 100 * float64(g.lost) / float64(max(g.sent, 1)) }

// broken reports that most was lost.
func (g goodLoad) broken() bool { return g.sent == 0 || g.lost > g.sent/2 }

// aloneTries is how often good packets are sent alone, if most are lost: a machine
// that had no processor for the relay shows nothing of it.
const aloneTries = 5

// goodAlone sends good packets without a flood.
func (c *crowd) goodAlone(ctx context.Context, d time.Duration) (g goodLoad, err error) {
	for range aloneTries {
		if g, err = c.good(ctx, d, false); err != nil || !g.broken() {
			break
		}
	}
	return g, err
}

// good sends good packets, alone or beside a flood.
func (c *crowd) good(ctx context.Context, d time.Duration, bad bool) (g goodLoad, err error) {
	if err := ctx.Err(); err != nil {
		return g, err
	}
	before, err := c.goodArrived(0)
	if err != nil {
		return g, err
	}
	sent, err := c.strangersRun(d, bad)
	if err != nil {
		return g, err
	}
	after, err := c.goodArrived(loadDrain)
	if err != nil {
		return g, err
	}
	g.sent = int(sent.Frames[0] + sent.Frames[1])
	g.lost = g.sent - int(after-before)
	if bad {
		g.badRate = float64(sent.Frames[2]+sent.Frames[3]) / sent.Took.Seconds()
	}
	return g, nil
}

// strangersRun runs the generator.
func (c *crowd) strangersRun(d time.Duration, bad bool) (sent load.Sent, err error) {
	pace := load.Pace{Rate: strangersGood, Time: d, Slack: strangersSlack}
	if bad {
		pace.Rate += strangersBad
	}
	err = onCPU(senderCPU, func() (err error) {
		sent, err = c.generator.Run(c.strangerLanes(bad), pace)
		return err
	})
	return sent, err
}

// goodArrived is how many good packets have arrived at both ends.
func (c *crowd) goodArrived(patience time.Duration) (n uint64, err error) {
	for _, m := range []*load.Meter{c.clientSink, c.hostSink} {
		count, err := m.Settle(classGood, patience)
		if err != nil {
			return 0, err
		}
		n += count
	}
	return n, nil
}

// newClients measures beside a flood how long it takes until the first packet to a
// client that the relay does not know arrives there, in seconds.
func (c *crowd) newClients(ctx context.Context, bad bool) (times []float64, err error) {
	for i := range newTries {
		c.internet.Addr("v4", fmt.Sprintf("198.51.100.%d/24", 10+i))
	}
	if err := c.internet.Lab().Err(); err != nil {
		return nil, err
	}
	flood := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := c.strangersRun(newTries*newPatience, bad)
		flood <- err
	}()
	defer func() {
		err = errors.Join(err, c.generator.Stop())
		<-ended
		err = errors.Join(err, <-flood)
	}()
	time.Sleep(loadDrain) // the flood has begun
	for i := range newTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		took, err := c.newClient(i)
		if err != nil {
			return nil, err
		}
		times = append(times, took.Seconds())
	}
	return times, nil
}

// newClient plays one new client, and its server.
func (c *crowd) newClient(number int) (time.Duration, error) {
	ip := netip.AddrFrom4([4]byte{198, 51, 100, byte(10 + number)})
	address := teredo.Addr{Prefix: teredo.Prefix, Server: ip, Mapped: netip.AddrPortFrom(ip, fakeClientPort)}.IP()
	fake, err := newFakeClient(c.internet, ip, address)
	if err != nil {
		return 0, err
	}
	defer fake.service.Close()
	defer fake.server.Close()
	packet := load.Packet(crowdHost, address, load.MinTaggedSize)
	load.Classify(packet, classNew)
	frame := load.Frame6(c.hostMAC, c.in6MAC, packet)
	before, err := c.clientSink.Count(classNew)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	var again time.Time
	for time.Since(start) < newPatience {
		if time.Now().After(again) {
			again = time.Now().Add(newAgain)
			if err := c.fromHost.Send(frame); err != nil {
				return 0, err
			}
		}
		time.Sleep(time.Millisecond)
		now, err := c.clientSink.Count(classNew)
		if err != nil {
			return 0, err
		}
		if now > before {
			return time.Since(start), nil
		}
	}
	return newPatience, nil
}
