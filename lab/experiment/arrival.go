// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// addressWait bounds the wait for a client's address: several rounds of three tries
// of 4 s (RFC 4380 section 5.2.1).
const addressWait = time.Minute

// routes sees the routes of a node appear.
type routes struct {
	updates chan netlink.RouteUpdate
	done    chan struct{}
}

func watchRoutes(node *lab.Node) (*routes, error) {
	r := &routes{updates: make(chan netlink.RouteUpdate, 64), done: make(chan struct{})}
	err := node.Do(func() error {
		return netlink.RouteSubscribeWithOptions(r.updates, r.done, netlink.RouteSubscribeOptions{ListExisting: true})
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch the routes of node %s: %w", node.Name(), err)
	}
	return r, nil
}

func (r *routes) close() { close(r.done) }

// await waits for a route to the prefix.
func (r *routes) await(ctx context.Context, p *lab.Proc, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	for {
		select {
		case u := <-r.updates:
			if u.Type == unix.RTM_NEWROUTE && u.Dst != nil && u.Dst.String() == prefix {
				return nil
			}
		case <-p.Done():
			return errors.Join(fmt.Errorf("%s ended before it had set the route to %s", p.Name(), prefix), p.Wait())
		case <-ctx.Done():
			return fmt.Errorf("%s set no route to %s within %v: %w", p.Name(), prefix, daemonStart, ctx.Err())
		}
	}
}

// arrival sees a client become usable: its node has a Teredo address, and the
// default route leads to the interface with that address. Miredo sets the two
// one after the other.
type arrival struct {
	routes    *routes
	addresses chan netlink.AddrUpdate

	addr   netip.Addr
	device int // of the address
	routed map[int]bool
}

func watchArrival(node *lab.Node) (*arrival, error) {
	r, err := watchRoutes(node)
	if err != nil {
		return nil, err
	}
	a := &arrival{routes: r, addresses: make(chan netlink.AddrUpdate, 64), routed: map[int]bool{}}
	err = node.Do(func() error {
		return netlink.AddrSubscribeWithOptions(a.addresses, r.done, netlink.AddrSubscribeOptions{ListExisting: true})
	})
	if err != nil {
		r.close()
		return nil, fmt.Errorf("cannot watch the addresses of node %s: %w", node.Name(), err)
	}
	return a, nil
}

func (a *arrival) close() { a.routes.close() }

// await gives the time at which the client became usable.
func (a *arrival) await(ctx context.Context, p *lab.Proc) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, addressWait)
	defer cancel()
	for !a.addr.IsValid() || !a.routed[a.device] {
		select {
		case u := <-a.addresses:
			a.sawAddress(u)
		case u := <-a.routes.updates:
			a.routed[u.LinkIndex] = a.routed[u.LinkIndex] || u.Type == unix.RTM_NEWROUTE && isDefault6(u.Dst)
		case <-p.Done():
			return time.Time{}, errors.Join(fmt.Errorf("%s ended", p.Name()), p.Wait())
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s had none after %v: %w; its log ends:\n%s", p.Name(), addressWait, ctx.Err(), lastLines(p.Log()))
		}
	}
	return time.Now(), nil
}

func (a *arrival) sawAddress(u netlink.AddrUpdate) {
	addr, _ := netip.AddrFromSlice(u.LinkAddress.IP)
	if u.NewAddr && u.Flags&unix.IFA_F_TENTATIVE == 0 && teredo.Prefix.Contains(addr) {
		a.addr, a.device = addr, u.LinkIndex
	}
}

func isDefault6(dst *net.IPNet) bool {
	if dst == nil {
		return false
	}
	ones, bits := dst.Mask.Size()
	return ones == 0 && bits == 8*net.IPv6len
}
