// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// commands are `isthmus sctp`.
type commands struct {
	Get  Get  `cmd:"" help:"Get a file or a synthetic source by SCTP, by all networks that both ends have, and measure."`
	List List `cmd:"" help:"List what an SCTP media server has."`
}

// reached are the flags that say how a server is reached.
type reached struct {
	Server        string        `arg:"" help:"Server, such as media.example:5000 or [2001:db8:1::b]/[2001:db8:2::b]:5000; behind a last / a port of UDP other than 9899."`
	Raw           bool          `help:"Packets travel in IP, not in UDP; needs CAP_NET_RAW."`
	IPv4          bool          `name:"ipv4" short:"4" help:"IPv4 alone."`
	IPv6          bool          `name:"ipv6" short:"6" help:"IPv6 alone."`
	Local         string        `default:":0" placeholder:"ADDRESS" help:"Addresses of this host to use, such as 192.0.2.1/198.51.100.1:0; all, and those that come, if none is named."`
	UDPPort       int           `name:"udp-port" placeholder:"PORT" help:"Port of UDP on this host, if not any."`
	HideAddresses bool          `help:"Tell the server no address but those that packets come from, as behind a NAT."`
	Primary       string        `placeholder:"ADDRESS" help:"Address of this host that the server is asked to send to while it works."`
	Timeout       time.Duration `default:"1m" help:"How long the set-up may take (${default})."`
	JSON          bool          `name:"json" help:"Print JSON."`
	Tuning        `embed:"" group:"Parameters of SCTP:"`
}

// dial sets up the association, whose packets are written down if they are to be.
func (r *reached) dial(ctx context.Context, to *fetch.Recorder) (*fetch.Client, error) {
	c := fetch.Config{Network: "sctp", Local: r.Local, UDPPort: r.UDPPort, HideAddresses: r.HideAddresses, Parameters: r.parameters(), Recorder: to}
	switch {
	case r.IPv4 && r.IPv6:
		return nil, role.UsageError{Err: errors.New("--ipv4 and --ipv6 leave nothing: write one of them, or none")}
	case r.IPv4:
		c.Network += "4"
	case r.IPv6:
		c.Network += "6"
	}
	if !r.Raw {
		c.Network += "+udp"
	}
	if err := c.Parameters.Check(); err != nil {
		return nil, role.UsageError{Err: err}
	}
	if r.Buffer < leastBuffer {
		return nil, role.UsageError{Err: fmt.Errorf("--buffer %d: write %d or more", r.Buffer, leastBuffer)}
	}
	if r.Primary != "" {
		a, err := netip.ParseAddr(r.Primary)
		if err != nil {
			return nil, role.UsageError{Err: fmt.Errorf("--primary %q is no address", r.Primary)}
		}
		c.Primary = a
	}
	setup, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	client, err := fetch.Dial(setup, c, r.Server)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("nobody at %s has answered for %v: see that a media server runs there, at that port, and that no firewall on the way drops the packets", r.Server, r.Timeout)
	}
	return client, err
}

// closing is how long the end of an association may take.
const closing = 5 * time.Second

// List is `isthmus sctp list`.
type List struct {
	reached
}

// Run lists what a server has.
func (l *List) Run(ctx context.Context, to role.Screen) error {
	c, err := l.dial(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Abort()
	list, err := c.List(ctx)
	if err != nil {
		return err
	}
	if l.JSON {
		return json.NewEncoder(to.Out).Encode(entries(list))
	}
	w := tabwriter.NewWriter(to.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OCTETS\tMESSAGES/S\tNAME")
	for _, e := range list {
		rate := "-"
		if e.Rate > 0 {
			rate = fmt.Sprint(e.Rate)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", e.Octets, rate, e.Name)
	}
	return w.Flush()
}

// entry is one as JSON has it.
type entry struct {
	Name   string `json:"name"`
	Octets uint64 `json:"octets"`
	Rate   uint32 `json:"messages_per_second"`
}

func entries(list []transfer.Entry) []entry {
	all := []entry{}
	for _, e := range list {
		all = append(all, entry(e))
	}
	return all
}

// Get is `isthmus sctp get`.
type Get struct {
	reached
	Name    string        `arg:"" help:"What to get, as isthmus sctp list names it."`
	Output  string        `short:"o" placeholder:"FILE" help:"Write to this file, or - for standard output; else to one of the same name here."`
	Force   bool          `help:"Replace a file."`
	Discard bool          `help:"Measure alone; write nothing."`
	CSV     string        `name:"csv" type:"path" placeholder:"DIR" help:"Write tables into this folder: tsn, messages, rate, paths, marks, failovers."`
	Pcapng  string        `type:"path" placeholder:"FILE" help:"Write all packets of the association to this file."`
	Streams uint16        `placeholder:"N" help:"Streams for data; else as many as the server has."`
	Size    uint32        `placeholder:"OCTETS" help:"Octets of media in a message; else as the server likes."`
	Rate    uint32        `placeholder:"N" help:"Messages a second at most; else as the source is."`
	Offset  uint64        `placeholder:"OCTETS" help:"Leave out so many octets."`
	Limit   uint64        `placeholder:"OCTETS" help:"Get so many octets at most."`
	Report  time.Duration `default:"200ms" help:"How often the server says how its paths are (${default})."`
	Every   time.Duration `default:"1s" help:"How often a line tells of progress where there is no terminal; 0s is never (${default})."`
}

// Run gets a source.
func (g *Get) Run(ctx context.Context, to role.Screen) (err error) {
	if err := g.check(); err != nil {
		return role.UsageError{Err: err}
	}
	o := fetch.Options{Request: transfer.Request{
		Name: g.Name, Streams: g.Streams, Size: g.Size, Rate: g.Rate, Offset: g.Offset, Limit: g.Limit, Report: uint32(g.Report / time.Millisecond),
	}}
	v := view{to: to, start: time.Now()}
	v.choose(g, &o)
	out, err := g.output(to)
	if err != nil {
		return err
	}
	o.Output = out
	defer func() { err = errors.Join(err, out.finish(false)) }() // unless it is finished
	var recorder *fetch.Recorder
	if g.CSV != "" || g.Pcapng != "" {
		if recorder, err = fetch.NewRecorder(g.CSV, g.Pcapng, v.start); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, recorder.Close()) }()
	}
	c, err := g.dial(ctx, recorder)
	if err != nil {
		return err
	}
	r, err := c.Get(ctx, o)
	if v.end(); r != nil && r.Messages > 0 {
		v.result(r, g)
	}
	if err != nil {
		c.Abort()
		if errors.Is(err, context.Canceled) && r != nil {
			return fmt.Errorf("interrupted after %d octets", r.Octets)
		}
		return err
	}
	err = out.finish(true) // whatever becomes of the association, and of what was written down
	end, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if late := c.Close(end); late != nil {
		fmt.Fprintf(to.Err, "warning: all has come, but the server has not confirmed the end of the association: %v\n", late)
	}
	return err
}

// check looks at the flags.
func (g *Get) check() error {
	if err := transfer.CheckName(g.Name); err != nil {
		return fmt.Errorf("%q is the name of no source: write one that isthmus sctp list shows", g.Name)
	}
	switch {
	case g.Size > transfer.MaxData:
		return fmt.Errorf("--size %d: write %d at most", g.Size, transfer.MaxData)
	case g.Report < 0, g.Report/time.Millisecond > math.MaxUint32, g.Every < 0:
		return errors.New("--report and --every are times from 0s on")
	case g.Discard && g.Output != "":
		return errors.New("--discard and --output are two things: write one of them")
	}
	return nil
}
