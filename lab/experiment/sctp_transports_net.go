// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/lab/traffic"
	"github.com/isthmus-net/isthmus/sctp"
)

// tcpControl is the congestion control of TCP and MPTCP in experiments.
const tcpControl = "reno"

// transport is who carries messages: a protocol, by our generator or by D-ITG's, by the kernel, by us or by usrsctp.
type transport struct {
	title    string
	role     report.Role
	dots     bool // in pictures, beside another one of the role
	protocol traffic.Protocol
	carry    func(*transportNet, context.Context, transport, traffic.Flow, time.Duration) (carried, error)
}

var transports = []transport{
	carriedUDP:     {"UDP", report.Reference, false, traffic.UDP, (*transportNet).carryByUs},
	carriedTCP:     {"TCP Reno", report.Published, false, traffic.TCP, (*transportNet).carryByUs},
	carriedSCTP:    {"SCTP", report.Ours, false, traffic.SCTP, (*transportNet).carryByUs},
	carriedUsrsctp: {"SCTP, usrsctp", report.Peer, true, traffic.SCTP, (*transportNet).carryByUsrsctp},
	carriedMPTCP:   {"MPTCP Reno", report.OursXDP, false, traffic.MPTCP, (*transportNet).carryByUs},
	carriedDITGUDP: {"UDP, d-itg", report.Peer, false, traffic.UDP, (*transportNet).carryByDITG},
	carriedDITGTCP: {"TCP Reno, d-itg", report.OursTC, false, traffic.TCP, (*transportNet).carryByDITG},
}

// Places in transports.
const (
	carriedUDP = iota
	carriedTCP
	carriedSCTP
	carriedUsrsctp
	carriedMPTCP
	carriedDITGUDP
	carriedDITGTCP
)

// transportLab has terminals and servers on wires of their own, and the program that drives usrsctp.
type transportLab struct {
	env     *lab.Env
	lab     *lab.Lab
	usrsctp string
}

func newTransportLab(ctx context.Context, e *lab.Env, name string) (*transportLab, error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	program, err := usrsctp.Build(l.Dir())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &transportLab{e, l, program}, nil
}

// transportNet is a terminal and a server on a wire of their own:
//
//	ue eth0 2001:db8::a ------ 2001:db8::b eth0 server
type transportNet struct {
	*transportLab
	ue, server *lab.Node
	dir        string
	flows      int
	counted    bool // the time of the processor, since no other flow goes on
}

// net draws one.
func (t *transportLab) net(name string, c lab.WireConfig) (*transportNet, error) {
	l := t.lab
	n := &transportNet{transportLab: t, ue: l.Node(name + "-ue"), server: l.Node(name + "-server"), dir: filepath.Join(l.Dir(), name)}
	if _, err := l.Wire(n.ue, "eth0", n.server, "eth0", c); err != nil {
		return nil, err
	}
	n.ue.Addr("eth0", sctpLeft.String()+"/64")
	n.server.Addr("eth0", sctpRight.String()+"/64")
	return n, errors.Join(l.Err(), os.MkdirAll(n.dir, 0o755))
}

// carried is what became of a flow, without its begin.
type carried struct {
	traffic.Stats
	late        time.Duration // of the sender, behind its schedule: the mean
	sent, twice uint64        // chunks of SCTP, of the whole flow: that were sent first, and that came once more than needed
	cpu         float64       // microseconds of all CPUs for each message of the whole flow, 0 if no one counts
}

// flowSink takes what comes, but for the messages that were sent in the first while.
type flowSink struct {
	skip  time.Duration
	begin time.Time // of the flow, as its first message says
	base  uint32    // number of the last message that is skipped
	meter *traffic.Meter
	ended chan struct{}
}

func newFlowSink(skip time.Duration) *flowSink {
	return &flowSink{skip: skip, meter: traffic.NewMeter(0, nil), ended: make(chan struct{}, 1)}
}

