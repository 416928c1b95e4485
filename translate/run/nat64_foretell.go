// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// adviseKept tells of sessions, of a process that runs or that has left them, that the next
// start will end. It tries that on a copy.
func adviseKept(cfg *config.NAT64, hosts []netip.Addr) []string {
	if !cfg.KeepState {
		return nil
	}
	settings, err := nat64Settings(cfg, own{}, hosts)
	if err != nil {
		return nil // told elsewhere
	}
	z := nat64Sizes(cfg)
	left, note := peekState(cfg, z)
	if left == nil || !left.Holds() {
		return nil
	}
	table, _, err := state.Open(z, left, [state.Seeds]uint64{})
	if err != nil {
		return nil // they cannot be taken over
	}
	earlier := nat64.Earlier{Prefixes: parsePrefixes(note), Static: staticsOf(cfg), Now: time.Now()}
	_, ended, err := nat64.Resume(settings, earlier, table, port.MonotonicEpoch(), rand.Reader)
	if err != nil || ended.Displaced == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the next start ends %d sessions that are there now: static bindings or pools of this configuration need ports, addresses or prefixes that they have", ended.Displaced)}
}

// peekState copies what a successor would take over, with its note; nil: there is nothing, or
// this process may not read it.
func peekState(cfg *config.NAT64, z state.Sizes) (state.Memory, string) {
	if cfg.FastPath != config.FastPathOff {
		if m, note := fastpath.PeekNAT64(driver.PinName(cfg.Name), z, numbering); m != nil && m.Holds() {
			return m, note
		}
	}
	b, note := kept.Peek(stateFile(cfg), memoryBytes(z))
	if b == nil {
		return nil, ""
	}
	return divide(b, z), note
}
