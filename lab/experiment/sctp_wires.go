// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers/usrsctp"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/assoc"
	media "github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// wireCase is a run on real wires: transfers side by side, each with parameters of its own, under all of which the first
// wire is cut silently and made whole again.
type wireCase struct {
	pars  []assoc.Parameters
	wires [2]lab.WireConfig
	lead  time.Duration // before the cut, behind what paths take to be known
	cut   time.Duration // how long it lasts; 0: there is none
	tail  time.Duration // behind it
	every time.Duration // between messages
	media time.Duration // as much is sent as goes in this time; 0: in that of the run
	labs  int           // side by side; 0: one
	phase time.Duration // up to which the cut lasts longer, in each lab by another part of it
}

// wireTransfer is one that is under way.
type wireTransfer interface {
	// port is the terminal's.
	port() uint16
	// end waits for the end, and adds to what was seen what the wires do not show.
	end(s *studySeen) error
}

// wireMaker has a server and clients begin the transfers of a case.
type wireMaker func(w *wireCase, ctx context.Context, e *lab.Env, n *cutNet) ([]wireTransfer, error)

// known is how long paths take to be known: each RTO one of them is asked that the peer has only named.
func (w *wireCase) known() (longest time.Duration) {
	for i := range w.pars {
		longest = max(longest, 4*w.pars[i].RTOInitial+time.Second)
	}
	return longest
}

// length is how long transfers last.
func (w *wireCase) length() time.Duration { return w.known() + w.lead + w.cut + w.tail }

// onWires measures a case of our media server and one of usrsctp, side by side.
func onWires(ctx context.Context, e *lab.Env, ours, theirs *wireCase) (byUs, byThem []wireSeen, err error) {
	working, ctx := errgroup.WithContext(ctx)
	working.Go(func() (err error) {
		byUs, err = ours.run(ctx, e, byMedia)
		return err
	})
	working.Go(func() (err error) {
		byThem, err = theirs.run(ctx, e, pairsOfUsrsctp)
		return err
	})
	err = working.Wait()
	return byUs, byThem, err
}

// wireSeen is what a transfer has shown.
type wireSeen struct {
	par assoc.Parameters
	studySeen
	asked, answered time.Time // by the first wire: the first answer to a HEARTBEAT of the server behind its return, and that HEARTBEAT
}

// run measures the case, and returns what each transfer of each lab has shown.
func (w *wireCase) run(ctx context.Context, e *lab.Env, begin wireMaker) ([]wireSeen, error) {
	if len(w.pars) == 0 {
		return nil, nil
	}
	working, ctx := errgroup.WithContext(ctx)
	each := make([][]wireSeen, max(w.labs, 1))
	for i := range each {
		one := *w
		one.cut += time.Duration(i) * w.phase / time.Duration(len(each))
		working.Go(func() (err error) {
			each[i], err = one.runOnce(ctx, e, begin)
			return err
		})
	}
	err := working.Wait()
	return slices.Concat(each...), err
}

// runOnce measures it in one lab.
func (w *wireCase) runOnce(ctx context.Context, e *lab.Env, begin wireMaker) (all []wireSeen, err error) {
	n, err := drawWays(ctx, e, sctpWires, w.wires, false)
	if err != nil {
		return nil, err
	}
	defer closing(&err, n.lab.Close)
	ctx, cancel := context.WithTimeout(ctx, 2*w.length()+time.Minute)
	defer cancel()
	watch, err := watchSCTP(n)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	transfers, err := begin(w, ctx, e, n)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, w.known()+w.lead); err != nil {
		return nil, err
	}
	cut := time.Now()
	end := cut
	if w.cut > 0 {
		n.wires[0].Cut()
		if err := pause(ctx, w.cut); err != nil {
			return nil, err
		}
		end = time.Now() // what leaves from then on may come
		n.wires[0].Restore()
	}
	if err := pause(ctx, w.tail); err != nil {
		return nil, err
	}
	for i, t := range transfers {
		s := wireSeen{par: w.pars[i], studySeen: studySeen{begin: began, cutAt: cut, end: end, down: -1}}
		if err := t.end(&s.studySeen); err != nil {
			return nil, err
		}
		s.data = watch.of(t.port())
		s.read()
		s.gap = longestGap(s.data)
		s.asked, s.answered = watch.firstBeats(t.port(), end)
		all = append(all, s)
	}
	return all, nil
}

// ofWires is what transfers with these parameters have shown.
func ofWires(all []wireSeen, with func(*assoc.Parameters) bool) (seen []studySeen) {
	for i := range all {
		if with(&all[i].par) {
			seen = append(seen, all[i].studySeen)
		}
	}
	return seen
}

