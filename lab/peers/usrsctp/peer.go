// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package usrsctp

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// Config is what an end does. The source of the program says which settings there are, what it writes, and what
// orders it takes.
type Config struct {
	// Name distinguishes the logs of a node.
	Name string
	// Local are the addresses that it has, Remote those that it sets an association up with; without, it listens.
	Local, Remote []netip.Addr
	// Settings are of the form NAME=VALUE.
	Settings []string
	// Messages has [Peer.Messages] in the place of orders.
	Messages bool
}

// Peer is a running end.
type Peer struct {
	*lab.Proc
	// Messages are those that it sends and that come to it, if so configured; else nil.
	Messages *Messages
	orders   io.WriteCloser
}

// Start runs the program in a node until it is stopped, and waits until it is ready.
func Start(ctx context.Context, node *lab.Node, program string, c Config) (*Peer, error) {
	p := &Peer{}
	input, err := p.open(c.Messages)
	if err != nil {
		return nil, err
	}
	defer input.Close()
	p.Proc, err = node.Start(ctx, lab.Process{Name: c.Name, Path: program, Args: c.arguments(), Input: input})
	if err != nil {
		p.orders.Close()
		return nil, err
	}
	if _, err := p.WaitFor(ctx, "^ready$"); err != nil {
		_ = p.Stop()
		return nil, err
	}
	return p, nil
}

// open makes what the program has as its standard input.
func (p *Peer) open(messages bool) (input *os.File, err error) {
	if !messages {
		input, p.orders, err = os.Pipe()
		return input, err
	}
	input, p.Messages, err = newMessages()
	p.orders = p.Messages
	return input, err
}

func (c *Config) arguments() []string {
	args := []string{"listen"}
	if len(c.Remote) > 0 {
		args[0] = "connect"
	}
	if c.Messages {
		args = append(args, "messages=1")
	}
	args = append(args, c.Settings...) // ports stand before the addresses that have them
	for _, a := range c.Local {
		args = append(args, "local="+a.String())
	}
	for _, a := range c.Remote {
		args = append(args, "remote="+a.String())
	}
	return args
}

// Order has the program do something.
func (p *Peer) Order(order string) error {
	_, err := fmt.Fprintln(p.orders, order)
	return err
}

// Stop ends the program.
func (p *Peer) Stop() error {
	p.orders.Close()
	return p.Proc.Stop()
}

// Ask returns what has come until now.
func (p *Peer) Ask(ctx context.Context) (received Traffic, err error) {
	const last = "packets out " // what the answer ends with
	before := strings.Count(p.Log(), last)
	if err := p.Order("summary"); err != nil {
		return received, err
	}
	for strings.Count(p.Log(), last) == before {
		select {
		case <-time.After(time.Millisecond):
		case <-p.Done():
			return received, fmt.Errorf("%s has ended: %w", p.Name(), p.Wait())
		case <-ctx.Done():
			return received, ctx.Err()
		}
	}
	return p.Read("received")
}

// Count is what has gone or come by a stream.
type Count struct {
	Messages, Octets int
	Hash             Hash
}

// Traffic is what an end has sent or received.
type Traffic struct {
	Messages, Octets int
	Streams          map[int]Count // where the setting hash is on
}

// Read reads what the program wrote last of "sent" or of "received".
func (p *Peer) Read(what string) (t Traffic, err error) {
	lines := strings.Split(p.Log(), "\n")
	last := -1
	for i, line := range lines {
		if n, _ := fmt.Sscanf(line, what+" %d %d", &t.Messages, &t.Octets); n == 2 {
			last = i
		}
	}
	if last < 0 {
		return t, fmt.Errorf("%s has not said what it has %s", p.Name(), what)
	}
	t.Streams = map[int]Count{}
	for i := last - 1; i >= 0; i-- {
		var stream int
		var c Count
		if n, _ := fmt.Sscanf(lines[i], "stream "+what+" %d %d %d %x", &stream, &c.Messages, &c.Octets, (*uint64)(&c.Hash)); n != 4 {
			break
		}
		t.Streams[stream] = c
	}
	return t, nil
}
