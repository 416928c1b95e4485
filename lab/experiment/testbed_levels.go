// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/dot1x"
	"github.com/isthmus-net/isthmus/lab/report"
)

// levels goes through the six levels of interworking of 3GPP TR 22.934.
func (n *testbedNet) levels(ctx context.Context, r *report.Report) error {
	n.daemons.env.Step("levels of interworking")
	passed, err := n.refuse(ctx)
	if err != nil {
		return fmt.Errorf("access control: %w", err)
	}
	if err := n.refuseContext(ctx); err != nil {
		return err
	}
	services, err := n.services(ctx)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	r.Figures = append(r.Figures, report.Figure{Name: figureTestbedPassed, Isthmus: report.Measured(float64(passed)), Must: must(r.Experiment, figureTestbedPassed)})
	r.Tables = append(r.Tables, report.Table{
		Title:   "The six levels of interworking (3GPP TR 22.934)",
		Columns: []string{"level", "here"},
		Rows: [][]string{
			{"1 common billing and customer care", "the experiment umts-wlan-bill: one bill of both networks' records"},
			{"2 access control and charging", fmt.Sprintf("EAP-TLS and CHAP at one server; %d packets passed without, and a wrong password has no context", passed)},
			{"3 packet services over WLAN", services},
			{"4 service continuity", "the experiment sctp-seamless: associations alive"},
			{"5 seamless service continuity", "the experiment sctp-seamless: gaps"},
			{"6 circuit-switched services", "out: there is no circuit-switched core here"},
		},
	})
	return nil
}

// refuse has the terminal leave, and come with each certificate that is not good, and returns how many packets passed
// then. In the end it is in again, and its packets pass.
func (n *testbedNet) refuse(ctx context.Context) (passed int, err error) {
	closed := func() error {
		got, err := n.passes(ctx, 300*time.Millisecond)
		passed += got
		return err
	}
	if err := n.supplicant.Logoff(); err != nil {
		return 0, err
	}
	if _, err := n.port.AwaitClosed(ctx); err != nil {
		return 0, err
	}
	if err := closed(); err != nil {
		return passed, err
	}
	for _, kind := range []dot1x.Kind{dot1x.Revoked, dot1x.Expired, dot1x.Stranger} {
		before := n.port.State().Failures
		if err := n.present(ctx, kind); err != nil {
			return passed, err
		}
		wait, cancel := context.WithTimeout(ctx, daemonStart)
		_, err := n.port.Await(wait, "asked in vain", func(s dot1x.State) bool { return s.Failures > before })
		cancel()
		if err := errors.Join(err, closed()); err != nil {
			return passed, fmt.Errorf("with a certificate that is %s: %w", kind, err)
		}
	}
	if err := n.present(ctx, dot1x.Valid); err != nil {
		return passed, err
	}
	if err := n.awaitProved(ctx); err != nil {
		return passed, err
	}
	// The first ones may be lost for want of the router's link address, which nobody was told while the port was closed.
	if got, err := n.passes(ctx, answerWait); err != nil || got == 0 {
		return passed, errors.Join(err, errors.New("no packet of an authorised terminal passed"))
	}
	return passed, nil
}

// present has the terminal come with another certificate.
func (n *testbedNet) present(ctx context.Context, kind dot1x.Kind) (err error) {
	if err := n.supplicant.Stop(); err != nil {
		return err
	}
	if n.supplicant, err = n.certs.Start(ctx, n.ue, peersOf(n.daemons.env), n.daemons.dir, testbedWLAN, n.port, kind); err != nil {
		return err
	}
	return n.port.Associate(n.mac)
}

// testbedTries are how many packets try to pass the access router's port.
const testbedTries = 3

// passes is how many of them are answered by the router, which has the address fe80::1 there.
func (n *testbedNet) passes(ctx context.Context, wait time.Duration) (int, error) {
	r, err := n.ue.Ping(ctx, lab.Ping{
		To: netip.MustParseAddr("fe80::1").WithZone(testbedWLAN), Device: testbedWLAN, Count: testbedTries, Interval: 10 * time.Millisecond, Timeout: wait,
	})
	return r.Received(), err
}

// refuseContext has another terminal ask for a context with a wrong password.
func (n *testbedNet) refuseContext(ctx context.Context) error {
	var done sgsnrole.Done
	err := n.umts.order(ctx, "sgsn", "attach", sgsnrole.Attached{Terminal: sgsnrole.Terminal{
		GGSN: core4.ggsn.String(), APN: coreAPN(true), Type: "v6", IMSI: testbedOther, GTP: 1, NSAPI: 5, TUN: "none",
		User: dot1x.Valid.Identity(), Password: "wrong", Auth: "chap",
	}}, &done)
	if err == nil || !strings.Contains(err.Error(), "user authentication failed") {
		return fmt.Errorf("a wrong password was not refused: %v", err)
	}
	return nil
}

// services has the terminal get a second of voice by each network while the other is cut.
func (n *testbedNet) services(ctx context.Context) (string, error) {
	for i, other := range []*lab.Wire{n.umts.wire, n.wlan} {
		other.Cut()
		out, err := n.ue.Run(ctx, n.daemons.env.Binary, "sctp", "get", bracketed(testbedMedia)+":5000", "voice", "--discard", "--limit", "8000")
		other.Restore()
		if err != nil {
			return "", fmt.Errorf("by %s: %w\n%s", cutLinks[i], err, out)
		}
	}
	return "the media server on the GGSN's network is reached by WLAN, and by UMTS, while the other is cut", nil
}
