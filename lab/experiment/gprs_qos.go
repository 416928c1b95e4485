// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gprs-qos.
const (
	qosName      = "gprs-qos"
	qosTime      = 10 * time.Second
	qosShortTime = 3 * time.Second
	qosStep      = 200 * time.Microsecond // how often what is due is sent
	qosDrain     = 200 * time.Millisecond // for what is still on its way
	qosDSCP      = 8                      // cs1, which is not the usual one of background traffic
	// qosGranted is the highest rate that the emulator asks for by a profile; above it the rate is
	// one of all contexts together.
	qosGranted = 8640
)

// gprsQoS is the experiment gprs-qos.
var gprsQoS = lab.Experiment{
	Name:      qosName,
	Summary:   "rates of PDP contexts: UDP at twice the rate and TCP, both directions at once, and the DSCP of G-PDUs",
	NeedsRoot: true,
	Run:       runGPRSQoS,
}

func runGPRSQoS(ctx context.Context, e *lab.Env) error {
	rep := &report.Report{
		Experiment: qosName, Title: "Rates of PDP contexts",
		Notes: []string{
			"UDP is offered at twice the rate in both directions at once; sizes and rates are those of the inner packets. 100 is the rate of the configuration.",
			fmt.Sprintf("Up to %d kbit/s the rate is max_up and max_down, above it ambr_up and ambr_down. The GGSN has no fast path: all rows are of its engine.", qosGranted),
		},
	}
	rates, d := []int{128, 2000, 50_000}, qosTime
	if e.Runs > 0 && e.Runs < longRun {
		rates, d = []int{2000}, qosShortTime
	}
	for _, rate := range rates {
		if err := policedAt(ctx, e, rep, rate, d); err != nil {
			return fmt.Errorf("%d kbit/s: %w", rate, err)
		}
	}
	return finish(e, rep)
}

// policedAt measures one rate, in kbit/s.
func policedAt(ctx context.Context, e *lab.Env, rep *report.Report, rate int, d time.Duration) (err error) {
	n, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	key := "max"
	if rate > qosGranted {
		key = "ambr"
	}
	n.apn = fmt.Sprintf("%[1]s_up = %[2]d\n%[1]s_down = %[2]d\ndscp = [\"background cs1\"]\n", key, rate)
	if err := n.startGGSN(ctx, isthmus); err != nil {
		return err
	}
	m, err := n.attach(ctx, isthmus, attachment{version: 1})
	if err != nil {
		return err
	}
	up := qosFlow{from: n.sgsn, to: n.srv, source: m.addr, sink: coreSrv4, rate: 2 * rate, time: d}
	down := qosFlow{from: n.srv, to: n.sgsn, source: coreSrv4, sink: m.addr, rate: 2 * rate, time: d}
	for _, size := range []int{64, 1280} {
		e.Step("%d kbit/s, %d bytes", rate, size)
		other, failed := make(chan offered, 1), make(chan error, 1)
		go func() {
			got, err := up.run(ctx, size)
			other <- got
			failed <- err
		}()
		got, err := down.run(ctx, size)
		above := <-other
		if err := errors.Join(err, <-failed); err != nil {
			return err
		}
		for _, row := range []struct {
			direction string
			offered
		}{{"up", above}, {"down", got}} {
			name := fmt.Sprintf("%d kbit/s, %d bytes, %s", rate, size, row.direction)
			policed := report.Figure{Name: name + ": " + figurePoliced, Unit: "%", Decimals: 1, Must: must(qosName, figurePoliced)}
			if row.sent < 1.5*float64(rate) {
				policed.Must = nil // too little was offered to say
				rep.Fact(name, "only %.0f kbit/s could be offered", row.sent)
			}
			policed.Isthmus = report.Measured(100 * row.received / float64(rate))
			rep.Figures = append(rep.Figures,
				report.Figure{Name: name + ": offered", Unit: "%", Decimals: 1, Isthmus: report.Measured(100 * row.sent / float64(rate))}, policed)
		}
	}
	return errors.Join(n.policedStream(ctx, e, rep, m, rate, d), n.marked(down, rep, rate))
}

