// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/internal/subscriber"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/dot1x"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

const testbedBillName = "umts-wlan-bill"

// umtsWLANBill is the first level of interworking: common billing.
var umtsWLANBill = lab.Experiment{
	Name: testbedBillName, NeedsRoot: true, Needs: testbedPrograms, Run: runBill,
	Summary: "one bill of what a subscriber has had of the UMTS and of the WLAN, beside what a generator has sent",
}

// billed is one session on a bill. Octets are those of IP packets, from the terminal and to it.
type billed struct {
	subscriber      *subscriber.Subscriber // nil: nobody
	session, access string
	begin, end      time.Time
	up, down        uint64
}

// runBill has the terminal come in by both networks, sends by each of them in both directions, has it leave, and writes
// the bill.
func runBill(ctx context.Context, e *lab.Env) (err error) {
	seconds := 10
	if e.Runs > 0 && e.Runs < longRun {
		seconds = 1
	}
	n, err := drawTestbed(ctx, e, testbedBillName, testbedMean())
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	e.Step("The terminal has come in by both networks; a generator sends by each of them, to it and from it, for %d s.", seconds)
	sent, err := n.generate(ctx, seconds)
	if err != nil {
		return err
	}
	e.Step("The terminal leaves both.")
	if err := n.leaveBoth(ctx); err != nil {
		return err
	}
	list, err := n.awaitBill(ctx)
	if err != nil {
		return err
	}
	charges, err := charged(n.charging())
	if err != nil {
		return err
	}
	return finish(e, billReport(list, charges, sent))
}

// generate sends datagrams by each network, and returns the octets of their packets.
func (n *testbedNet) generate(ctx context.Context, seconds int) (sent map[string]counted, err error) {
	sent = map[string]counted{}
	for i, rates := range [][2]int{{200, 300}, {20, 50}} { // a second: from the terminal, and to it
		var octets [2]uint64
		_, err := together(2, func(down int) (lab.DatagramResult, error) {
			c := lab.DatagramConfig{
				From: n.ue, To: n.media, Addr: testbedMedia, Local: n.addresses[i], Size: testbedDatagram, Rate: rates[down], Count: rates[down] * seconds,
			}
			if down == 1 {
				c.From, c.To, c.Addr, c.Local = n.media, n.ue, n.addresses[i], testbedMedia
			}
			octets[down] = uint64(c.Count) * (testbedDatagram + testbedHeaders)
			r, err := lab.Datagrams(ctx, c)
			if err == nil && r.Received != r.Sent {
				err = fmt.Errorf("%d of %d datagrams by %s arrived", r.Received, r.Sent, cutLinks[i])
			}
			return r, err
		})
		if err != nil {
			return nil, err
		}
		sent[billAccess[i]] = counted{octets[0], octets[1]}
	}
	return sent, nil
}

// billAccess are what a bill calls the networks, in the order of cutLinks.
var billAccess = [2]string{"WLAN", "UMTS"}

// leaveBoth ends both sessions: the terminal logs off, and closes its context.
func (n *testbedNet) leaveBoth(ctx context.Context) error {
	if err := n.supplicant.Logoff(); err != nil {
		return err
	}
	if _, err := n.port.AwaitClosed(ctx); err != nil {
		return err
	}
	var done sgsnrole.Done
	return n.umts.order(ctx, "sgsn", "detach", sgsnrole.Detached{Which: sgsnrole.Which{IMSI: testIMSI, NSAPI: 5}}, &done)
}

// awaitBill waits until the server has been told of the end of a session of each network.
func (n *testbedNet) awaitBill(ctx context.Context) (list []billed, err error) {
	who, err := subscriber.Read(n.subscribers())
	if err != nil {
		return nil, err
	}
	err = poll(ctx, daemonStart, 20*time.Millisecond, func(context.Context) (bool, error) {
		records, err := peers.ReadDetail(n.detail())
		if err != nil {
			return false, err
		}
		list, err = bill(records, n.port.Sessions(), who)
		return len(list) == len(billAccess), err
	})
	if err != nil {
		err = fmt.Errorf("%d sessions have ended by what the RADIUS server was told: %w", len(list), err)
	}
	return list, err
}

