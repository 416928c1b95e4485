// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Loads of new sessions, per second. The best of them counts: above what one core
// makes, it loses time to packets that it then drops.
var (
	newUDPLoads = []float64{200e3, 400e3, 600e3, 800e3, 1000e3, 1500e3}
	newTCPLoads = []float64{25e3, 50e3, 100e3, 150e3, 200e3, 300e3}
)

// tcpAhead is how many connections are open before the first is closed.
const tcpAhead = 2000

// scaleNew measures how many sessions one core makes.
func scaleNew(ctx context.Context, e *lab.Env, rep *report.Report, form scaleForm) error {
	clients := 0
	for _, loads := range [][]float64{form.udp, form.tcp} {
		for _, rate := range loads {
			clients += form.slices * fresh(rate)
		}
	}
	r, done, err := startTranslators(ctx, e, scaleName+"-new", translating{Crowd: true, More: crowdLines("")}, []way{wayTC, wayXDP}, clients)
	if err != nil {
		return err
	}
	defer done()
	table := report.Table{
		Title:   "new sessions per second on one core, thousands: median of slices at the best load",
		Columns: []string{"way", "UDP", "at a load of", "TCP, connected and closed", "at a load of"},
		Notes:   []string{"A TCP connection is three packets of the client (SYN, FIN, and both answers pass back): its host answers without state."},
	}
	costs := report.Table{
		Title:   "nanoseconds of CPU for each new session, in the same slices: median (lowest to highest slice)",
		Columns: []string{"way", "UDP", "TCP, connected and closed"},
		Notes:   []string{"Of receiving in the kernel, on all CPUs; not of the generator. What becomes no session costs, too: the best load may be more than the way carries."},
	}
	for _, p := range r.paths {
		e.Step("%s: new sessions, %d slices at each of %d loads", p.way.title, form.slices, len(form.udp)+len(form.tcp))
		if err := r.meetCrowd(ctx, p, clients); err != nil {
			return err
		}
		at := min(clients, meetEach*crowdNetworks) % clients
		udp, udpLoad, at, err := r.bestNew(ctx, p, form.udp, form.slices, clients, at, r.newUDP)
		if err != nil {
			return err
		}
		answers, err := r.answer(p)
		if err != nil {
			return err
		}
		tcp, tcpLoad, _, err := r.bestNew(ctx, p, form.tcp, form.slices, clients, at, answers.slice)
		if err := errors.Join(err, answers.host.Close()); err != nil {
			return err
		}
		table.Rows = append(table.Rows, []string{p.way.title, thousands(udp.made), fmt.Sprintf("%.0f", udpLoad/1e3), thousands(tcp.made), fmt.Sprintf("%.0f", tcpLoad/1e3)})
		costs.Rows = append(costs.Rows, []string{p.way.title, spread(udp.cpu, 0), spread(tcp.cpu, 0)})
		for _, f := range []struct {
			name string
			made []float64
		}{{figureNewUDP, udp.made}, {figureNewTCP, tcp.made}} {
			figure := report.Figure{Name: p.way.title + ": " + f.name, Unit: "thousands", Isthmus: report.Measured(inThousands(f.made)...)}
			if p.way == wayXDP && form.rounds >= longRun {
				figure.Must = must(scaleName, f.name)
			}
			rep.Figures = append(rep.Figures, figure)
		}
	}
	rep.Tables = append(rep.Tables, table, costs)
	return r.healthy()
}

// newSessions are slices: sessions made in a second, and nanoseconds of CPU for each.
type newSessions struct{ made, cpu []float64 }

func (n *newSessions) add(r rate) {
	n.made = append(n.made, r.passed)
	if r.cpu > 0 {
		n.cpu = append(n.cpu, r.cpu)
	}
}

// fresh is how many clients a slice of that load needs.
func fresh(rate float64) int { return int(rate*loadSlice.Seconds()) + tcpAhead + tcpAhead/2 }

// newSlice makes sessions of so many clients from the first on, at that load a second:
// what has passed are sessions.
type newSlice func(p *rigPath, first, clients int, load float64) (rate, error)

