// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/driver"
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
	kept, note := peekState(cfg, z)
	if kept == nil || !kept.Holds() {
		return nil
	}
	table, _, err := state.Open(z, kept, [state.Seeds]uint64{})
	if err != nil {
		return nil // they cannot be taken over
	}
	left := nat64.Earlier{Prefixes: parsePrefixes(note), Static: staticsOf(cfg), Now: time.Now()}
	_, ended, err := nat64.Resume(settings, left, table, port.MonotonicEpoch(), rand.Reader)
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
	b, err := os.ReadFile(stateFile(cfg))
	if err != nil || len(b) != memoryBytes(z)+noteSize {
		return nil, ""
	}
	return divide(b[noteSize:], z), noteIn(b[:noteSize])
}