// bill joins records of both networks by subscriber. That of UMTS names the IMSI (TS 29.061 section 16.4.7), that of the
// WLAN the name that was proved by EAP, and it has no octets: the access router has.
func bill(records []peers.Accounting, sessions []dot1x.Session, who *subscriber.File) (list []billed, err error) {
	carried := map[string]dot1x.Session{}
	for _, s := range sessions {
		carried[s.ID] = s
	}
	for _, r := range records {
		if r["Acct-Status-Type"] != "Stop" {
			continue
		}
		one := billed{session: r["Acct-Session-Id"], end: time.Unix(int64(r.Number("Timestamp")-r.Number("Acct-Delay-Time")), 0).UTC()}
		one.begin = one.end.Add(-time.Duration(r.Number("Acct-Session-Time")) * time.Second)
		if imsi := r["3GPP-IMSI"]; imsi != "" {
			one.access, one.subscriber = billAccess[1], who.ByIMSI(imsi)
			one.up, one.down = r.Octets("Input"), r.Octets("Output")
		} else {
			s, ok := carried[one.session]
			if !ok {
				return nil, fmt.Errorf("the access router has counted no session %s", one.session)
			}
			one.access, one.subscriber, one.up, one.down = billAccess[0], who.ByPrivateID(r["User-Name"]), s.Up, s.Down
		}
		list = append(list, one)
	}
	return list, nil
}

// billReport is the bill, with what was sent beside it.
func billReport(list []billed, charges accounts, sent map[string]counted) *report.Report {
	r := &report.Report{Experiment: testbedBillName, Title: "One bill of both networks"}
	t := report.Table{
		Title:   "What the subscribers have had",
		Columns: []string{"subscriber", "access", "session", "begin, UTC", "end", "octets from the terminal", "sent", "octets to it", "sent"},
		Notes: []string{"Octets are those of IP packets. The GGSN counts those of UMTS, and the access router those of the WLAN: " +
			"hostapd tells begin and end, and counts nothing on a wire. Sent is by the generator; more than that is what terminals and routers say to each other through the context."},
	}
	var all, due counted
	byGGSN := accounts{}
	var less, more, nobodys uint64
	for _, one := range list {
		name := "nobody"
		if one.subscriber != nil {
			name = one.subscriber.IMSI + ", " + one.subscriber.PrivateID
		} else {
			nobodys++
		}
		s := sent[one.access]
		t.Rows = append(t.Rows, []string{
			name, one.access, one.session, one.begin.Format(time.TimeOnly), one.end.Format(time.TimeOnly),
			fmt.Sprint(one.up), fmt.Sprint(s.up), fmt.Sprint(one.down), fmt.Sprint(s.down),
		})
		less += excess(s.up, one.up) + excess(s.down, one.down)
		more += excess(one.up, s.up) + excess(one.down, s.down)
		all, due = all.plus(counted{one.up, one.down}), due.plus(s)
		if one.access == billAccess[1] {
			byGGSN[one.session] = counted{one.up, one.down}
		}
	}
	t.Rows = append(t.Rows, []string{"sum", "", "", "", "", fmt.Sprint(all.up), fmt.Sprint(due.up), fmt.Sprint(all.down), fmt.Sprint(due.down)})
	r.Tables = append(r.Tables, t)
	for _, f := range []struct {
		name string
		seen uint64
	}{{figureBillLess, less}, {figureBillCharge, byGGSN.off(charges)}, {figureBillNobodys, nobodys}} {
		r.Figures = append(r.Figures, report.Figure{Name: f.name, Isthmus: report.Measured(float64(f.seen)), Must: must(testbedBillName, f.name)})
	}
	r.Figures = append(r.Figures, report.Figure{Name: figureBillMore, Isthmus: report.Measured(float64(more))})
	return r
}
