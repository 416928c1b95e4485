// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gprs-qos.
const (
	qosName      = "gprs-qos"
	qosTime      = 10 * time.Second
	qosShortTime = 2 * time.Second
	qosStep      = 500 * time.Microsecond // how often what is due is sent
	qosDrain     = 200 * time.Millisecond // for what is still on its way
	qosTwice     = 2                      // what is offered, of the rate
	qosEnough    = 1.5                    // what must have been offered for a rate to be judged
)

// gprsQoS is the experiment gprs-qos.
var gprsQoS = lab.Experiment{
	Name:      qosName,
	Summary:   "rates of PDP contexts: UDP at twice the rate in each direction, and TCP; DSCP of each class and ECN, on the wire",
	NeedsRoot: true,
	Run:       runGPRSQoS,
}

// qosCase is a rate in kbit/s, by the keys that begin with a word.
type qosCase struct {
	rate int
	key  string
}

func runGPRSQoS(ctx context.Context, e *lab.Env) error {
	rep := &report.Report{
		Experiment: qosName, Title: "Rates of PDP contexts",
		Notes: []string{
			"UDP is offered at twice the rate, one direction after the other; sizes and rates are those of the terminal's packets, of IPv6. 100 is the rate of the configuration. Offered is what came to the GGSN.",
			"max is max_up and max_down, which the SGSN asks for as the highest rate (MBR); ambr is ambr_up and ambr_down (APN-AMBR), without a limit of the context. The GGSN has no fast path: all rows are of its engine.",
			"Packets from the terminal are sent as G-PDUs by a socket at the SGSN, and those for it by one behind the GGSN, several by one system call; each crosses the cables by itself. What passes is counted at the device where it arrives.",
		},
	}
	cases, d := []qosCase{{128, "max"}, {2000, "max"}, {50_000, "max"}, {50_000, "ambr"}}, qosTime
	if e.Runs > 0 && e.Runs < longRun {
		cases, d = []qosCase{{2000, "max"}}, qosShortTime
	}
	for _, c := range cases {
		if err := c.measure(ctx, e, rep, d); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	if err := marksOnTheWire(ctx, e, rep); err != nil {
		return err
	}
	return finish(e, rep)
}

// String names the case in reports.
func (c qosCase) String() string { return fmt.Sprintf("%s %d kbit/s", c.key, c.rate) }

// measure has packets of two sizes offered in both directions, and TCP to the terminal.
func (c qosCase) measure(ctx context.Context, e *lab.Env, rep *report.Report, d time.Duration) (err error) {
	n, err := startQoS(ctx, e, fmt.Sprintf("%[1]s_up = %[2]d\n%[1]s_down = %[2]d\n", c.key, c.rate))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if c.key == "max" {
		if err := n.ask(ctx, sgsnrole.Quality{Class: "background", Up: uint32(c.rate), Down: uint32(c.rate)}); err != nil {
			return err
		}
	}
	ways, err := n.ways(ctx)
	defer func() {
		for _, w := range ways {
			err = errors.Join(err, w.close())
		}
	}()
	if err != nil {
		return err
	}
	for _, size := range []int{64, 1280} {
		for _, w := range ways {
			name := fmt.Sprintf("%s, %d bytes, %s", c, size, w.name)
			e.Step("%s", name)
			got, err := n.offer(ctx, &w, size, qosTwice*c.rate, d)
			if err != nil {
				return err
			}
			got.report(rep, name, float64(c.rate), d)
		}
	}
	if c.key != "max" {
		return nil
	}
	e.Step("%s, TCP", c)
	goodput, err := n.stream(ctx, d)
	rep.Figures = append(rep.Figures, report.Figure{
		Name: c.String() + ", TCP down: goodput", Unit: "%", Decimals: 1, Isthmus: report.Measured(100 * goodput / float64(c.rate)),
	})
	return err
}

// qosNet is a core with one UE.
type qosNet struct {
	*coreNet
	ue    *mobile
	sgsns instance
}

// startQoS starts a GGSN whose access points have further keys, and attaches a UE by IPv6.
func startQoS(ctx context.Context, e *lab.Env, keys string) (*qosNet, error) {
	core, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return nil, err
	}
	core.apn = keys
	// Each packet is to cross the cables by itself. The GGSN's ends join them, as network cards do.
	for _, end := range []struct {
		node   *lab.Node
		device string
	}{{core.sgsn, "gn"}, {core.ggsn, "gn"}, {core.ggsn, "gi"}, {core.srv, "gi"}} {
		err = errors.Join(err, end.node.DisableOffloads(end.device))
	}
	err = errors.Join(err, core.ggsn.EnableGRO("gn"), core.ggsn.EnableGRO("gi"))
	if err != nil {
		return nil, errors.Join(err, core.Close())
	}
	n := &qosNet{coreNet: core, sgsns: core.daemons.isthmus(core.sgsn, "sgsn")}
	if err = core.startGGSN(ctx, isthmus); err == nil {
		n.ue, err = core.attach(ctx, isthmus, attachment{version: 1, v6: true})
	}
	if err != nil {
		return nil, errors.Join(err, core.Close())
	}
	return n, nil
}

