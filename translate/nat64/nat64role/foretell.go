// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"crypto/rand"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// adviseKept reports sessions, of a process that runs or that has left them, that the next
// start will end. It tries that on a copy.
func adviseKept(cfg *Settings, host *port.Host, hosts []netip.Addr) []string {
	if !cfg.KeepState {
		return nil
	}
	settings, err := engineSettings(cfg, gateway.Own{}, hosts)
	if err != nil {
		return nil // told elsewhere
	}
	z := sizesOf(cfg)
	memory, text := peekState(cfg, z)
	if memory == nil || !memory.Holds() {
		return nil
	}
	table, _, err := state.Open(z, memory, [state.Seeds]uint64{})
	if err != nil {
		return nil // they cannot be taken over
	}
	noted := parseNote(text)
	earlier := nat64.Earlier{Prefixes: noted.prefixes, Static: staticsOf(cfg), Now: time.Now()}
	e, ended, err := nat64.Resume(settings, earlier, table, port.MonotonicEpoch(), rand.Reader)
	if err != nil {
		return nil
	}
	left := leaving{e.Leaving(), noted.own}.apart(cfg, hosts)
	others := takenBy(cfg, hosts, func(list []netip.Prefix) error { return gateway.Apart(host, cfg.Interface, list) }, portsApart, &left)
	lost := 0
	e.Sessions(nat64.Selection{}, 0, math.MaxInt32, earlier.Now, func(s nat64.SessionInfo) bool {
		if others.has(&s) {
			lost++
		}
		return true
	})
	var sentences []string
	if ended.Displaced > 0 {
		sentences = append(sentences, fmt.Sprintf("the next start ends %d sessions that are there now: static bindings or pools of this configuration need ports, addresses or prefixes that they have", ended.Displaced))
	}
	if lost > 0 {
		sentences = append(sentences, fmt.Sprintf("the next start ends %d sessions that are there now: this configuration no longer names their addresses or prefixes, and other instances or this host have these", lost))
	}
	return sentences
}

// notedOwn are the ports at addresses of this host that an earlier process has noted in the
// file.
func notedOwn(cfg *Settings) []nat64.Range {
	if !cfg.KeepState {
		return nil
	}
	return parseNote(kept.PeekNote(stateFile(cfg))).own
}

// peekState copies what a successor would take over, with its note; nil: there is nothing, or
// this process may not read it.
func peekState(cfg *Settings, z state.Sizes) (state.Memory, string) {
	if cfg.FastPath != fastpath.ModeOff {
		if m, note := nat64bpf.Peek(driver.PinName(cfg.Name), z, numbering); m != nil && m.Holds() {
			return m, note
		}
	}
	b, note := kept.Peek(stateFile(cfg), memoryBytes(z))
	if b == nil {
		return nil, ""
	}
	return divide(b, z), note
}
