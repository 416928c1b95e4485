// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp"
)

// What both ends of an association of an experiment are given, whoever makes them.
const (
	sctpBuffer  = 1 << 20 // for sending and for receiving, at each end
	sctpMTU     = 1500
	sctpStreams = 4
)

// sctpNet is a sender and a receiver:
//
//	left eth0 2001:db8::a ------ 2001:db8::b eth0 right
type sctpNet struct {
	env         *lab.Env
	left, right *lab.Node
	program     string // that drives usrsctp
	ports       int    // that were given out
}

var (
	sctpLeft  = netip.MustParseAddr("2001:db8::a")
	sctpRight = netip.MustParseAddr("2001:db8::b")
)

// newSCTPNet draws the net, once the cable between its hosts is there.
func newSCTPNet(e *lab.Env, l *lab.Lab, name string, cable func(left, right *lab.Node) error) (*sctpNet, error) {
	program, err := usrsctp.Build(l.Dir())
	if err != nil {
		return nil, err
	}
	n := &sctpNet{env: e, left: l.Node(name + "-left"), right: l.Node(name + "-right"), program: program}
	if err := cable(n.left, n.right); err != nil {
		return nil, err
	}
	n.left.Addr("eth0", sctpLeft.String()+"/64")
	n.right.Addr("eth0", sctpRight.String()+"/64")
	return n, l.Err()
}

// sctpFlow is data under way from left to right, as fast as it goes.
type sctpFlow interface {
	// octets are those that the receiver has got until now.
	octets(ctx context.Context) (int, error)
	// pids are the processes of both ends, but for this one.
	pids() []int
	stop() error
}

// sctpMaker is who makes both ends of an association.
type sctpMaker struct {
	title string
	role  report.Role
	start func(n *sctpNet, ctx context.Context, size int) (sctpFlow, error)
}

var (
	byUsrsctp = sctpMaker{"usrsctp", report.Peer, (*sctpNet).startUsrsctp}
	byUs      = sctpMaker{"Isthmus", report.Ours, (*sctpNet).startOurs}
)

// nextPort gives each flow ports of its own, so that what is left of one cannot reach another.
func (n *sctpNet) nextPort() int {
	n.ports++
	return 20000 + n.ports
}

// ownFlow has both ends in this process.
type ownFlow struct {
	got     atomic.Int64
	running sync.WaitGroup
	ended   chan error // of an end
}

// run has an end work until its connection ends.
func (f *ownFlow) run(end func() error) { f.running.Go(func() { f.ended <- end() }) }

func (f *ownFlow) octets(context.Context) (int, error) {
	select {
	case err := <-f.ended:
		return 0, fmt.Errorf("it has ended: %w", err)
	default:
		return int(f.got.Load()), nil
	}
}

func (f *ownFlow) pids() []int { return nil }

func newOwnFlow() ownFlow { return ownFlow{ended: make(chan error, 2)} }

// ourFlow is an association of ours.
type ourFlow struct {
	ownFlow
	client, server *sctp.Conn
}