// ask has the SGSN ask for another quality, which it gets.
func (n *qosNet) ask(ctx context.Context, q sgsnrole.Quality) error {
	var done sgsnrole.Done
	return n.sgsns.order(ctx, "sgsn", "update", sgsnrole.Changed{Which: sgsnrole.Which{IMSI: testIMSI, NSAPI: 5}, Quality: q}, &done)
}

// qosWay is one direction: a socket at one end sends, and what passes is counted at the other's device.
type qosWay struct {
	name    string
	socket  *port.UDP
	meter   *load.Meter
	to      netip.AddrPort
	payload func(size int) []byte // of a datagram that brings or is a packet of the UE
}

// ways are both directions.
func (n *qosNet) ways(ctx context.Context) (ways []qosWay, err error) {
	teid, err := n.teid(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range []struct {
		qosWay
		from, at *lab.Node
		source   netip.Addr
		device   string
	}{
		{qosWay{name: "up", to: netip.AddrPortFrom(n.at.ggsn, gtp.PortUser), payload: func(size int) []byte {
			return append(gpduHeader(teid, size), load.Packet(n.ue.addr, coreSrv6, size)...)
		}}, n.sgsn, n.srv, n.at.sgsn, "gi"},
		{qosWay{name: "down", to: netip.AddrPortFrom(n.ue.addr, load.DiscardPort), payload: func(size int) []byte {
			return load.Packet(coreSrv6, n.ue.addr, size)[load.MinSize:]
		}}, n.srv, n.sgsn, coreSrv6, "gn"},
	} {
		if err := w.open(w.from, w.source, w.at, w.device); err != nil {
			return ways, err
		}
		ways = append(ways, w.qosWay)
	}
	return ways, nil
}

// open opens both ends.
func (w *qosWay) open(from *lab.Node, source netip.Addr, at *lab.Node, device string) (err error) {
	err = from.Do(func() (err error) {
		w.socket, err = port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(source, 0)})
		return err
	})
	if err != nil {
		return err
	}
	if w.meter, err = load.NewMeter(); err != nil {
		return errors.Join(err, w.socket.Close())
	}
	if err := at.Do(func() error { return w.meter.Arrival(device, load.HookTC) }); err != nil {
		return errors.Join(err, w.close())
	}
	return nil
}

func (w *qosWay) close() error { return errors.Join(w.socket.Close(), w.meter.Close()) }

// teid is the GGSN's of the user plane.
func (n *qosNet) teid(ctx context.Context) (uint32, error) {
	var list sgsnrole.Contexts
	if err := n.sgsns.ask(ctx, "sgsn", "contexts", struct{}{}, &list); err != nil {
		return 0, err
	}
	if len(list.Contexts) != 1 {
		return 0, fmt.Errorf("the SGSN has %d PDP contexts", len(list.Contexts))
	}
	return list.Contexts[0].TEIDs[3], nil
}

