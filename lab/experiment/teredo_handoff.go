// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
)

// Choices of teredo-handoff.
const (
	teredoHandoffName = "teredo-handoff"
	teredoHandoffRuns = 5
	deathRuns         = 3
	// moveDelay is that of the IPv4 links outside, one way, when a client moves
	// to another interface, so that a round trip can be told from the rest.
	moveDelay = 10 * time.Millisecond
	// recoveryWait bounds the wait for a recovery. Miredo needs 30 s.
	recoveryWait = 60 * time.Second
	// freshGap is the pause between pings to hosts that were not contacted before,
	// freshWait how long each waits.
	freshGap, freshWait = 100 * time.Millisecond, 2 * time.Second
	// movePings measure the round trip between the client and the host.
	movePings = 10
)

// teredoRecoveries are what one maker's programs reached.
type teredoRecoveries struct {
	lan, nat, server          []time.Duration // time to recovery
	lanLost, natLost, srvLost []float64
	softLost, hardLost        []float64
	hardGap                   []time.Duration // beyond a round trip
	trip                      []time.Duration
}

// teredoMoveCase measures one kind of change a number of times.
type teredoMoveCase struct {
	name string
	plan mobilePlan
	run  func(m *mobileNet, ctx context.Context, i int, into *teredoRecoveries) error
}

var (
	lanCase     = teredoMoveCase{"LAN address change", mobilePlan{}, (*mobileNet).changeLAN}
	mappingCase = teredoMoveCase{"NAT address change", mobilePlan{}, (*mobileNet).changeNAT}
	serverCase  = teredoMoveCase{"server death", mobilePlan{Servers: true}, (*mobileNet).killServer}
	softCase    = teredoMoveCase{"soft move to a standby interface", mobilePlan{Delay: moveDelay, Interfaces: true}, (*mobileNet).moveSoft}
	hardCase    = teredoMoveCase{"hard move to a standby interface", mobilePlan{Delay: moveDelay, Interfaces: true}, (*mobileNet).moveHard}
)

// teredoHandoff is the experiment.
func teredoHandoff(ctx context.Context, e *lab.Env) error {
	runs := cmp.Or(e.Runs, teredoHandoffRuns)
	ours, peer, err := measureTeredoHandoffs(ctx, e, runs)
	if err != nil {
		return err
	}
	return finish(e, teredoHandoffReport(ours, peer, missing(e, miredo)))
}

