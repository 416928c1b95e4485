// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of gprs-accounting.
const (
	accountingName     = "gprs-accounting"
	accountingSessions = 100_000
	accountingRun      = 200           // sessions, for each of --runs
	accountingPatience = 2 * time.Hour // for what 100,000 sessions have left in the spool
	accountingLook     = 50 * time.Millisecond
	accountingWay      = 10 * time.Second // for packets between GGSN and SGSN
)

// What terminals of gprs-accounting ask for, and the prefixes that there are for 120,000 of them.
const (
	accountingBoth    = "both"
	accountingPairs   = "pairs"
	accountingRouters = "routers"
)

var (
	accountingKinds = []guestKind{
		{name: "IPv4", apn: coreAPN(false), is: gtp.PDPTypeIPv4},
		{name: "IPv6", apn: coreAPN(true), is: gtp.PDPTypeIPv6, prefixes: 1},
		{name: "IPv4v6", apn: accountingBoth, is: gtp.PDPTypeIPv4v6, prefixes: 1},
		{name: "IPv6 with two prefixes", apn: accountingPairs, is: gtp.PDPTypeIPv6, prefixes: 2},
		{name: "IPv6 with a delegated prefix", apn: accountingRouters, is: gtp.PDPTypeIPv6, prefixes: 1, delegate: true},
	}
	accountingAccess = []coreAccess{
		{accountingBoth, "pool4 = [\"10.80.0.0/12\"]\npool6 = [\"2001:db8:7000::/44\"]\n"},
		{accountingPairs, "pool6 = [\"2001:db8:9000::/44\"]\nlink_prefixes = 2\n"},
		{accountingRouters, "pool6 = [\"2001:db8:8000::/36\"]\ndelegate = 56\n"},
	}
	accountingPool6 = netip.MustParsePrefix("2001:db8:6000::/44")
)

// gprsAccounting is the experiment gprs-accounting.
var gprsAccounting = lab.Experiment{
	Name:      accountingName,
	Summary:   "what the sessions of a GGSN have carried: a generator's octets, RADIUS accounts, charging records and status, while servers and GGSN are killed",
	NeedsRoot: true,
	Needs:     []string{"freeradius"},
	Run:       runGPRSAccounting,
}

// accountingNet is a mobile core that two FreeRADIUS behind the GGSN let terminals into, and are told by.
type accountingNet struct {
	*coreNet
	*guests
	ggsnProc *lab.Proc
	servers  [2]radiusServer
	// Those that end in good order, those whom a crash of the GGSN ends, and those who come after it.
	steady, open, late []int
	// By each GGSN's status, before its end, and by the SGSN, of the same times; before is what the SGSN had carried
	// before the GGSN of now.
	status, carried, before counted
	found                   accountingFound
}

// accountingFound is what was seen beside octets.
type accountingFound struct {
	again              int           // refusals of terminals that came in then
	entering, draining time.Duration // of the steady ones, and of what was in the spool
	spooled            float64       // records, at the crash
	lost               float64       // records that the GGSNs say they have lost
	starts             int           // of the GGSN without contexts of an earlier process
}

// radiusServer is a FreeRADIUS.
type radiusServer struct {
	command *peers.Command
	process *lab.Proc
	detail  string
}

func runGPRSAccounting(ctx context.Context, e *lab.Env) (err error) {
	sessions, timeout := accountingSessions, time.Second
	if e.Runs > 0 {
		sessions = e.Runs * accountingRun
		if e.Runs < longRun {
			timeout = 200 * time.Millisecond
		}
	}
	n, err := drawAccounting(ctx, e, sessions, timeout)
	if err != nil {
		return err
	}
	defer closing(&err, n.close)
	for _, step := range []func(context.Context) error{n.comeIn, n.talkAll, n.endSpooled, n.crash, n.comeLate} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	rep, err := n.report()
	if err != nil {
		return err
	}
	return finish(e, rep)
}

