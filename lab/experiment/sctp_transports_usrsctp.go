// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/lab/traffic"
)

// usrsctpPair is an association of two processes, from the terminal to the server, whose messages our generator writes and
// reads.
type usrsctpPair struct{ source, sink *usrsctp.Peer }

// associateUsrsctp sets one up, with the buffers that ours have.
func (n *transportNet) associateUsrsctp(ctx context.Context) (p *usrsctpPair, err error) {
	par := sctpTransport().Parameters
	settings := []string{fmt.Sprintf("send-buffer=%d", par.SendBuffer), fmt.Sprintf("receive-buffer=%d", par.ReceiveBuffer), fmt.Sprintf("mtu=%d", par.MaxMTU), fmt.Sprintf("streams=%d", sctpStreams)}
	c := usrsctp.Config{Name: fmt.Sprintf("sink-%d", n.flows), Local: []netip.Addr{sctpRight}, Settings: settings, Messages: true}
	p = &usrsctpPair{}
	if p.sink, err = usrsctp.Start(ctx, n.server, n.usrsctp, c); err != nil {
		return nil, err
	}
	c.Name, c.Local, c.Remote = fmt.Sprintf("source-%d", n.flows), []netip.Addr{sctpLeft}, []netip.Addr{sctpRight}
	if p.source, err = usrsctp.Start(ctx, n.ue, n.usrsctp, c); err == nil {
		_, err = p.source.WaitFor(ctx, "^up ")
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// receive gives what comes to a sink until the pair is to end.
func (p *usrsctpPair) receive(into *errgroup.Group, sink traffic.Sink) {
	into.Go(func() error {
		new(traffic.Receiver).Serve(p.sink.Messages, sink)
		return nil
	})
}

// finish has both ends sum up: how many chunks of data have left, and how many came that had come before.
func (p *usrsctpPair) finish(ctx context.Context) (sent, twice uint64, err error) {
	var none uint64
	for _, end := range []struct {
		peer        *usrsctp.Peer
		sent, twice *uint64
	}{{p.source, &sent, &none}, {p.sink, &none, &twice}} {
		if err := end.peer.Messages.Close(); err != nil {
			return 0, 0, err
		}
		line, err := end.peer.WaitFor(ctx, "^data out ")
		if err != nil {
			return 0, 0, err
		}
		if _, err := fmt.Sscanf(line, "data out %d twice %d", end.sent, end.twice); err != nil {
			return 0, 0, fmt.Errorf("%q: %w", line, err)
		}
	}
	return sent, twice, nil
}

func (p *usrsctpPair) stop() (err error) {
	for _, end := range []*usrsctp.Peer{p.source, p.sink} {
		if end != nil {
			err = errors.Join(err, end.Stop())
		}
	}
	return err
}

// carryByUsrsctp has our generator send the flow by usrsctp.
func (n *transportNet) carryByUsrsctp(ctx context.Context, _ transport, f traffic.Flow, skip time.Duration) (c carried, err error) {
	p, err := n.associateUsrsctp(ctx)
	if err != nil {
		return c, err
	}
	defer closing(&err, p.stop)
	defer context.AfterFunc(ctx, func() { _ = p.source.Messages.Close() })() // who waits for room
	sink := newFlowSink(skip)
	var receiving errgroup.Group
	p.receive(&receiving, sink)
	sent, cpu, err := n.send(ctx, f, p.source.Messages, sink, p.source.PID(), p.sink.PID())
	if err != nil {
		return c, err
	}
	if c.sent, c.twice, err = p.finish(ctx); err != nil {
		return c, err
	}
	if err := receiving.Wait(); err != nil {
		return c, err
	}
	c.Stats, c.late, c.cpu = sink.meter.Stats, sent.Late, cpu
	return c, nil
}
