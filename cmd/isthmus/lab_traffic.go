// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/lab/traffic"
)

// LabTrafficCmd groups the two ends of the traffic generator.
type LabTrafficCmd struct {
	Send    TrafficSendCmd    `cmd:"" help:"Send a flow of messages to a receiver."`
	Receive TrafficReceiveCmd `cmd:"" help:"Receive flows, and show their delay, jitter, loss and throughput as ITGDec does."`
}

// TrafficSendCmd sends a flow.
type TrafficSendCmd struct {
	To          string        `arg:"" placeholder:"HOST:PORT" help:"Receiver, such as [2001:db8::1]:8999."`
	Protocol    string        `default:"udp" enum:"udp,tcp,sctp,mptcp" help:"udp, tcp, sctp or mptcp."`
	Rate        float64       `default:"1000" help:"Messages a second."`
	Poisson     bool          `help:"Exponential times between messages instead of constant ones."`
	Size        int           `default:"512" placeholder:"OCTETS" help:"Octets of a message, or their mean: ${default}."`
	MaxSize     int           `placeholder:"OCTETS" xor:"sizes" help:"Draw sizes evenly from --size to this one."`
	Exponential bool          `xor:"sizes" help:"Draw exponential sizes with the mean of --size."`
	Seed        uint64        `placeholder:"N" help:"Draw from this number: the same number gives the same flow."`
	Time        time.Duration `default:"10s" help:"How long to send."`
	Count       int           `placeholder:"N" help:"Stop behind so many messages."`
	Flow        uint32        `default:"1" help:"Number of the flow in logs."`
	Congestion  string        `placeholder:"NAME" help:"Congestion control of TCP and MPTCP, such as cubic."`
	NoDelay     bool          `help:"Switch off Nagle's algorithm of TCP and MPTCP."`
}

// flow is what the flags ask for.
func (c *TrafficSendCmd) flow() traffic.Flow {
	size := traffic.Size{Kind: traffic.Constant, Mean: c.Size}
	switch {
	case c.Exponential:
		size.Kind = traffic.Exponential
	case c.MaxSize > 0:
		size = traffic.Size{Kind: traffic.Uniform, Min: c.Size, Max: c.MaxSize}
	}
	return traffic.Flow{ID: c.Flow, Rate: c.Rate, Poisson: c.Poisson, Size: size, Seed: c.Seed, Duration: c.Time, Count: c.Count}
}

// Validate is called by kong.
func (c *TrafficSendCmd) Validate() error {
	if _, _, err := net.SplitHostPort(c.To); err != nil {
		return fmt.Errorf("write the receiver like [2001:db8::1]:8999: %w", err)
	}
	if stream := c.Protocol == string(traffic.TCP) || c.Protocol == string(traffic.MPTCP); !stream && (c.Congestion != "" || c.NoDelay) {
		return fmt.Errorf("%s has no --congestion and no --no-delay: leave them out, or write --protocol tcp or mptcp", c.Protocol)
	}
	f := c.flow()
	return f.Check()
}

// lastWait is how long a sender waits until all is delivered.
const lastWait = 30 * time.Second

// Run sends the flow.
func (c *TrafficSendCmd) Run(ctx context.Context, to streams) error {
	s, by, err := c.send(ctx)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody receives at %s by %s: start isthmus lab traffic receive there first (%w)", c.To, c.Protocol, err)
	case err != nil:
		return plainly(c.To, err)
	}
	fmt.Fprintf(to.out, "flow %d by %s: %d messages, %d octets in %.3f s; behind the schedule by %.3f ms in the mean, %.3f ms at most; %d not sent in time\n",
		c.Flow, by, s.Messages, s.Octets, s.Ended.Sub(s.Began).Seconds(), float64(s.Late)/1e6, float64(s.WorstLate)/1e6, s.Unsent)
	return nil
}

