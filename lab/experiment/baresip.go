// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// baresipPhone is Debian's telephone on a node, which takes orders by lines.
type baresipPhone struct{ orders *os.File }

// startBaresip starts one, and waits until it can be called.
func startBaresip(ctx context.Context, d *daemons, node *lab.Node, c peers.Baresip) (*baresipPhone, error) {
	command, err := peersOf(d.env).Baresip(d.dir, c)
	if err != nil {
		return nil, err
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b := &baresipPhone{orders}
	p, err := d.start(ctx, node, lab.Process{Name: "baresip", Path: command.Path, Args: command.Args, Env: command.Env, Input: in})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, daemonStart)
		defer cancel()
		_, err = p.WaitFor(ctx, "baresip is ready")
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// call has it call somebody.
func (b *baresipPhone) call(uri string) error { return b.order("/dial " + uri) }

// hangUp has it end its call.
func (b *baresipPhone) hangUp() error { return b.order("/hangup") }

func (b *baresipPhone) order(line string) error {
	_, err := io.WriteString(b.orders, line+"\n")
	return err
}

// close takes its input away, if there is one; whoever has started it ends it.
func (b *baresipPhone) close() error {
	if b == nil {
		return nil
	}
	return b.orders.Close()
}
