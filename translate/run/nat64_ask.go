// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

var (
	_ role.Asked   = (*NAT64)(nil)
	_ role.Ordered = (*NAT64)(nil)
)

// Limits of one answer, which is built in memory.
const (
	defaultRows = 1000
	maxRows     = 10_000
)

// NAT64Sessions is a part of the sessions that were asked for.
type NAT64Sessions struct {
	Sessions []NAT64Session `json:"sessions"`
	// Next is where the next part begins; 0 behind the last.
	Next uint32 `json:"next"`
}

// NAT64Session is one session.
type NAT64Session struct {
	Transport string         `json:"transport"`
	State     string         `json:"state"`
	Inside    netip.AddrPort `json:"inside"`
	Peer6     netip.Addr     `json:"peer6"`
	Outside   netip.AddrPort `json:"outside"`
	Peer      netip.AddrPort `json:"peer"`
	Expires   time.Time      `json:"expires"`
}

// NAT64Bindings is a part of the bindings that were asked for.
type NAT64Bindings struct {
	Bindings []NAT64Binding `json:"bindings"`
	Next     uint32         `json:"next"`
}

// NAT64Binding is one binding.
type NAT64Binding struct {
	Transport string         `json:"transport"`
	Static    bool           `json:"static"`
	Inside    netip.AddrPort `json:"inside"`
	Outside   netip.AddrPort `json:"outside"`
}

// NAT64Blocks is a part of the blocks of ports that clients have.
type NAT64Blocks struct {
	Blocks []NAT64Block `json:"blocks"`
	Next   uint32       `json:"next"`
}

// NAT64Block is one block.
type NAT64Block struct {
	Client netip.Prefix `json:"client"`
	Pool   netip.Addr   `json:"pool"`
	First  uint16       `json:"first"`
	Last   uint16       `json:"last"`
	// Calculated tells that it is the client's without a lease (RFC 7422).
	Calculated bool `json:"calculated"`
}

// Ask implements [role.Asked]: "sessions", "bindings" and "blocks" list, "where" tells who
// has a port, and what ports a client has.
func (n *NAT64) Ask(question string, arguments map[string]string) (any, error) {
	from, limit, err := part(arguments)
	if err != nil {
		return nil, err
	}
	sel, err := selection(arguments)
	if err != nil {
		return nil, err
	}
	switch question {
	case "sessions":
		return n.sessions(sel, from, limit), nil
	case "bindings":
		return n.bindings(sel, from, limit), nil
	case "blocks":
		return n.blocks(from, limit), nil
	case "where":
		return n.where(arguments["address"])
	}
	return nil, fmt.Errorf("a NAT64 has no answer to %q: ask for sessions, bindings, blocks or where", question)
}

// part reads which part of a list is asked for.
func part(arguments map[string]string) (from uint32, limit int, err error) {
	limit = defaultRows
	if text := arguments["limit"]; text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxRows {
			return 0, 0, fmt.Errorf("limit must be a number from 1 to %d", maxRows)
		}
	}
	if text := arguments["from"]; text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("from must be what the part before has named as next")
		}
		from = uint32(n)
	}
	return from, limit, nil
}

// selection reads what is to be listed.
func selection(arguments map[string]string) (sel nat64.Selection, err error) {
	if word := arguments["transport"]; word != "" {
		transport, known := map[string]state.Transport{"tcp": state.TCP, "udp": state.UDP, "icmp": state.ICMP}[word]
		if !known {
			return sel, fmt.Errorf("%q is not tcp, udp or icmp", word)
		}
		sel.Transport = &transport
	}
	if sel.Inside, err = prefixOf(arguments["inside"]); err != nil {
		return sel, err
	}
	if sel.Peer, err = prefixOf(arguments["peer"]); err != nil {
		return sel, err
	}
	if text := arguments["outside"]; text != "" {
		if sel.Outside, err = netip.ParseAddrPort(text); err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return sel, fmt.Errorf("%q is neither an address of the pool nor one with a port", text)
			}
			sel.Outside = netip.AddrPortFrom(a, 0)
		}
	}
	return sel, nil
}

// prefixOf reads a prefix or one address; empty is none.
func prefixOf(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a prefix", text)
	}
	return p.Masked(), nil
}