// timesOnWires are the times of those that came to it, in s.
func timesOnWires(all []wireSeen, of func(*studySeen) time.Duration, with func(*assoc.Parameters) bool) report.Value {
	return inSeconds(ofWires(all, with), of)
}

// addWires adds the time of each transfer to which x gives a place on the axis; to others it gives none.
func addWires(c *report.Curve, all []wireSeen, x func(*assoc.Parameters) (float64, bool), y func(*studySeen) time.Duration) {
	values := map[float64][]studySeen{}
	for i := range all {
		if at, ok := x(&all[i].par); ok {
			values[at] = append(values[at], all[i].studySeen)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(values)) {
		c.Add(at, inSeconds(values[at], y))
	}
}

// sctpWires names labs of transfers by two wires.
const sctpWires = "sctp-wires"

// longestGap is the longest time in which nothing came that had not come before.
func longestGap(data []studyData) (gap time.Duration) {
	firsts := map[uint32]time.Time{}
	for i := range data {
		d := &data[i]
		if at, ok := firsts[d.tsn]; !d.came.IsZero() && (!ok || d.came.Before(at)) {
			firsts[d.tsn] = d.came
		}
	}
	var times []time.Time
	for _, at := range firsts {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		gap = max(gap, times[i].Sub(times[i-1]))
	}
	return gap
}

// wireServer and wireTerminal are the addresses of both, by link.
var (
	wireServer   = []netip.Addr{linkAddress(0, "b"), linkAddress(1, "b")}
	wireTerminal = []netip.Addr{linkAddress(0, "a"), linkAddress(1, "a")}
)

// mediaTransfer is a transfer of our media server to our client.
type mediaTransfer struct {
	client  *media.Client
	getting errgroup.Group
	result  *media.Result
}

// byMedia runs one program with a media server for each choice of parameters, and a client of each.
func byMedia(w *wireCase, ctx context.Context, e *lab.Env, n *cutNet) (all []wireTransfer, err error) {
	var sections strings.Builder
	for i := range w.pars {
		w.writeServer(&sections, i)
	}
	server, err := instance{n.server, e.Binary, n.lab.Dir(), "media"}.run(ctx, sections.String())
	if err != nil {
		return nil, err
	}
	if _, err := server.WaitFor(ctx, "all instances are running"); err != nil {
		return nil, err
	}
	for i := range w.pars {
		t, err := w.get(ctx, n, i)
		if err != nil {
			return nil, fmt.Errorf("the media server of %v: %w", w.pars[i].RTOMin, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// wireSource is the source of media servers.
const wireSource = "stream"

// writeServer writes the section of a server.
func (w *wireCase) writeServer(b *strings.Builder, i int) {
	p := &w.pars[i]
	fmt.Fprintf(b, "[[sctp_media]]\nname = \"media-%d\"\nencapsulation = \"none\"\nport = %d\nlisten = [%q, %q]\nprimary = %q\nstreams = 1\n",
		i, cutPort+i, wireServer[0], wireServer[1], wireServer[0])
	fmt.Fprintf(b, "rto_initial = %q\nrto_min = %q\nrto_max = %q\npath_max_retrans = %d\nassociation_max_retrans = %d\n",
		p.RTOInitial, p.RTOMin, p.RTOMax, p.PathMaxRetrans, p.AssociationMaxRetrans)
	fmt.Fprintf(b, "pf_threshold = %d\nheartbeat_interval = %q\nsack_delay = %q\n",
		p.PotentiallyFailedMaxRetrans, p.HeartbeatInterval, p.SACKDelay)
	fmt.Fprintf(b, "early_probe = %t\nlink_events = %t\nspurious_timeouts = %t\nsetup_race = %t\n", p.EarlyProbe, p.LinkEvents, p.SpuriousTimeouts, p.SetupRace)
	rate := int(time.Second / w.every)
	length := w.media
	if length == 0 {
		length = w.length()
	}
	const size = cutSize - transfer.DataHeader
	fmt.Fprintf(b, "[[sctp_media.source]]\nname = %q\nrate = %d\nsize = %d\noctets = %d\n\n", wireSource, rate, size, max(int(length/w.every), 1)*size)
}

// get begins a transfer.
func (w *wireCase) get(ctx context.Context, n *cutNet, i int) (t *mediaTransfer, err error) {
	t = &mediaTransfer{}
	par := w.pars[i]
	dialing, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = n.ue.Do(func() (err error) {
		c := media.Config{Network: "sctp6", Local: "[2001:db8:1::a]/[2001:db8:2::a]:0", Parameters: par, Primary: wireTerminal[0]}
		t.client, err = media.Dial(dialing, c, fmt.Sprintf("%s:%d", n.addresses, cutPort+i))
		return err
	})
	if err != nil {
		return nil, err
	}
	const often = 200 // ms
	t.getting.Go(func() (err error) {
		t.result, err = t.client.Get(ctx, media.Options{Request: transfer.Request{Name: wireSource, Streams: 1, Report: often}})
		return err
	})
	return t, nil
}

func (t *mediaTransfer) port() uint16 { return t.client.Conn().LocalAddr().(*sctp.Addr).Port }

// end implements wireTransfer: the client compares digests.
func (t *mediaTransfer) end(s *studySeen) error {
	defer t.client.Abort()
	if err := t.getting.Wait(); err != nil {
		return err
	}
	for i := range t.result.Failovers {
		f := &t.result.Failovers[i]
		if f.From.Local != wireTerminal[0] || f.FirstNew.Before(s.cutAt) || f.FirstNew.After(s.end) {
			continue
		}
		if s.rto == 0 {
			s.rto = f.RTO
		}
		if f.Down != measure.Never && s.down < 0 {
			s.down = f.LastOld.Add(f.Down).Sub(s.cutAt)
		}
	}
	return nil
}

// usrsctpTransfer is one between two processes.
type usrsctpTransfer struct {
	at           uint16
	server, sink *usrsctp.Peer
	noticing     errgroup.Group
	down         time.Time // the server has said that the path is down
}

// pairsOfUsrsctp runs a pair of processes for each choice of parameters. They speak UDP (RFC 6951): each would answer what
// comes to another one without it.
func pairsOfUsrsctp(w *wireCase, ctx context.Context, _ *lab.Env, n *cutNet) (all []wireTransfer, err error) {
	program, err := usrsctp.Build(n.lab.Dir())
	if err != nil {
		return nil, err
	}
	for i := range w.pars {
		t, err := w.startUsrsctp(ctx, n, program, i)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (w *wireCase) startUsrsctp(ctx context.Context, n *cutNet, program string, i int) (t *usrsctpTransfer, err error) {
	p := &w.pars[i]
	port := cutPort + i
	settings := []string{fmt.Sprintf("port=%d", port), fmt.Sprintf("peer-port=%d", port), fmt.Sprintf("udp=%d", port), fmt.Sprintf("peer-udp=%d", port), "streams=1"}
	for name, d := range map[string]time.Duration{"rto-initial": p.RTOInitial, "rto-min": p.RTOMin, "rto-max": p.RTOMax, "heartbeat": p.HeartbeatInterval} {
		settings = append(settings, fmt.Sprintf("%s=%d", name, d.Milliseconds()))
	}
	settings = append(settings, fmt.Sprintf("path-max-retrans=%d", p.PathMaxRetrans), fmt.Sprintf("association-max-retrans=%d", p.AssociationMaxRetrans))
	if p.PotentiallyFailedMaxRetrans < p.PathMaxRetrans {
		settings = append(settings, fmt.Sprintf("potentially-failed=%d", p.PotentiallyFailedMaxRetrans))
	}
	t = &usrsctpTransfer{at: uint16(port)}
	t.server, err = usrsctp.Start(ctx, n.server, program, usrsctp.Config{
		Name: fmt.Sprintf("server-%d", i), Local: wireServer,
		Settings: append(settings, "source=1", fmt.Sprintf("seconds=%d", usrsctpForever), fmt.Sprintf("size=%d", cutSize), fmt.Sprintf("gap=%d", w.every.Microseconds())),
	})
	if err != nil {
		return nil, err
	}
	t.sink, err = usrsctp.Start(ctx, n.ue, program, usrsctp.Config{Name: fmt.Sprintf("terminal-%d", i), Local: wireTerminal, Remote: wireServer, Settings: settings})
	if err != nil {
		return nil, err
	}
	if _, err := t.sink.WaitFor(ctx, "^up "); err != nil {
		return nil, err
	}
	t.noticing.Go(func() error {
		if _, err := t.server.WaitFor(ctx, "^path "+wireTerminal[0].String()+" unreachable"); err == nil {
			t.down = time.Now()
		}
		return nil // it may not come to that
	})
	return t, nil
}

func (t *usrsctpTransfer) port() uint16 { return t.at }

// end implements wireTransfer.
func (t *usrsctpTransfer) end(s *studySeen) error {
	err := errors.Join(t.server.Stop(), t.sink.Stop())
	_ = t.noticing.Wait()
	if t.down.After(s.cutAt) {
		s.down = t.down.Sub(s.cutAt)
	}
	return err
}