// trafficTroubles are errors of the kernel as people know them, and what to do; %s is the receiver's address.
var trafficTroubles = []struct {
	errno syscall.Errno
	text  string
}{
	{syscall.ENETUNREACH, "there is no route from here to %s: give this host an address of that family and a route"},
	{syscall.EHOSTUNREACH, "%s cannot be reached: see that its host is up, and that the routes on the way lead there"},
	{syscall.ETIMEDOUT, "nobody at %s answers: see that its host is up, and that no firewall on the way drops the packets"},
	{syscall.EPERM, "a firewall of this host refuses packets to %s: have it let them out"},
	{syscall.EMSGSIZE, "the messages do not fit into a packet to %s: choose a smaller --size"},
	{syscall.ECONNRESET, "the receiver at %s has ended the connection: see what it says, and start both again"},
	{syscall.EPIPE, "the receiver at %s has ended the connection: see what it says, and start both again"},
	{syscall.EADDRINUSE, "another program has %s: stop it, or choose another port by --listen"},
	{syscall.EADDRNOTAVAIL, "%s is no address of this host: choose one of those that ip address lists, or [::]"},
	{syscall.EACCES, "to listen at %s takes the rights of root: choose a port from 1024, or run it by sudo"},
}

// plainly is an error of the generator at an address in plain words, where the kernel has made it.
func plainly(at string, err error) error {
	var name *net.DNSError
	var congestion *traffic.CongestionError
	switch {
	case errors.As(err, &congestion):
		return congestion
	case errors.As(err, &name):
		return fmt.Errorf("the name in %s has no address: write the address, or see that a name server answers (%w)", at, err)
	}
	var from *net.OpError
	if !errors.As(err, &from) {
		return err
	}
	for _, one := range trafficTroubles {
		if errors.Is(err, one.errno) {
			return fmt.Errorf(one.text+" (%w)", at, err)
		}
	}
	return err
}

// send connects, sends the flow, and waits until it is delivered. by is what it went by.
func (c *TrafficSendCmd) send(ctx context.Context) (s traffic.Sent, by string, err error) {
	conn, err := traffic.Dial(ctx, traffic.Protocol(c.Protocol), c.To, traffic.Options{Congestion: c.Congestion, NoDelay: c.NoDelay})
	if err != nil {
		return s, "", err
	}
	by = c.Protocol
	if name := traffic.Congestion(conn); name != "" {
		by += ", congestion control " + name
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // a writer may wait for long
	f := c.flow()
	if s, err = f.Send(ctx, conn); err != nil {
		return s, by, errors.Join(err, conn.Close())
	}
	last, cancel := context.WithTimeout(ctx, lastWait)
	defer cancel()
	return s, by, traffic.Finish(last, conn)
}

// TrafficReceiveCmd receives flows.
type TrafficReceiveCmd struct {
	Listen   string        `default:"[::]:8999" placeholder:"HOST:PORT" help:"Where to listen: ${default}."`
	Protocol string        `default:"udp" enum:"udp,tcp,sctp,mptcp" help:"udp, tcp, sctp or mptcp."`
	Flows    int           `default:"1" placeholder:"N" help:"End behind so many flows; 0 goes on until Ctrl-C."`
	Log      string        `type:"path" placeholder:"FILE" help:"Write a row for each message, which ITGDec -t reads."`
	Window   time.Duration `default:"1s" help:"Width of the windows of --windows."`
	Windows  string        `type:"path" placeholder:"FILE" help:"Write flow, time, kbit/s, delay, jitter and loss of each window: the columns of ITGDec -c, behind the flow."`
}

// leastWindow is what D-ITG has, too. Each window has its row, also where nothing has come.
const leastWindow = time.Millisecond

// Validate is called by kong.
func (c *TrafficReceiveCmd) Validate() error {
	if c.Window < leastWindow || c.Flows < 0 {
		return fmt.Errorf("write a --window of %v or more, and --flows from 0", leastWindow)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("write --listen like [::]:8999: %w", err)
	}
	return nil
}

// Run receives until the flows have ended, or a signal comes.
func (c *TrafficReceiveCmd) Run(ctx context.Context, to streams) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, err := traffic.Listen(ctx, traffic.Protocol(c.Protocol), c.Listen, traffic.Options{})
	if err != nil {
		return plainly(c.Listen, err)
	}
	k := &trafficLog{out: to.out, width: c.Window, left: c.Flows, done: stop, flows: map[trafficKey]*traffic.Meter{}}
	for path, at := range map[string]**bufio.Writer{c.Log: &k.log, c.Windows: &k.windows} {
		if path == "" {
			continue
		}
		file, err := os.Create(path)
		if err != nil {
			return errors.Join(role.UsageError{Err: err}, r.Close())
		}
		defer file.Close()
		*at = bufio.NewWriter(file)
	}
	fmt.Fprintf(to.err, "listening at %s by %s\n", r.Addr, c.Protocol)
	if err := r.Run(ctx, k); err != nil {
		return err
	}
	if n := r.Strange(); n > 0 {
		fmt.Fprintf(to.err, "%d datagrams or connections were none of a generator\n", n)
	}
	return k.finish()
}