func (n *sctpNet) startOurs(ctx context.Context, size int) (sctpFlow, error) {
	par := sctp.Defaults()
	par.SendBuffer, par.ReceiveBuffer, par.MaxMTU, par.StreamsOut = sctpBuffer, sctpBuffer, sctpMTU, sctpStreams
	port := n.nextPort()
	c := sctp.Config{Parameters: &par, UDPPort: port}
	var l *sctp.Listener
	err := n.right.Do(func() (err error) {
		l, err = c.Listen(ctx, "sctp6+udp", fmt.Sprintf("[%s]:%d", sctpRight, port))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f := &ourFlow{ownFlow: newOwnFlow()}
	err = n.left.Do(func() (err error) {
		f.client, err = c.Dial(ctx, "sctp6+udp", fmt.Sprintf("[%s]:%d/%d", sctpRight, port, port))
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.server, err = l.AcceptSCTP(ctx); err != nil {
		f.client.Abort("not accepted")
		return nil, err
	}
	f.run(func() error { return f.send(size) })
	f.run(f.receive)
	return f, nil
}

func (f *ourFlow) send(size int) error {
	message := make([]byte, size)
	for i := 0; ; i++ {
		if err := f.client.WriteMessage(message, sctp.Message{Stream: uint16(i % sctpStreams)}); err != nil {
			return err
		}
	}
}

func (f *ourFlow) receive() error {
	b := make([]byte, 64<<10)
	for {
		got, _, err := f.server.ReadMessage(b)
		if err != nil {
			return err
		}
		f.got.Add(int64(got))
	}
}

func (f *ourFlow) stop() error {
	f.client.Abort("enough")
	f.server.Abort("enough")
	f.running.Wait()
	return nil
}

// usrsctpFlow is an association of two processes.
type usrsctpFlow struct{ source, sink *usrsctp.Peer }

// usrsctpForever is longer than any flow lives.
const usrsctpForever = 3600

func (n *sctpNet) startUsrsctp(ctx context.Context, size int) (sctpFlow, error) {
	port := n.nextPort()
	settings := []string{fmt.Sprintf("port=%d", port), fmt.Sprintf("peer-port=%d", port), fmt.Sprintf("udp=%d", port), fmt.Sprintf("peer-udp=%d", port),
		fmt.Sprintf("send-buffer=%d", sctpBuffer), fmt.Sprintf("receive-buffer=%d", sctpBuffer), fmt.Sprintf("mtu=%d", sctpMTU), fmt.Sprintf("streams=%d", sctpStreams)}
	sink, err := usrsctp.Start(ctx, n.right, n.program, usrsctp.Config{
		Name: fmt.Sprintf("sink-%d", port), Local: []netip.Addr{sctpRight}, Settings: settings,
	})
	if err != nil {
		return nil, err
	}
	source, err := usrsctp.Start(ctx, n.left, n.program, usrsctp.Config{
		Name: fmt.Sprintf("source-%d", port), Local: []netip.Addr{sctpLeft}, Remote: []netip.Addr{sctpRight},
		Settings: append(settings, "source=1", fmt.Sprintf("seconds=%d", usrsctpForever), fmt.Sprintf("size=%d", size)),
	})
	if err != nil {
		_ = sink.Stop()
		return nil, err
	}
	f := &usrsctpFlow{source, sink}
	if _, err := source.WaitFor(ctx, "^up "); err != nil {
		_ = f.stop()
		return nil, err
	}
	return f, nil
}

func (f *usrsctpFlow) octets(ctx context.Context) (int, error) {
	t, err := f.sink.Ask(ctx)
	return t.Octets, err
}

func (f *usrsctpFlow) pids() []int { return []int{f.source.PID(), f.sink.PID()} }

func (f *usrsctpFlow) stop() error {
	err := f.source.Stop()
	if e := f.sink.Stop(); err == nil {
		err = e
	}
	return err
}

// flowed is what a flow came to.
type flowed struct {
	rate float64 // Mbit/s of messages, at the receiver
	cpu  float64 // microseconds of all CPUs for each packet of data, 0 if no one counts
}

// measureFlow starts a flow, and measures it for so long once it has warmed up.
func (n *sctpNet) measureFlow(ctx context.Context, by sctpMaker, size int, warm, length time.Duration) (r flowed, err error) {
	f, err := by.start(n, ctx, size)
	if err != nil {
		return r, fmt.Errorf("%s: %w", by.title, err)
	}
	defer closing(&err, f.stop)
	u, err := countCPU(append(f.pids(), os.Getpid())...)
	if err != nil {
		return r, err
	}
	defer u.close()
	before, err := n.mark(ctx, f, u, warm)
	if err != nil {
		return r, fmt.Errorf("%s: %w", by.title, err)
	}
	after, err := n.mark(ctx, f, u, length)
	if err != nil {
		return r, fmt.Errorf("%s: %w", by.title, err)
	}
	return before.until(after, size), nil
}

// packetsOf is how many packets a message fills: the headers of IPv6, UDP and SCTP, and that of a DATA chunk go off.
func packetsOf(size int) int {
	const most = sctpMTU - 40 - 8 - 12 - 16
	return (size + most - 1) / most
}

// mark is how far a flow is.
type mark struct {
	at     time.Time
	octets int
	used   time.Duration
}

// until is what a flow of messages of that size came to between two marks.
func (m mark) until(after mark, size int) (r flowed) {
	octets := float64(after.octets - m.octets)
	r.rate = octets * 8 / after.at.Sub(m.at).Seconds() / 1e6
	if octets > 0 {
		packets := octets / float64(size) * float64(packetsOf(size))
		r.cpu = float64(after.used-m.used) / float64(time.Microsecond) / packets
	}
	return r
}

// mark waits, and looks at a flow.
func (*sctpNet) mark(ctx context.Context, f sctpFlow, u *usage, after time.Duration) (m mark, err error) {
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return m, ctx.Err()
	}
	if m.octets, err = f.octets(ctx); err != nil {
		return m, err
	}
	m.at, m.used = time.Now(), u.time()
	return m, nil
}
