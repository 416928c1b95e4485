// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/teredo"
)

// crowd is a relay with very many clients, all played by two packet generators:
//
//	host ---in6 relay out4--- internet
//	2001:db8:1::/64           198.51.100.0/24
//
// Whatever the relay sends to IPv4 goes to the node internet, which drops it once
// it has been counted.
type crowd struct {
	host, router, internet *lab.Node
	isthmus                string // path of the program
	process                *lab.Proc
	control                *control.Client
	config                 string // path of the relay's configuration
	way                    way    // that packets take through the relay
	more                   string // lines of its section
	client                 func(i int) ([16]byte, netip.AddrPort)
	closers                []io.Closer

	hostMAC, in6MAC, out4MAC, internetMAC net.HardwareAddr
	fromHost, fromInternet                *load.Sender
	atHost, atInternet                    *load.Tap
	clientSink, hostSink                  *load.Meter // at the ends, for packets to clients and to the host
}

// Addresses of the crowd.
var (
	crowdHost  = netip.MustParseAddr("2001:db8:1::2")
	crowdRelay = netip.MustParseAddrPort("198.51.100.1:3545")
)

// newCrowd draws the topology.
func newCrowd(ctx context.Context, l *lab.Lab, isthmus string, w way) (_ *crowd, err error) {
	c := &crowd{isthmus: isthmus, way: w, client: clientOf, host: l.Node("host"), router: l.Node("relay"), internet: l.Node("internet")}
	l.Link(c.host, "v6", c.router, "in6")
	l.Link(c.router, "out4", c.internet, "v4")
	c.router.Forward(w == wayKernel, true).Addr("in6", "2001:db8:1::1/64").Addr("out4", "198.51.100.1/24").Route("default", "198.51.100.2")
	c.host.Addr("v6", "2001:db8:1::2/64").Route("2001::/32", "2001:db8:1::1")
	c.router.Route("2001:db8:8000::/33", "2001:db8:1::2")
	c.internet.Addr("v4", "198.51.100.2/24")
	if err := l.Err(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.openEnds(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.Dir(), "peers-")
	if err != nil {
		return nil, err
	}
	c.config = filepath.Join(dir, "isthmus.toml")
	c.control = control.NewClient(filepath.Join(dir, "control.sock"))
	return c, nil
}

// start starts the relay, with room for n clients and no limit on bubbles.
func (c *crowd) start(ctx context.Context, n int) error {
	if err := c.configure(n, 0); err != nil {
		return err
	}
	return c.launch(ctx)
}

// launch starts the relay's process and waits until it serves.
func (c *crowd) launch(ctx context.Context) (err error) {
	c.process, err = c.router.Start(ctx, lab.Process{Name: "isthmus", Path: c.isthmus, Args: []string{"run", "-c", c.config}})
	if err != nil {
		return err
	}
	_, err = c.process.WaitFor(ctx, "serving")
	return err
}

// configure writes the configuration; a bubble rate of 0 is no limit.
func (c *crowd) configure(n, bubbleRate int) error {
	dir := filepath.Dir(c.config)
	text := fmt.Sprintf("[control]\nsocket = %q\n\n[[teredo_relay]]\nbind = %q\nmax_peers = %d\nbubble_rate = %d\nfast_path = %q\nstate_file = %q\n%s",
		filepath.Join(dir, "control.sock"), crowdRelay, n, bubbleRate, c.way.fast, filepath.Join(dir, "peers"), c.more)
	return os.WriteFile(c.config, []byte(text), 0o644)
}

// openEnds opens what sends and what stamps, and makes both ends drop test packets.
// Taps see none of those that XDP drops.
func (c *crowd) openEnds(ctx context.Context) error {
	for _, m := range []struct {
		node  *lab.Node
		iface string
		mac   *net.HardwareAddr
	}{{c.host, "v6", &c.hostMAC}, {c.router, "in6", &c.in6MAC}, {c.router, "out4", &c.out4MAC}, {c.internet, "v4", &c.internetMAC}} {
		link, err := m.node.Netlink().LinkByName(m.iface)
		if err != nil {
			return err
		}
		*m.mac = link.Attrs().HardwareAddr
		if err := m.node.DisableOffloads(m.iface); err != nil {
			return err
		}
	}
	// Both sides of the relay shall know their neighbours before there is load.
	for _, p := range []struct {
		node *lab.Node
		to   string
	}{{c.host, "2001:db8:1::1"}, {c.internet, "198.51.100.1"}, {c.router, "2001:db8:1::2"}, {c.router, "198.51.100.2"}} {
		if r, err := p.node.Ping(ctx, lab.Ping{To: netip.MustParseAddr(p.to), Timeout: answerWait}); err != nil || r.Lost() > 0 {
			return fmt.Errorf("node %s cannot reach %s: %w", p.node.Name(), p.to, err)
		}
	}
	for _, end := range []struct {
		node   *lab.Node
		iface  string
		sender **load.Sender
		tap    **load.Tap
		sink   **load.Meter
	}{{c.host, "v6", &c.fromHost, &c.atHost, &c.hostSink}, {c.internet, "v4", &c.fromInternet, &c.atInternet, &c.clientSink}} {
		var err error
		if *end.sink, err = load.NewMeter(); err != nil {
			return err
		}
		c.closers = append(c.closers, *end.sink)
		err = end.node.Do(func() (err error) {
			if *end.sender, err = load.OpenSender(end.iface); err != nil {
				return err
			}
			c.closers = append(c.closers, *end.sender)
			if *end.tap, err = load.OpenTap(end.iface); err != nil {
				return err
			}
			c.closers = append(c.closers, *end.tap)
			return (*end.sink).Arrival(end.iface, c.way.hook())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close closes the ends; the lab stops the relay.
func (c *crowd) close() {
	for _, x := range c.closers {
		_ = x.Close()
	}
}

// toClient is a frame from the host, or another IPv6 address, to a client.
func (c *crowd) toClient(src netip.Addr, client [16]byte) []byte {
	return load.Frame6(c.hostMAC, c.in6MAC, load.Packet(src, netip.AddrFrom16(client), load.MinTaggedSize))
}

// toHost is a frame from a client to the host.
func (c *crowd) toHost(client [16]byte, mapped netip.AddrPort) []byte {
	inner := load.Packet(netip.AddrFrom16(client), crowdHost, load.MinTaggedSize)
	return load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, inner)
}

// bubble is a frame with a client's bubble, to the relay's IPv6 side.
func (c *crowd) bubble(to netip.Addr, client [16]byte, mapped netip.AddrPort) []byte {
	return load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, teredo.AppendBubble(nil, netip.AddrFrom16(client), to))
}

// crowdSource is the i-th of many IPv6 hosts, all played by one: the relay grants
// each network only so many new clients at a time.
func crowdSource(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0x80, 0, byte(i >> 8 & 0x3), byte(i), 15: 1})
}

// crowdWindow is how many clients are met at a time: fewer than may be under test,
// and than sockets and devices can hold.
const crowdWindow = 512

// crowdTries is how often a window is met before it counts as a failure: a busy
// machine loses packets in places that no relay sees.
const crowdTries = 100

// fill makes the relay trust the first n clients: the host sends to each, and each
// answers.
func (c *crowd) fill(ctx context.Context, n int) error {
	for from := 0; from < n; from += crowdWindow {
		to := min(from+crowdWindow, n)
		for try := 0; ; try++ {
			if err := c.meet(from, to); err != nil {
				return err
			}
			trusted, err := c.awaitTrusted(ctx, to)
			if err != nil {
				return err
			}
			if trusted >= to {
				break
			}
			if try == crowdTries {
				return fmt.Errorf("the relay trusts %d clients, and %d have answered", trusted, to)
			}
		}
	}
	return nil
}

// awaitTrusted waits until the relay trusts n clients, or a little, and returns how
// many it trusts.
func (c *crowd) awaitTrusted(ctx context.Context, n int) (trusted int, err error) {
	for range 10 {
		values, err := c.values(ctx)
		if err != nil {
			return 0, err
		}
		if trusted = int(values["trusted_peers"]); trusted >= n {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return trusted, nil
}

// meet has clients from to to-1 and the relay exchange a packet and a bubble. It
// waits for the bubbles of the relay, or a little, before it answers.
func (c *crowd) meet(from, to int) error {
	var out, in [][]byte
	for i := from; i < to; i++ {
		client, mapped := c.client(i)
		src := crowdSource(i)
		out = append(out, c.toClient(src, client))
		in = append(in, c.bubble(src, client, mapped))
	}
	before, err := received(c.internet, "v4")
	if err != nil {
		return err
	}
	if _, err := c.fromHost.SendAll(out); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Millisecond); time.Now().Before(deadline); time.Sleep(500 * time.Microsecond) {
		now, err := received(c.internet, "v4")
		if err != nil {
			return err
		}
		if now-before >= uint64(to-from) {
			break
		}
	}
	_, err = c.fromInternet.SendAll(in)
	return err
}

// received is how many frames an interface has received.
func received(n *lab.Node, iface string) (uint64, error) {
	link, err := n.Netlink().LinkByName(iface)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Statistics.RxPackets, nil
}

// values are the relay's counters and gauges.
func (c *crowd) values(ctx context.Context) (map[string]float64, error) {
	status, err := c.control.Status(ctx)
	if err != nil {
		return nil, err
	}
	if len(status.Instances) != 1 {
		return nil, errors.New("the relay is not in its own status")
	}
	return status.Instances[0].Values, nil
}

// resident is the memory of the relay's process that is its own, in bytes.
func (c *crowd) resident() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("the kernel does not tell the memory of the relay")
}

// limit sets the relay's bubble rate by a reload, as SIGHUP brings it about.
func (c *crowd) limit(ctx context.Context, n, bubbleRate int) error {
	if err := c.configure(n, bubbleRate); err != nil {
		return err
	}
	if err := c.process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	_, err := c.process.WaitFor(ctx, "reload")
	return err
}

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
	good, bad := c.goodFrames(), c.floodFrames(f)
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
			for _, side := range []struct {
				by     *load.Sender
				frames [][]byte
				base   uint64
			}{{c.fromHost, good.toClients, first}, {c.fromInternet, good.toHost, first + 1<<32}} {
				at := tick * perTick % len(side.frames)
				part := side.frames[at:][:perTick]
				for i, frame := range part {
					if err := load.Number(frame, side.base+uint64(tick*perTick+i)); err != nil {
						return err
					}
				}
				if n, err := side.by.SendAll(part); err != nil || n != len(part) {
					return fmt.Errorf("%d of %d good packets could be sent: %w", n, len(part), err)
				}
			}
			if err := bad.send(tick, badPerTick); err != nil {
				return err
			}
			// A sender that was kept waiting makes nothing up: that would be a
			// flood of another kind.
			next = next.Add(floodTick)
			if now := time.Now(); now.After(next.Add(floodTick)) {
				next = now
			}
			if wait := time.Until(next); wait > 0 {
				ts := unix.NsecToTimespec(int64(wait))
				_ = unix.Nanosleep(&ts, nil)
			}
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
	for _, end := range []struct {
		tap  *load.Tap
		base uint64
	}{{c.atInternet, first}, {c.atHost, first + 1<<32}} {
		for _, at := range end.tap.Take(end.base, n, 2*time.Second) {
			if at.IsZero() {
				b.lost++
			}
		}
	}
	return b, nil
}

// goodTraffic is frames of clients that the relay knows, each way.
type goodTraffic struct{ toClients, toHost [][]byte }

func (c *crowd) goodFrames() (g goodTraffic) {
	for i := range goodClients {
		client, mapped := clientOf(i)
		g.toClients = append(g.toClients, c.toClient(crowdHost, client))
		g.toHost = append(g.toHost, c.toHost(client, mapped))
	}
	return g
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
