// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Static is a binding by the operator: it has no lifetime (RFC 6146 section 3.1). The
// ports are identifiers for ICMP.
type Static struct {
	Transport state.Transport
	Inside    netip.AddrPort // X',x
	Outside   netip.AddrPort // T,t
}

// String returns the binding as an operator would write it.
func (s Static) String() string {
	return fmt.Sprintf("%s %s = %s", s.Transport, s.Inside, s.Outside)
}

func (s Static) check() error {
	switch in, out := s.Inside.Addr(), s.Outside.Addr(); {
	case s.Transport >= state.Transports:
		return fmt.Errorf("static binding %s: choose tcp, udp or icmp", s)
	case !in.Is6() || in.Is4In6() || in.Zone() != "" || !out.Is4():
		return fmt.Errorf("static binding %s: write an IPv6 address with its port, then an IPv4 address with its port", s)
	case s.Transport != state.ICMP && (s.Inside.Port() == 0 || s.Outside.Port() == 0):
		return fmt.Errorf("static binding %s: 0 is no port", s)
	}
	return nil
}

// AddStatic makes a static binding. It is in force at once, and there is no error when it
// was there already.
func (e *Engine) AddStatic(s Static) error {
	if err := s.check(); err != nil {
		return err
	}
	if e.inPool6(s.Inside.Addr()) {
		return fmt.Errorf("static binding %s: %s is in pool6, where no host may be", s, s.Inside.Addr())
	}
	var b state.Binding
	in, out := s.sides()
	switch outcome := e.table.NewStatic(in, out, &b); outcome {
	case state.Made, state.Found:
		return nil
	case state.Taken:
		return fmt.Errorf("static binding %s: one of the two is bound to another already; choose another port, or remove that binding", s)
	case state.NotInPool:
		return fmt.Errorf("static binding %s: %s is not in pool4; add the address and the port there", s, s.Outside)
	case state.TableFull:
		return fmt.Errorf("static binding %s: the table of bindings is full", s)
	}
	return fmt.Errorf("static binding %s: the state is busy; try again", s)
}

// RemoveStatic ends a static binding with all its sessions.
func (e *Engine) RemoveStatic(s Static, now time.Time, out *Out) error {
	if err := s.check(); err != nil {
		return err
	}
	var b state.Binding
	inside, outside := s.sides()
	if !e.table.FindBinding6(&inside, &b) || b.Outside() != outside || !b.Static {
		return fmt.Errorf("there is no static binding %s", s)
	}
	c := e.begin(translate.Path{}, now, out)
	if e.endBinding(&c, &b) == state.Busy {
		return fmt.Errorf("static binding %s: the state is busy; try again", s)
	}
	return nil
}

// endBinding ends a binding with all its sessions.
func (e *Engine) endBinding(c *call, b *state.Binding) state.Outcome {
	e.table.WalkChain(b, math.MaxInt32, func(s *state.Session) bool {
		e.end(c, s)
		return true
	})
	return e.table.EndBinding(b) // unless it went with the last of them
}

func (s Static) sides() (state.Inside, state.Outside) {
	return state.Inside{Client: s.Inside.Addr().As16(), Port: s.Inside.Port(), Transport: s.Transport},
		state.Outside{Pool: s.Outside.Addr().As4(), Port: s.Outside.Port(), Transport: s.Transport}
}