// drawAccounting starts all of it, with so many sessions and a tenth of that that is open when the GGSN is killed, and
// another that comes later. timeout is how long servers have for an answer.
func drawAccounting(ctx context.Context, e *lab.Env, sessions int, timeout time.Duration) (n *accountingNet, err error) {
	core, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return nil, err
	}
	n = &accountingNet{coreNet: core}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	n.steady, n.open, n.late = numbers(0, sessions), numbers(sessions, sessions/10), numbers(sessions+sessions/10, sessions/10)
	secret := filepath.Join(n.dir, "radius.secret")
	if err := os.WriteFile(secret, []byte(testbedSecret+"\n"), 0o600); err != nil {
		return n, err
	}
	n.pool4, n.pool6, n.further = loadPool, accountingPool6, accountingAccess
	n.apn = "advert_interval = \"6h\"\nauthenticate = \"radius\"\naccounting = \"radius\"\naccounting_interval = \"10m\"\n"
	n.more = fmt.Sprintf("request_rate = 1000000\nmax_contexts = 1000000\nradius_timeout = %q\nradius_dead_time = \"1s\"\naccounting_file = %q\ncharging_file = %q\n", timeout, filepath.Join(n.dir, "accounting"), n.charging())
	at := coreSrv4
	for i := range n.servers {
		if i > 0 {
			at = at.Next()
			n.srv.Addr("gi", at.String()+"/24")
		}
		if err := errors.Join(n.lab.Err(), n.prepare(i, at)); err != nil {
			return n, err
		}
		n.more += fmt.Sprintf("[[ggsn.radius]]\naddress = %q\nuse = \"both\"\nsecret_file = %q\n", at, secret)
		if err := n.startServer(i); err != nil {
			return n, err
		}
	}
	if n.guests, err = n.startGuests(sessions+2*(sessions/10), accountingKinds...); err != nil {
		return n, err
	}
	return n, n.startNode()
}

// numbers are so many from the first on.
func numbers(first, count int) (list []int) {
	for i := range count {
		list = append(list, first+i)
	}
	return list
}

// prepare writes the configuration of a server. The password of a terminal is its name.
func (n *accountingNet) prepare(i int, at netip.Addr) (err error) {
	s := &n.servers[i]
	s.detail = filepath.Join(n.dir, fmt.Sprintf("detail%d", i))
	s.command, err = peersOf(n.daemons.env).FreeRADIUS(n.dir, peers.FreeRADIUS{
		Name: fmt.Sprintf("radius%d", i), Listen: netip.AddrPortFrom(at, 1812), Client: coreGi4, Secret: testbedSecret, Detail: s.detail, Silent: true,
		Users: "DEFAULT Cleartext-Password := \"%{User-Name}\"\n",
	})
	return err
}

func (n *accountingNet) charging() string { return filepath.Join(n.dir, "charging.jsonl") }

// startServer starts a server, which may have been killed.
func (n *accountingNet) startServer(i int) (err error) {
	s := &n.servers[i]
	if s.process, err = n.daemons.startPeer(n.daemons.ctx, n.srv, fmt.Sprintf("freeradius%d", i), s.command, nil); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(n.daemons.ctx, daemonStart)
	defer cancel()
	_, err = s.process.WaitFor(wait, "Ready to process requests")
	return err
}

// startNode starts the GGSN, which may have been killed.
func (n *accountingNet) startNode() error {
	n.before = n.total()
	err := n.startGGSN(n.daemons.ctx, isthmus)
	if err == nil {
		n.ggsnProc = n.daemons.run[len(n.daemons.run)-1]
		n.found.starts++
	}
	return err
}

// kill ends a program as a crash does.
func (n *accountingNet) kill(p *lab.Proc) error {
	n.daemons.forget(p)
	err := p.Signal(unix.SIGKILL)
	<-p.Done()
	return err
}

// killServer and beginServer are what happens to servers meanwhile.
func (n *accountingNet) killServer(i int) func() error {
	return func() error { return n.kill(n.servers[i].process) }
}

func (n *accountingNet) beginServer(i int) func() error {
	return func() error { return n.startServer(i) }
}

// comeIn has terminals come in, while one server is killed after the other.
func (n *accountingNet) comeIn(ctx context.Context) error {
	all := slices.Concat(n.steady, n.open)
	n.daemons.env.Step("%d terminals come in by RADIUS, of IPv4, IPv6, both, IPv6 with two prefixes, and IPv6 with a delegated one; the first server is killed and comes back, then the second.", len(all))
	begin := time.Now()
	err := n.during(ctx, len(all), func(ctx context.Context) (err error) {
		n.found.again, err = n.enter(ctx, all)
		return err
	}, n.killServer(0), n.beginServer(0), n.killServer(1), n.beginServer(1))
	n.found.entering = time.Since(begin)
	return err
}