// bestNew tries all loads and returns the slices of the best, that load, and the
// next client that has no session.
func (r *rig) bestNew(ctx context.Context, p *rigPath, loads []float64, slicesEach, clients, at int, slice newSlice) (best newSessions, load float64, next int, err error) {
	for _, offered := range loads {
		var tried newSessions
		for range slicesEach {
			if err := ctx.Err(); err != nil {
				return best, 0, at, err
			}
			need := fresh(offered)
			if at+need > clients {
				at = 0 // those whom the translator met first: few
			}
			made, err := slice(p, at, need, offered)
			if err != nil {
				return best, 0, at, fmt.Errorf("%s: %w", p.way.title, err)
			}
			tried.add(made)
			at += need
		}
		if len(best.made) == 0 || report.Measured(tried.made...).Median() > report.Measured(best.made...).Median() {
			best, load = tried, offered
		}
	}
	return best, load, at, nil
}

// newUDP sends one packet of each client: what arrives has made a session.
func (r *rig) newUDP(p *rigPath, first, clients int, offered float64) (rate, error) {
	got, err := r.over(p, toIPv4, []load.Lane{p.crowd(first, clients, 0)}, load.Pace{Rate: offered, Time: loadSlice, Slack: loadSlice})
	if err != nil {
		return rate{}, err
	}
	if int(got.sent.All()) > clients {
		return rate{}, fmt.Errorf("%d packets of %d clients were sent: not each has made a session", got.sent.All(), clients)
	}
	return got.rate(), nil
}

// answeredWay is a way whose outside accepts and closes TCP connections.
type answeredWay struct {
	*rig
	host *load.Answerer
}

// answer makes outside accept and close connections of a way. The meters go: one
// place has room for one program that takes frames.
func (r *rig) answer(p *rigPath) (*answeredWay, error) {
	p.unmeter()
	host, err := load.NewAnswerer()
	if err != nil {
		return nil, err
	}
	name := p.way.name
	err = errors.Join(
		r.right.Do(func() error { return host.Answer(name, p.way.hook()) }),
		r.left.Do(func() error { return host.Listen(name, p.way.hook()) }),
	)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return &answeredWay{r, host}, nil
}

// segments is a lane of TCP segments of the clients.
func (p *rigPath) segments(flags byte, first, n, start int) load.Lane {
	lane := p.crowd(first, n, start)
	lane.Frame = load.Segment(p.leftMAC, p.in6MAC, netip.AddrPortFrom(p.source, flowPort), netip.AddrPortFrom(p.target, load.DiscardPort), flags)
	return lane
}

// slice opens connections and closes them a little later.
func (a *answeredWay) slice(p *rigPath, first, clients int, offered float64) (rate, error) {
	opened := 0
	for opened < tcpAhead {
		lane := p.segments(load.SYN, first, clients, opened)
		got, err := a.answers(p, []load.Lane{lane}, load.Pace{Rate: newTCPLoads[0], Time: loadSlice, Slack: loadSlice})
		if err != nil {
			return rate{}, err
		}
		opened += int(got.sent.All())
	}
	lanes := []load.Lane{p.segments(load.SYN, first, clients, opened), p.segments(load.FIN|load.ACK, first, clients, 0)}
	got, err := a.answers(p, lanes, load.Pace{Rate: 2 * offered, Time: loadSlice, Slack: loadSlice})
	if err != nil {
		return rate{}, err
	}
	if opened += int(got.sent.Frames[0]); opened > clients {
		return rate{}, fmt.Errorf("%d connections of %d clients were opened: not each is new", opened, clients)
	}
	return got.rate(), nil
}

// answers runs the generator; what arrives are connections that were opened and closed,
// by the answers that came back.
func (a *answeredWay) answers(p *rigPath, lanes []load.Lane, pace load.Pace) (r ran, err error) {
	before, err := a.host.Count()
	if err != nil {
		return r, err
	}
	since, err := a.host.Arrived()
	if err != nil {
		return r, err
	}
	used := a.usage.time()
	if r.sent, err = a.send(p.way, lanes, pace); err != nil {
		return r, err
	}
	after, err := a.host.Settle(loadDrain)
	if err != nil {
		return r, err
	}
	passed, err := a.host.ArrivedUntil(since, r.sent.End)
	opened, closed := after.SYNBack-before.SYNBack, after.FINBack-before.FINBack
	r.arrived, r.used = min(opened, closed), a.usage.time()-used
	r.passed = r.arrived * passed / max(opened+closed, 1)
	return r, err
}