func (n *NAT64) sessions(sel nat64.Selection, from uint32, limit int) NAT64Sessions {
	list := NAT64Sessions{Sessions: []NAT64Session{}}
	list.Next = n.rows(from, limit, func() int { return len(list.Sessions) }, func(e *nat64.Engine, at uint32, step int, now time.Time) uint32 {
		return e.Sessions(sel, at, step, now, func(s nat64.SessionInfo) bool {
			list.Sessions = append(list.Sessions, NAT64Session{
				s.Transport.String(), s.Status.String(), s.Inside, s.Peer6, s.Outside, s.Peer, s.Expires.Truncate(time.Second),
			})
			return true
		})
	})
	return list
}

func (n *NAT64) bindings(sel nat64.Selection, from uint32, limit int) NAT64Bindings {
	list := NAT64Bindings{Bindings: []NAT64Binding{}}
	list.Next = n.rows(from, limit, func() int { return len(list.Bindings) }, func(e *nat64.Engine, at uint32, step int, _ time.Time) uint32 {
		return e.Bindings(sel, at, step, func(b nat64.BindingInfo) bool {
			list.Bindings = append(list.Bindings, NAT64Binding{b.Transport.String(), b.Static, b.Inside, b.Outside})
			return true
		})
	})
	return list
}

func (n *NAT64) blocks(from uint32, limit int) NAT64Blocks {
	list := NAT64Blocks{Blocks: []NAT64Block{}}
	list.Next = n.rows(from, limit, func() int { return len(list.Blocks) }, func(e *nat64.Engine, at uint32, step int, _ time.Time) uint32 {
		return e.Blocks(at, step, func(b nat64.Block) bool {
			list.Blocks = append(list.Blocks, NAT64Block(b))
			return true
		})
	})
	return list
}

// rows walks in steps until there are enough rows; the step in work is ended, so there may
// be some more.
func (n *NAT64) rows(from uint32, limit int, have func() int, walk func(e *nat64.Engine, at uint32, step int, now time.Time) uint32) (next uint32) {
	for next = from; ; {
		step := min(limit-have(), listStep)
		if step <= 0 || !n.do(func(e *nat64.Engine, now time.Time, _ *nat64.Out) { next = walk(e, next, step, now) }) || next == 0 {
			return next
		}
	}
}

// where tells the blocks of a client by an IPv6 address, or whose a port of the pool is by
// an IPv4 address with its port.
func (n *NAT64) where(text string) (any, error) {
	answer := NAT64Blocks{Blocks: []NAT64Block{}}
	outside, err := netip.ParseAddrPort(text)
	if err == nil && outside.Addr().Is4() {
		n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
			if b, ok := e.WhereOutside(outside.Addr(), outside.Port()); ok {
				answer.Blocks = append(answer.Blocks, NAT64Block(b))
			}
		})
		return answer, nil
	}
	inside, err := netip.ParseAddr(text)
	if err != nil || !inside.Is6() {
		return nil, fmt.Errorf("%q is neither an IPv6 address of a client nor an IPv4 address with a port, like 192.0.2.10:4000", text)
	}
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
		for _, b := range e.WhereInside(inside) {
			answer.Blocks = append(answer.Blocks, NAT64Block(b))
		}
	})
	return answer, nil
}

// Order implements [role.Ordered]: "static_add" and "static_remove" with the argument
// "binding", as it stands in the configuration.
func (n *NAT64) Order(order string, arguments map[string]string) (any, error) {
	if order != "static_add" && order != "static_remove" {
		return nil, fmt.Errorf("a NAT64 cannot do %q: it knows static_add and static_remove", order)
	}
	b, err := ParseStatic(arguments["binding"])
	if err != nil {
		return nil, err
	}
	static := staticOf(b)
	if order == "static_add" && !n.isClient(b.Inside.Addr()) {
		return nil, fmt.Errorf("%s is in no network of clients: add its network there, or bind a host that is in one", b.Inside.Addr())
	}
	running := n.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
		if order == "static_add" {
			err = e.AddStatic(static)
		} else {
			err = e.RemoveStatic(static, now, out)
		}
	})
	if !running {
		err = fmt.Errorf("the translator is not running yet: try again")
	}
	return NAT64Binding{static.Transport.String(), true, static.Inside, static.Outside}, err
}

// isClient tells whether a host may use the translator.
func (n *NAT64) isClient(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.cfg.Clients, func(p netip.Prefix) bool { return p.Contains(a) })
}
