// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// poll looks again and again at what tells no events, until it is done, or ctx is, or the
// limit is over.
func poll(ctx context.Context, limit, every time.Duration, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// pause waits, unless ctx is done before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// serving waits until something listens on a UDP port of the node.
func serving(ctx context.Context, node *lab.Node, p *lab.Proc, port uint16) error {
	err := poll(ctx, daemonStart, time.Millisecond, func(context.Context) (bool, error) {
		select {
		case <-p.Done():
			return false, errors.Join(fmt.Errorf("%s ended before it served", p.Name()), p.Wait())
		default:
			return bound(node, int(port), "udp", "udp6")
		}
	})
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s does not listen on UDP port %d after %v: %w; its log ends:\n%s", p.Name(), port, daemonStart, err, lastLines(p.Log()))
	}
	return err
}

// listening waits until a program of the node listens on a TCP port, of that family.
func listening(ctx context.Context, node *lab.Node, port int, ipv6 bool) error {
	tables := []string{"tcp6"} // the web server listens by IPv6 for both families
	if !ipv6 {
		tables = append(tables, "tcp")
	}
	err := poll(ctx, daemonStart, time.Millisecond, func(context.Context) (bool, error) { return bound(node, port, tables...) })
	if err != nil {
		return fmt.Errorf("nobody listens on port %d of node %s: %w", port, node.Name(), err)
	}
	return nil
}

// bound looks for a port in the kernel's tables of sockets: one that listens, or that takes datagrams from whomever. What
// is left of connections of a program that has ended, such as in TIME_WAIT, is none.
func bound(node *lab.Node, port int, tables ...string) (found bool, err error) {
	listens := regexp.MustCompile(fmt.Sprintf(":%04X 0+:0000 0[7A] ", port))
	err = node.Do(func() error {
		for _, table := range tables {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil {
				return err
			}
			found = found || listens.Match(text)
		}
		return nil
	})
	return found, err
}
