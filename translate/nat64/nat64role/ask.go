// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// maxRows bounds one answer, which is built in memory.
const maxRows = 10_000

// Sessions is a part of the sessions that were asked for.
type Sessions struct {
	Sessions []Session `json:"sessions"`
	// From is where the next part begins; 0 behind the last.
	From uint32 `json:"next"`
}

// Session is one session.
type Session struct {
	Transport string         `json:"transport"`
	State     string         `json:"state"`
	Inside    netip.AddrPort `json:"inside"`
	Peer6     netip.Addr     `json:"peer6"`
	Outside   netip.AddrPort `json:"outside"`
	Peer      netip.AddrPort `json:"peer"`
	Expires   time.Time      `json:"expires"`
}

// Bindings is a part of the bindings that were asked for.
type Bindings struct {
	Bindings []Binding `json:"bindings"`
	From     uint32    `json:"next"`
}

// Binding is one binding.
type Binding struct {
	Transport string         `json:"transport"`
	Static    bool           `json:"static"`
	Inside    netip.AddrPort `json:"inside"`
	Outside   netip.AddrPort `json:"outside"`
}

// Blocks is a part of the blocks of ports that clients have.
type Blocks struct {
	Blocks []Block `json:"blocks"`
	From   uint32  `json:"next"`
}

// Block is one block.
type Block struct {
	Client netip.Prefix `json:"client"`
	Pool   netip.Addr   `json:"pool"`
	First  uint16       `json:"first"`
	Last   uint16       `json:"last"`
	// Calculated reports that it is the client's without a lease (RFC 7422).
	Calculated bool `json:"calculated"`
}

// selection is what is to be listed.
func (a *bindingArguments) selection() (sel nat64.Selection, err error) {
	if a.Transport != "" {
		transport, known := map[string]state.Transport{"tcp": state.TCP, "udp": state.UDP, "icmp": state.ICMP}[a.Transport]
		if !known {
			return sel, fmt.Errorf("%q is not tcp, udp or icmp", a.Transport)
		}
		sel.Transport = &transport
	}
	if sel.Inside, err = role.ParsePrefix(a.Inside); err != nil {
		return sel, err
	}
	if a.Outside != "" {
		if sel.Outside, err = netip.ParseAddrPort(a.Outside); err != nil {
			one, err := netip.ParseAddr(a.Outside)
			if err != nil {
				return sel, fmt.Errorf("%q is neither an address of the pool nor one with a port", a.Outside)
			}
			sel.Outside = netip.AddrPortFrom(one, 0)
		}
	}
	return sel, nil
}

// sessions lists a part of the sessions.
func (n *NAT64) sessions(a sessionArguments) (list Sessions, err error) {
	list.Sessions = []Session{}
	sel, err := a.selection()
	if err == nil {
		sel.Peer, err = role.ParsePrefix(a.Peer)
	}
	if err != nil {
		return list, err
	}
	list.From, err = n.rows(a.Part, func() int { return len(list.Sessions) }, func(e *nat64.Engine, at uint32, step int, now time.Time) uint32 {
		return e.Sessions(sel, at, step, now, func(s nat64.SessionInfo) bool {
			list.Sessions = append(list.Sessions, Session{
				s.Transport.String(), s.Status.String(), s.Inside, s.Peer6, s.Outside, s.Peer, s.Expires.Truncate(time.Second),
			})
			return true
		})
	})
	return list, err
}

// bindings lists a part of the bindings.
func (n *NAT64) bindings(a bindingArguments) (list Bindings, err error) {
	list.Bindings = []Binding{}
	sel, err := a.selection()
	if err != nil {
		return list, err
	}
	list.From, err = n.rows(a.Part, func() int { return len(list.Bindings) }, func(e *nat64.Engine, at uint32, step int, _ time.Time) uint32 {
		return e.Bindings(sel, at, step, func(b nat64.BindingInfo) bool {
			list.Bindings = append(list.Bindings, Binding{b.Transport.String(), b.Static, b.Inside, b.Outside})
			return true
		})
	})
	return list, err
}

// blocks lists a part of the blocks of ports.
func (n *NAT64) blocks(a blockArguments) (list Blocks, err error) {
	list.Blocks = []Block{}
	list.From, err = n.rows(a.Part, func() int { return len(list.Blocks) }, func(e *nat64.Engine, at uint32, step int, _ time.Time) uint32 {
		return e.Blocks(at, step, func(b nat64.Block) bool {
			list.Blocks = append(list.Blocks, Block(b))
			return true
		})
	})
	return list, err
}

// rows walks in steps until there are enough rows; the step in work is ended, so there may
// be some more.
func (n *NAT64) rows(part role.Part, have func() int, walk func(e *nat64.Engine, at uint32, step int, now time.Time) uint32) (next uint32, err error) {
	if part.Limit < 1 || part.Limit > maxRows {
		return 0, fmt.Errorf("limit must be a number from 1 to %d", maxRows)
	}
	for next = part.From; ; {
		step := min(part.Limit-have(), listStep)
		if step <= 0 || !n.do(func(e *nat64.Engine, now time.Time, _ *nat64.Out) { next = walk(e, next, step, now) }) || next == 0 {
			return next, nil
		}
	}
}

// where tells the blocks of a client by an IPv6 address, or whose a port of the pool is by
// an IPv4 address with its port.
func (n *NAT64) where(a whereArguments) (Owner, error) {
	answer := Owner{Blocks{Blocks: []Block{}}, a.Address}
	outside, err := netip.ParseAddrPort(a.Address)
	if err == nil && outside.Addr().Is4() {
		n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
			if b, ok := e.WhereOutside(outside.Addr(), outside.Port()); ok {
				answer.Blocks.Blocks = append(answer.Blocks.Blocks, Block(b))
			}
		})
		return answer, nil
	}
	inside, err := netip.ParseAddr(a.Address)
	if err != nil || !inside.Is6() {
		return answer, fmt.Errorf("%q is neither an IPv6 address of a client nor an IPv4 address with a port, like 192.0.2.10:4000", a.Address)
	}
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
		for _, b := range e.WhereInside(inside) {
			answer.Blocks.Blocks = append(answer.Blocks.Blocks, Block(b))
		}
	})
	return answer, nil
}