// judged is how many packets of a direction the GGSN has let pass, or dropped above the rate.
func (n *qosNet) judged(ctx context.Context, direction string) (uint64, error) {
	s, err := n.daemons.isthmus(n.ggsn, "ggsn").status(ctx)
	return uint64(s.Values[direction+"_packets_total"]) + s.Dropped["over_rate"], err
}

// offered is what was sent, what of it came to the GGSN, and what passed, in kbit/s of the UE's packets.
type offered struct{ sent, came, passed float64 }

// offer sends packets of a size at a rate in kbit/s.
func (n *qosNet) offer(ctx context.Context, w *qosWay, size, rate int, d time.Duration) (o offered, err error) {
	passed, err := w.meter.Total()
	if err != nil {
		return o, err
	}
	came, err := n.judged(ctx, w.name)
	if err != nil {
		return o, err
	}
	perSecond := float64(rate) * 1000 / float64(8*size)
	sent, took, err := w.send(ctx, size, perSecond, d)
	if err != nil {
		return o, err
	}
	passedThen, err := w.meter.SettleAll(qosDrain)
	if err != nil {
		return o, err
	}
	cameThen, err := n.judged(ctx, w.name)
	kbits := func(packets uint64) float64 { return float64(packets) * float64(8*size) / 1000 / took.Seconds() }
	return offered{kbits(sent), kbits(cameThen - came), kbits(passedThen - passed)}, err
}

// send sends so many packets a second: what is due goes out together, as trains that the kernel cuts, and between two
// looks at that the sender sleeps, so that it leaves the processor to the GGSN.
func (w *qosWay) send(ctx context.Context, size int, perSecond float64, d time.Duration) (sent uint64, took time.Duration, err error) {
	batch := slices.Repeat([]packet.Datagram{{To: w.to, Payload: w.payload(size)}}, port.MaxBatch)
	before, given := w.socket.Stats().WritePackets, 0
	for begin := time.Now(); took < d && ctx.Err() == nil; took = time.Since(begin) {
		for due := int(took.Seconds() * perSecond); given < due; {
			part := batch[:min(due-given, len(batch))]
			if err := w.socket.WriteBatch(part); err != nil {
				return 0, took, err
			}
			given += len(part)
		}
		time.Sleep(qosStep)
	}
	return w.socket.Stats().WritePackets - before, took, ctx.Err()
}

// report adds the figures of a rate. They are not judged where too little came to say, nor of a shorter run, of which what a
// context may be ahead is more.
func (o offered) report(rep *report.Report, name string, rate float64, d time.Duration) {
	policed := report.Figure{Name: name + ": " + figurePoliced, Unit: "%", Decimals: 1, Isthmus: report.Measured(100 * o.passed / rate)}
	switch {
	case o.came < qosEnough*rate:
		rep.Fact(name, "of %.0f kbit/s that were sent %.0f came to the GGSN: too little to judge its rate", o.sent, o.came)
	case d >= qosTime:
		policed.Must = must(qosName, figurePoliced)
	}
	rep.Figures = append(rep.Figures, report.Figure{Name: name + ": offered", Unit: "%", Decimals: 1, Isthmus: report.Measured(100 * o.came / rate)}, policed)
}

// stream is what TCP brings to the UE, in kbit/s.
func (n *qosNet) stream(ctx context.Context, d time.Duration) (goodput float64, err error) {
	var listener net.Listener
	err = n.sgsn.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(n.ue.addr, 0).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	var out net.Conn
	err = n.srv.Do(func() (err error) {
		out, err = net.DialTimeout("tcp", listener.Addr().String(), daemonStart)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	poured := make(chan struct{})
	go func() {
		defer close(poured)
		for block := make([]byte, 16<<10); ; {
			if _, err := out.Write(block); err != nil {
				return // the reader has enough
			}
		}
	}()
	got, begin, block := 0, time.Now(), make([]byte, 64<<10)
	if err := in.SetReadDeadline(begin.Add(d)); err != nil {
		return 0, err
	}
	for {
		k, err := in.Read(block)
		got += k
		if err != nil {
			break
		}
	}
	took := time.Since(begin)
	out.Close()
	<-poured
	return float64(8*got) / 1000 / took.Seconds(), ctx.Err()
}