// maxTrafficFlows bounds the flows that are told apart.
const maxTrafficFlows = 1000

// trafficKey names a flow.
type trafficKey struct {
	flow     uint32
	from, to netip.AddrPort
}

// trafficLog takes what a receiver gets.
type trafficLog struct {
	out          io.Writer
	log, windows *bufio.Writer // nil without
	width        time.Duration
	left         int // flows until the end; below 1 there is none
	done         func()
	flows        map[trafficKey]*traffic.Meter // nil of one that has ended
	tooMany      int                           // messages and ends
	err          error
}

// meter is that of a flow; nil if the flow has ended, or is one too many.
func (k *trafficLog) meter(key trafficKey) *traffic.Meter {
	m, known := k.flows[key]
	switch {
	case known:
	case len(k.flows) == maxTrafficFlows:
		k.tooMany++
	default:
		m = traffic.NewMeter(k.width, func(w traffic.Window) { k.window(key.flow, w) })
		k.flows[key] = m
	}
	return m
}

// Got implements traffic.Sink.
func (k *trafficLog) Got(r *traffic.Record) {
	m := k.meter(trafficKey{r.Flow, r.From, r.To})
	if m == nil {
		return
	}
	m.Add(r)
	if k.log != nil {
		_, err := k.log.Write(traffic.AppendRow(nil, r))
		k.fail(err)
	}
}

func (k *trafficLog) window(flow uint32, w traffic.Window) {
	if k.windows != nil {
		_, err := k.windows.Write(traffic.AppendWindow(fmt.Appendf(nil, "%d ", flow), w))
		k.fail(err)
	}
}

// fail keeps the first error, and ends.
func (k *trafficLog) fail(err error) {
	if err != nil && k.err == nil {
		k.err = err
		k.done()
	}
}

// Ended implements traffic.Sink.
func (k *trafficLog) Ended(flow uint32, from, to netip.AddrPort, sent uint32) {
	key := trafficKey{flow, from, to}
	if m := k.meter(key); m == nil {
		return
	}
	k.end(key, sent)
	if k.left--; k.left == 0 {
		k.done()
	}
}

// end shows a flow.
func (k *trafficLog) end(key trafficKey, sent uint32) {
	m := k.flows[key]
	m.End(sent)
	k.flows[key] = nil
	k.fail(traffic.WriteSummary(k.out, key.flow, key.from, key.to, &m.Stats))
}

// finish shows the flows whose end has not come.
func (k *trafficLog) finish() error {
	for key, m := range k.flows {
		if m != nil {
			k.end(key, 0)
		}
	}
	for _, w := range []*bufio.Writer{k.log, k.windows} {
		if w != nil {
			k.fail(w.Flush())
		}
	}
	if k.tooMany > 0 {
		k.fail(fmt.Errorf("%d messages of more than %d flows were left out", k.tooMany, maxTrafficFlows))
	}
	return k.err
}