// measureTeredoHandoffs measures all cases. Miredo takes half a minute for each, in
// which it does next to nothing, so its cases run beside ours, each in a topology
// of its own, as does the death of our server; peer is nil if it cannot run. The
// goroutines fill different fields.
func measureTeredoHandoffs(ctx context.Context, e *lab.Env, runs int) (ours, peer *teredoRecoveries, err error) {
	ours = &teredoRecoveries{}
	group, ctx := errgroup.WithContext(ctx)
	if missing(e, miredo) == "" {
		peer = &teredoRecoveries{}
		e.Step("Miredo: LAN and NAT address change, once each, in the background")
		for _, c := range []teredoMoveCase{lanCase, mappingCase} {
			group.Go(func() error { return c.measure(ctx, e, miredo, 1, peer) })
		}
	}
	group.Go(func() error {
		for _, c := range []teredoMoveCase{lanCase, mappingCase, softCase, hardCase} {
			e.Step("Isthmus: %s, %d times", c.name, runs)
			if err := c.measure(ctx, e, isthmus, runs, ours); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		e.Step("Isthmus: %s, %d times, in the background", serverCase.name, min(runs, deathRuns))
		for range min(runs, deathRuns) { // each needs a living server
			if err := serverCase.measure(ctx, e, isthmus, 1, ours); err != nil {
				return err
			}
		}
		return nil
	})
	return ours, peer, group.Wait()
}

// measure draws the topology and measures the case in it.
func (c teredoMoveCase) measure(ctx context.Context, e *lab.Env, who maker, runs int, into *teredoRecoveries) (err error) {
	name := fmt.Sprintf("teredo-handoff-%s-%d", who, time.Now().UnixNano()%1e9)
	m, err := drawMobile(ctx, e, name, who, c.plan)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.name, who.title(), err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for i := range runs {
		if err := c.run(m, ctx, i, into); err != nil {
			return fmt.Errorf("%s, %s: %w; the client's log ends:\n%s", c.name, who.title(), err, lastLines(m.mobile.process.Log()))
		}
	}
	return nil
}

// during runs a flow, makes a change in the middle of it, waits until the flow is
// steady again, and gives what became of the packets.
func (m *mobileNet) during(ctx context.Context, change func() error) ([]flowPacket, moment, error) {
	f, err := startFlow(ctx, m.mobile.node, m.host, hostAddr)
	if err != nil {
		return nil, moment{}, err
	}
	err = f.await(ctx, time.Time{}, recoveryWait)
	at := moment{began: time.Now()}
	if err == nil {
		err = change()
		at.ended = time.Now()
	}
	if err == nil {
		err = f.await(ctx, at.ended, recoveryWait)
	}
	return f.end(), at, err
}

// recover is during with the figures of a change that no one can avoid.
func (m *mobileNet) recover(ctx context.Context, change func() error) (took time.Duration, n float64, err error) {
	packets, at, err := m.during(ctx, change)
	if err != nil {
		return 0, 0, err
	}
	took, ok := recovery(packets, at, flowWarm)
	if !ok {
		return 0, 0, errors.New("the flow did not recover")
	}
	return took, float64(unanswered(packets, at.began)), nil
}

// changeLAN gives the node another IPv4 address, as a new lease does.
func (m *mobileNet) changeLAN(ctx context.Context, i int, into *teredoRecoveries) error {
	from, to := alternate(i, mobileEth, mobileEthOther)
	took, n, err := m.recover(ctx, func() error {
		m.mobile.node.RemoveAddr("eth0", from+"/24").Addr("eth0", to+"/24")
		return m.route("eth0", mobileEthGateway, 100)
	})
	into.lan, into.lanLost = append(into.lan, took), append(into.lanLost, n)
	return err
}

// changeNAT gives the box another external address, as a provider does.
func (m *mobileNet) changeNAT(ctx context.Context, i int, into *teredoRecoveries) error {
	from, to := alternate(i, m.clients[0].external.String(), natOther)
	took, n, err := m.recover(ctx, func() error {
		m.nat.RemoveAddr("e4", from+"/24").Addr("e4", to+"/24")
		return m.lab.Err()
	})
	into.nat, into.natLost = append(into.nat, took), append(into.natLost, n)
	return err
}

// alternate swaps two values in each second run.
func alternate(i int, a, b string) (from, to string) {
	if i%2 == 1 {
		return b, a
	}
	return a, b
}

// moveSoft has the routes lead to the other interface, while both work.
func (m *mobileNet) moveSoft(ctx context.Context, i int, into *teredoRecoveries) error {
	standing := [2]string{"eth0 in_use, wlan0 standing_by", "eth0 standing_by, wlan0 in_use"}
	if err := m.awaitPaths(ctx, standing[i%2]); err != nil {
		return err
	}
	packets, at, err := m.during(ctx, func() error {
		if i%2 == 0 {
			return m.route("wlan0", mobileWLANGateway, 50)
		}
		return m.unroute("wlan0", mobileWLANGateway, 50)
	})
	if err != nil {
		return err
	}
	into.softLost = append(into.softLost, float64(unanswered(packets, at.began.Add(-flowEnd))))
	return m.awaitPaths(ctx, standing[1-i%2])
}

// moveHard cuts the link of the interface in use.
func (m *mobileNet) moveHard(ctx context.Context, _ int, into *teredoRecoveries) error {
	if err := m.awaitPaths(ctx, "eth0 in_use, wlan0 standing_by"); err != nil {
		return err
	}
	r, err := m.mobile.node.Ping(ctx, lab.Ping{To: hostAddr, Count: movePings, Interval: flowGap, Timeout: answerWait})
	if err != nil {
		return err
	}
	if r.Lost() > 0 {
		return fmt.Errorf("%d of %d pings to the host were lost before the move", r.Lost(), r.Sent())
	}
	packets, at, err := m.during(ctx, func() error { m.nat.Down("l2"); return m.lab.Err() })
	if err != nil {
		return err
	}
	// The shortest: a busy machine makes the others longer, and the gap would look
	// shorter in comparison.
	trip := slices.Min(r.RTT)
	into.trip = append(into.trip, trip)
	into.hardGap = append(into.hardGap, gapAcross(packets, at)-trip)
	into.hardLost = append(into.hardLost, float64(unanswered(packets, at.began.Add(-flowEnd))))
	if err := m.awaitPaths(ctx, "eth0 no_carrier, wlan0 in_use"); err != nil {
		return err
	}
	m.nat.Up("l2")
	return m.lab.Err()
}

// killServer ends the server in use. A flow that goes on does not need it, but
// whoever is new does: the recovery is the time until a host that was never
// contacted before answers.
func (m *mobileNet) killServer(ctx context.Context, _ int, into *teredoRecoveries) error {
	if err := m.drawHosts(); err != nil {
		return err
	}
	var took time.Duration
	packets, at, err := m.during(ctx, func() error {
		if err := m.daemons.stop(m.first); err != nil {
			return err
		}
		var err error
		took, err = m.awaitFresh(ctx)
		return err
	})
	if err != nil {
		return err
	}
	into.server = append(into.server, took)
	into.srvLost = append(into.srvLost, float64(unanswered(packets, at.began)))
	return nil
}

// freshHosts is how many addresses that were never contacted the host gets.
const freshHosts = 250

func freshHost(i int) netip.Addr {
	b := hostAddr.As16()
	b[14], b[15] = 1, byte(i)
	return netip.AddrFrom16(b)
}

// drawHosts gives the host many addresses more.
func (m *mobileNet) drawHosts() error {
	for i := range freshHosts {
		m.host.Addr("v6", freshHost(i).String()+"/64")
	}
	return m.lab.Err()
}

// awaitFresh pings hosts that were not contacted before, one after the other,
// until one answers, and reports how long that took.
func (m *mobileNet) awaitFresh(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	answered := make(chan time.Time, freshHosts)
	for i := range freshHosts {
		go func() {
			r, err := m.mobile.node.Ping(ctx, lab.Ping{To: freshHost(i), Timeout: freshWait})
			if err == nil && r.Received() > 0 {
				answered <- time.Now()
			}
		}()
		select {
		case at := <-answered:
			return at.Sub(began), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(freshGap):
		}
	}
	return 0, errors.New("no host that was not contacted before was reached")
}
