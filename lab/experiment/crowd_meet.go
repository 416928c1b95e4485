// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// crowdSource is the i-th of many IPv6 hosts, all played by one: the relay grants
// each network only so many new clients at a time.
func crowdSource(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0x80, 0, byte(i >> 8 & 0x3), byte(i), 15: 1})
}

// crowdWindow is how many clients are met at a time: fewer than may be under test,
// and than sockets and devices can hold.
const crowdWindow = 512

// crowdTries is how often a window is met before it counts as a failure: a busy
// machine loses packets in places that no relay sees.
const crowdTries = 100

// fill makes the relay trust the first n clients: the host sends to each, and each
// answers.
func (c *crowd) fill(ctx context.Context, n int) error {
	for from := 0; from < n; from += crowdWindow {
		to := min(from+crowdWindow, n)
		for try := 0; ; try++ {
			if err := c.meet(from, to); err != nil {
				return err
			}
			trusted, err := c.awaitTrusted(ctx, to)
			if err != nil {
				return err
			}
			if trusted >= to {
				break
			}
			if try == crowdTries {
				return fmt.Errorf("the relay trusts %d clients, and %d have answered", trusted, to)
			}
		}
	}
	return nil
}

// awaitTrusted waits until the relay trusts n clients, or a little, and returns how
// many it trusts.
func (c *crowd) awaitTrusted(ctx context.Context, n int) (trusted int, err error) {
	for range 10 {
		values, err := c.isthmus.values(ctx)
		if err != nil {
			return 0, err
		}
		if trusted = int(values["trusted_peers"]); trusted >= n {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return trusted, nil
}

// meet has clients from to to-1 and the relay exchange a packet and a bubble. It
// waits for the bubbles of the relay, or a little, before it answers.
func (c *crowd) meet(from, to int) error {
	var out, in [][]byte
	for i := from; i < to; i++ {
		client, mapped := c.client(i)
		src := crowdSource(i)
		out = append(out, c.toClient(src, client))
		in = append(in, c.bubble(src, client, mapped))
	}
	before, err := received(c.internet, "v4")
	if err != nil {
		return err
	}
	if _, err := c.fromHost.SendAll(out); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Millisecond); time.Now().Before(deadline); time.Sleep(500 * time.Microsecond) {
		now, err := received(c.internet, "v4")
		if err != nil {
			return err
		}
		if now-before >= uint64(to-from) {
			break
		}
	}
	_, err = c.fromInternet.SendAll(in)
	return err
}

// received is how many frames an interface has received.
func received(n *lab.Node, iface string) (uint64, error) {
	link, err := n.Kernel().LinkByName(iface)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Statistics.RxPackets, nil
}