// qosFlow is UDP from one address to another, at a rate in kbit/s.
type qosFlow struct {
	from, to     *lab.Node
	source, sink netip.Addr
	rate         int
	time         time.Duration
}

// offered is what was sent and what came, in kbit/s of IP packets.
type offered struct{ sent, received float64 }

// udpHeaders are those of IPv4 and UDP.
const udpHeaders = 28

// run sends packets of a size for the time of the flow.
func (f qosFlow) run(ctx context.Context, size int) (o offered, err error) {
	var in, out *net.UDPConn
	err = f.to.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.sink, 0)))
		return err
	})
	if err != nil {
		return o, err
	}
	defer in.Close()
	err = f.from.Do(func() (err error) {
		out, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.source, 0)), in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return o, err
	}
	defer out.Close()
	if err := in.SetReadBuffer(4 << 20); err != nil {
		return o, err
	}
	came := make(chan int, 1)
	go func() {
		n, b := 0, make([]byte, size)
		for {
			if _, err := in.Read(b); err != nil {
				came <- n
				return
			}
			n++
		}
	}()
	sent, took, err := f.send(ctx, out, size)
	time.Sleep(qosDrain)
	in.Close()
	kbits := float64(8*size) / 1000 / took.Seconds()
	return offered{float64(sent) * kbits, float64(<-came) * kbits}, err
}

// send sends what is due until the time is over.
func (f qosFlow) send(ctx context.Context, out net.Conn, size int) (sent int, took time.Duration, err error) {
	b := make([]byte, size-udpHeaders)
	begin := time.Now()
	for ; took < f.time && ctx.Err() == nil; took = time.Since(begin) {
		for due := int(took.Seconds() * float64(f.rate) * 125 / float64(size)); sent < due; sent++ {
			if _, err := out.Write(b); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return sent, max(took, 1), err
			}
		}
		time.Sleep(qosStep)
	}
	return sent, took, ctx.Err()
}

// policedStream measures what TCP has of a rate, to the UE.
func (n *coreNet) policedStream(ctx context.Context, e *lab.Env, rep *report.Report, m *mobile, rate int, d time.Duration) error {
	e.Step("%d kbit/s, TCP", rate)
	var listener net.Listener
	err := n.sgsn.Do(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(m.addr, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	var out net.Conn
	err = n.srv.Do(func() (err error) {
		out, err = net.DialTimeout("tcp4", listener.Addr().String(), daemonStart)
		return err
	})
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := listener.Accept()
	if err != nil {
		return err
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
		return err
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
	rep.Figures = append(rep.Figures, report.Figure{
		Name: fmt.Sprintf("%d kbit/s, TCP down: goodput", rate), Unit: "%", Decimals: 1,
		Isthmus: report.Measured(100 * float64(8*got) / 1000 / took.Seconds() / float64(rate)),
	})
	return ctx.Err()
}

// marked looks at the code point of a G-PDU on its way to the SGSN, and of the packet inside.
func (n *coreNet) marked(down qosFlow, rep *report.Report, rate int) (err error) {
	var wire int
	err = n.sgsn.Do(func() (err error) {
		wire, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(wire)
	if err := unix.SetsockoptTimeval(wire, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	down.time, down.rate = 100*time.Millisecond, 64
	sent := make(chan error, 1)
	go func() {
		_, err := down.run(context.Background(), 100)
		sent <- err
	}()
	defer func() { err = errors.Join(err, <-sent) }()
	for p := make([]byte, 1<<16); ; {
		k, err := unix.Read(wire, p)
		if err != nil {
			return fmt.Errorf("no G-PDU came: %w", err)
		}
		if k < udpHeaders+8+20 || binary.BigEndian.Uint16(p[22:]) != gtp.PortUser || p[29] != byte(gtp.TypeGPDU) {
			continue
		}
		if got := p[1] >> 2; got != qosDSCP {
			return fmt.Errorf("G-PDUs have DSCP %d, not %d", got, qosDSCP)
		}
		rep.Fact(fmt.Sprintf("%d kbit/s: DSCP", rate), "%d outside, %d inside", p[1]>>2, p[udpHeaders+8+1]>>2)
		return nil
	}
}