// Got implements traffic.Sink.
func (c *flowSink) Got(r *traffic.Record) {
	if c.begin.IsZero() {
		c.begin = r.Sent
	}
	if r.Sent.Sub(c.begin) < c.skip {
		c.base = r.Number
		return
	}
	kept := *r
	kept.Number -= c.base
	c.meter.Add(&kept)
}

// Ended implements traffic.Sink.
func (c *flowSink) Ended(uint32, netip.AddrPort, netip.AddrPort, uint32) {
	select {
	case c.ended <- struct{}{}:
	default:
	}
}

// awaitEnd waits for the end of a flow of this length; not for what is still in buffers after a while, which shows nothing new.
func (c *flowSink) awaitEnd(ctx context.Context, length time.Duration) error {
	select {
	case <-c.ended:
	case <-time.After(max(length/4, carryEnd)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// sctpTransport is the configuration of associations beside TCP, whose buffers the kernel fits to the line.
func sctpTransport() sctp.Config {
	par := sctp.Defaults()
	par.SendBuffer, par.ReceiveBuffer, par.MaxMTU = sctpBuffer/4, sctpBuffer, sctpMTU
	return sctp.Config{Parameters: &par}
}

// awaitNeighbour pings until an answer comes.
func (n *transportNet) awaitNeighbour(ctx context.Context) error {
	return poll(ctx, daemonStart, time.Millisecond, func(ctx context.Context) (bool, error) {
		r, err := n.ue.Ping(ctx, lab.Ping{To: sctpRight, Timeout: 2 * time.Second})
		return r.Received() > 0, err
	})
}

// reception is a receiver of the server that runs.
type reception struct {
	*traffic.Receiver
	cancel  context.CancelFunc
	running errgroup.Group
}

// receive starts one.
func (n *transportNet) receive(ctx context.Context, p traffic.Protocol, o traffic.Options, sink traffic.Sink) (*reception, error) {
	r := &reception{}
	err := n.server.Do(func() (err error) {
		r.Receiver, err = traffic.Listen(ctx, p, fmt.Sprintf("[%s]:0", sctpRight), o)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.running.Go(func() error { return r.Run(ctx, sink) })
	return r, nil
}

// stop ends it: the sink gets nothing more.
func (r *reception) stop() error {
	r.cancel()
	return r.running.Wait()
}

// carry sends a flow from the terminal to the server.
func (n *transportNet) carry(ctx context.Context, t transport, f traffic.Flow, skip time.Duration) (c carried, err error) {
	if n.flows++; n.flows == 1 { // the neighbours find each other: no message is to wait for that
		if err := n.awaitNeighbour(ctx); err != nil {
			return c, err
		}
	}
	return t.carry(n, ctx, t, f, skip)
}

// send has our generator send the flow, and waits for its end; processes are those that carry it beside us.
func (n *transportNet) send(ctx context.Context, f traffic.Flow, by net.Conn, sink *flowSink, processes ...int) (sent traffic.Sent, cpu float64, err error) {
	var u *usage
	if n.counted {
		if u, err = countCPU(append(processes, os.Getpid())...); err != nil {
			return sent, 0, err
		}
		defer u.close()
	}
	before := u.time()
	if sent, err = f.Send(ctx, by); err == nil {
		err = sink.awaitEnd(ctx, f.Duration)
	}
	return sent, float64(u.time()-before) / float64(time.Microsecond) / float64(max(sent.Messages, 1)), err
}

// carryByUs has our generator send the flow, by the kernel or by package sctp.
func (n *transportNet) carryByUs(ctx context.Context, t transport, f traffic.Flow, skip time.Duration) (c carried, err error) {
	o := traffic.Options{Congestion: tcpControl, SCTP: sctpTransport()}
	sink := newFlowSink(skip)
	r, err := n.receive(ctx, t.protocol, o, sink)
	if err != nil {
		return c, err
	}
	defer closing(&err, r.stop)
	conn, err := n.dial(ctx, t.protocol, r.Addr, o)
	if err != nil {
		return c, err
	}
	defer conn.Close()
	sent, cpu, err := n.send(ctx, f, conn, sink)
	if err != nil {
		return c, err
	}
	if a, ok := conn.(*sctp.Conn); ok {
		s := a.Endpoint().Stats()
		c.sent, c.twice = s.Counters.Sent, r.SCTPStats().Duplicate
		a.Abort("enough")
	}
	err = r.stop()
	if t.protocol == traffic.UDP { // the others lose nothing
		sink.meter.End(uint32(max(sent.Messages-int(sink.base), 0)))
	}
	c.Stats, c.late, c.cpu = sink.meter.Stats, sent.Late, cpu
	return c, err
}

// dial connects the terminal.
func (n *transportNet) dial(ctx context.Context, p traffic.Protocol, to netip.AddrPort, o traffic.Options) (conn net.Conn, err error) {
	err = n.ue.Do(func() (err error) {
		conn, err = traffic.Dial(ctx, p, to.String(), o)
		return err
	})
	return conn, err
}

// Waits for the end of a flow: at least, once all is written, and at most for D-ITG's programs; and the first of their ports.
const (
	carryEnd  = 2 * time.Second
	ditgLimit = 30 * time.Second
	ditgPorts = 10000
)

// carryByDITG has D-ITG's generator send the flow, and its receiver write the log.
func (n *transportNet) carryByDITG(ctx context.Context, t transport, f traffic.Flow, skip time.Duration) (c carried, err error) {
	programs := peers.Peers{Dir: n.env.Peers}
	paths := map[string]string{}
	for _, name := range []string{"ITGRecv", "ITGSend", "ITGDec"} {
		if paths[name], err = programs.Program(name); err != nil {
			return c, err
		}
	}
	// Ports that no flow had before: what is left of a connection keeps ITGRecv, which ends with each flow, from listening
	// where it was.
	signal, data := ditgPorts+2*n.flows, ditgPorts+2*n.flows+1
	receiver, err := n.server.Start(ctx, lab.Process{Path: paths["ITGRecv"], Args: []string{"-Sp", strconv.Itoa(signal)}, Dir: n.dir})
	if err != nil {
		return c, err
	}
	defer closing(&err, receiver.Stop)
	if err := listening(ctx, n.server, signal, true); err != nil {
		return c, err
	}
	log := filepath.Join(n.dir, fmt.Sprintf("flow-%d", n.flows))
	sending, cancel := context.WithTimeout(ctx, f.Duration+ditgLimit)
	defer cancel()
	_, err = n.ue.Run(sending, paths["ITGSend"], "-a", sctpRight.String(), "-Sdp", strconv.Itoa(signal), "-rp", strconv.Itoa(data),
		"-T", strings.ToUpper(string(t.protocol)), "-C", fmt.Sprint(int(f.Rate)), "-c", fmt.Sprint(f.Size.Mean), "-t", fmt.Sprint(f.Duration.Milliseconds()),
		"-l", log+".sent", "-x", log)
	if err != nil {
		return c, err
	}
	if err := receiver.Stop(); err != nil { // which writes the log
		return c, err
	}
	if _, err := n.server.Run(ctx, paths["ITGDec"], log, "-l", log+".txt"); err != nil {
		return c, err
	}
	sink := newFlowSink(skip)
	if err := readLog(log+".txt", sink); err != nil {
		return c, err
	}
	sink.meter.End(0)
	return carried{Stats: sink.meter.Stats}, nil
}

// readLog gives the rows of D-ITG's text log to a sink.
func readLog(path string, to traffic.Sink) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		r, err := traffic.ParseRow(lines.Text())
		if err != nil {
			return err
		}
		to.Got(&r)
	}
	return lines.Err()
}
