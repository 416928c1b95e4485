// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Ports of the programs that load a server, and who is called.
const (
	sippCaller = 5080
	sippCallee = 5090
	sippUser   = "callee"
	sippOpen   = 200 // registrations that are under way at once
)

// sipRig is a SIP server of some maker, and a host where sipp registers, calls and is called:
//
//	clients ---- server
type sipRig struct {
	*walk
	clients, server *lab.Node
	process         *lab.Proc // of the server
	users           []string
	runs            int // of sipp, which distinguishes their files
}

// sipTook is how long a load took, by the clock and of the server's processor.
type sipTook struct{ clock, server time.Duration }

// sipLink is the link of the rig.
var sipLink = lan{number: 1, ipv6: true}

// newSIPRig draws the rig and starts the server, which has so many users.
func newSIPRig(ctx context.Context, e *lab.Env, who maker, users int) (_ *sipRig, err error) {
	w, err := newWalk(ctx, e, sipLoadName)
	if err != nil {
		return nil, err
	}
	r := &sipRig{walk: w}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	for i := range users {
		r.users = append(r.users, fmt.Sprintf("user%d", i))
	}
	r.clients, r.server = w.lab.Node("clients"), w.lab.Node("server")
	w.lab.Link(r.clients, "eth0", r.server, "eth0")
	r.server.Addr("eth0", sipLink.with(1))
	r.clients.Addr("eth0", sipLink.with(2))
	if err := w.lab.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(e.Capture(r.clients, "eth0"), r.serve(ctx, who)); err != nil {
		return nil, err
	}
	r.process = w.running[len(w.running)-1]
	return r, nil
}

// serve starts the server. Both keep bindings in memory alone; the bounds for one source are out of
// the way, since one host stands for all of them.
func (r *sipRig) serve(ctx context.Context, who maker) error {
	if who == kamailio {
		return r.serveKamailio(ctx, r.server, peers.Kamailio{
			Name: "kamailio", Listen: []netip.AddrPort{netip.AddrPortFrom(sipLink.at(1), sipPort)}, Domain: "example.net",
		})
	}
	var text strings.Builder
	for _, name := range append([]string{sippUser}, r.users...) {
		fmt.Fprintf(&text, "[[subscriber]]\nprivate_id = %q\npublic_ids = [\"sip:%s@example.net\"]\npassword = %q\n", name, name, name)
	}
	file := filepath.Join(r.dir, "subscribers.toml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return err
	}
	return r.walk.serve(ctx, r.server, fmt.Sprintf(`[[registrar]]
domains = ["example.net"]
listen = [%q]
subscribers_file = %q
algorithms = ["MD5"]
keep_state = false
rate_per_source = 0
max_transactions = 1000000
transactions_per_source = 1000000
`, sipLink.at(1), file))
}

// serveKamailio starts Kamailio and waits until it serves.
func (w *walk) serveKamailio(ctx context.Context, node *lab.Node, c peers.Kamailio) error {
	p, err := kamailioServer{c, w.env, w.dir, node}.start(ctx)
	if p != nil {
		w.running = append(w.running, p)
	}
	return err
}

// sipp runs sipp, whose run ends by itself, and says how long it took.
func (r *sipRig) sipp(ctx context.Context, c peers.Sipp) (took sipTook, err error) {
	command, err := r.command(&c)
	if err != nil {
		return took, err
	}
	before, err := processTime(r.process.PID())
	if err != nil {
		return took, err
	}
	began := time.Now()
	said, failed := r.clients.Run(ctx, append([]string{command.Path}, command.Args...)...)
	took.clock = time.Since(began)
	after, err := processTime(r.process.PID())
	took.server = after - before
	if failed != nil {
		failed = fmt.Errorf("%w; it said:\n%s", failed, lastLines(string(said)))
	}
	return took, errors.Join(err, failed)
}

// command completes a run of sipp.
func (r *sipRig) command(c *peers.Sipp) (*peers.Command, error) {
	r.runs++
	c.Name, c.Domain = fmt.Sprintf("sipp%d", r.runs), "example.net"
	return peersOf(r.env).Sipp(r.dir, *c)
}

// at is an address of the rig's host.
func (r *sipRig) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(sipLink.at(2), port) }

// remote is the server's.
func (r *sipRig) remote() netip.AddrPort { return netip.AddrPortFrom(sipLink.at(1), sipPort) }

// registerCallee registers the one who is called.
func (r *sipRig) registerCallee(ctx context.Context) error {
	_, err := r.sipp(ctx, peers.Sipp{
		Scenario: peers.SippRegistration("example.net", fmt.Sprint(sippCallee)), Users: []string{sippUser},
		Local: r.at(sippCaller), Remote: r.remote(), Calls: 1, Rate: 1,
	})
	return err
}

// registrations has the users register, as fast as they are answered.
func (r *sipRig) registrations(ctx context.Context, n int) (sipTook, error) {
	const unbounded = 100_000
	return r.sipp(ctx, peers.Sipp{
		Scenario: peers.SippRegistration("example.net", ""), Users: r.users,
		Local: r.at(sippCaller), Remote: r.remote(), Calls: n, Rate: unbounded, Open: sippOpen,
	})
}

// calls has so many calls made, and says how many failed, and what sipp said of the first.
func (r *sipRig) calls(ctx context.Context, rate, n int) (failed int, took sipTook, why string, err error) {
	answering := peers.Sipp{Scenario: peers.SippAnswering(sippUser), Local: r.at(sippCallee), Calls: n, Rate: rate}
	command, err := r.command(&answering)
	if err != nil {
		return 0, took, "", err
	}
	callee, err := r.clients.Start(ctx, lab.Process{Name: answering.Name, Path: command.Path, Args: command.Args})
	if err != nil {
		return 0, took, "", err
	}
	defer func() { _ = callee.Stop() }() // it waits for calls that have failed
	if err := serving(ctx, r.clients, callee, sippCallee); err != nil {
		return 0, took, "", err
	}
	calling := peers.Sipp{Scenario: peers.SippCalling("example.net", sippUser), Local: r.at(sippCaller), Remote: r.remote(), Calls: n, Rate: rate}
	took, ended := r.sipp(ctx, calling)
	if ctx.Err() != nil {
		return 0, took, "", ctx.Err()
	}
	name := fmt.Sprintf("sipp%d", r.runs)
	failed, err = peers.SippFailed(r.dir, name)
	if err == nil && failed == 0 {
		err = ended
	}
	return failed, took, peers.SippErrors(r.dir, answering.Name) + peers.SippErrors(r.dir, name), err
}