// talkAll has all of them send and get packets, and, of those who will be open at the crash, tell what they have had; then
// all do so again, while the servers are killed.
func (n *accountingNet) talkAll(ctx context.Context) error {
	n.daemons.env.Step("They send and get packets; %d tell of it by Interim-Updates.", len(n.open))
	all := slices.Concat(n.steady, n.open)
	if err := n.talk(ctx, all); err != nil {
		return err
	}
	if err := n.update(ctx, n.open); err != nil {
		return err
	}
	if err := n.quiet(ctx); err != nil {
		return err
	}
	if err := n.drained(ctx); err != nil {
		return err
	}
	n.daemons.env.Step("They do so again, while both servers are killed.")
	return n.during(ctx, len(all), func(ctx context.Context) error { return n.talk(ctx, all) }, n.killServer(0), n.killServer(1))
}

// endSpooled ends the sessions of the steady ones, which no server hears of yet.
func (n *accountingNet) endSpooled(ctx context.Context) error {
	n.daemons.env.Step("%d sessions end, and %d do not.", len(n.steady), len(n.open))
	return n.leave(ctx, n.steady)
}

// crash kills the GGSN; the next one has what the first has left, and is killed, too, and a server, while they are told.
func (n *accountingNet) crash(ctx context.Context) error {
	values, err := n.counts(ctx)
	if err != nil {
		return err
	}
	n.found.spooled = values["accounting_records"]
	n.daemons.env.Step("kill -9 of the GGSN, with %.0f records on its disk; a server starts, and the next GGSN, and both are killed while the server is told.", n.found.spooled)
	if err := n.kill(n.ggsnProc); err != nil {
		return err
	}
	if err := n.startServer(0); err != nil {
		return err
	}
	if err := n.startNode(); err != nil {
		return err
	}
	begin := time.Now()
	if err := n.told(ctx, n.found.spooled*3/4); err != nil {
		return err
	}
	if _, err := n.counts(ctx); err != nil {
		return err
	}
	if err := n.kill(n.ggsnProc); err != nil {
		return err
	}
	if err := n.startNode(); err != nil {
		return err
	}
	if err := n.told(ctx, n.found.spooled/2); err != nil {
		return err
	}
	if err := errors.Join(n.kill(n.servers[0].process), n.startServer(1), n.startServer(0)); err != nil {
		return err
	}
	err = n.drained(ctx)
	n.found.draining = time.Since(begin)
	return err
}

// comeLate has terminals come after the crash, send and get, and leave.
func (n *accountingNet) comeLate(ctx context.Context) error {
	n.daemons.env.Step("%d terminals more come in, send and get, and leave.", len(n.late))
	if _, err := n.enter(ctx, n.late); err != nil {
		return err
	}
	if err := n.talk(ctx, n.late); err != nil {
		return err
	}
	if err := n.quiet(ctx); err != nil {
		return err
	}
	if err := n.leave(ctx, n.late); err != nil {
		return err
	}
	if err := n.drained(ctx); err != nil {
		return err
	}
	_, err := n.counts(ctx)
	return err
}

// counts takes what the GGSN says before its end, when nothing is on its way between it and the SGSN, and what that says.
func (n *accountingNet) counts(ctx context.Context) (values map[string]float64, err error) {
	var status, carried counted
	err = poll(ctx, accountingWay, accountingLook, func(ctx context.Context) (_ bool, err error) {
		values, err = n.daemons.isthmus(n.ggsn, "ggsn").values(ctx)
		status, carried = counted{uint64(values["up_octets_total"]), uint64(values["down_octets_total"])}, n.total().less(n.before)
		return status == carried, err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // they differ, which the report says
	}
	n.status, n.carried = n.status.plus(status), n.carried.plus(carried)
	n.found.lost += values["accounting_lost_total"] + values["charging_lost_total"]
	return values, err
}

// told waits until so many records are left, and drained until none is.
func (n *accountingNet) told(ctx context.Context, left float64) error {
	return poll(ctx, accountingPatience, accountingLook, func(ctx context.Context) (bool, error) {
		values, err := n.daemons.isthmus(n.ggsn, "ggsn").values(ctx)
		return values["accounting_records"] <= left, err
	})
}

func (n *accountingNet) drained(ctx context.Context) error { return n.told(ctx, 0) }

// close ends all of it. A program that had ended by itself is an error.
func (n *accountingNet) close() (err error) {
	if n.guests != nil {
		err = n.guests.close()
	}
	return errors.Join(err, n.daemons.healthy(), n.coreNet.Close())
}

// report compares all sums.
func (n *accountingNet) report() (*report.Report, error) {
	n.finish()
	b, err := n.readBooks()
	if err != nil {
		return nil, err
	}
	return b.report(n), nil
}
