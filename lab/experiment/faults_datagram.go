// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// flow is a UDP flow over the path, to a port of its own.
func (p path) flow(port uint16) flowPlan {
	return flowPlan{
		from: p.from, to: p.to, source: p.source, gap: faultsFlowGap,
		listen: netip.AddrPortFrom(p.listen, port), target: netip.AddrPortFrom(p.target, port),
	}
}

// anyAnswered reports whether a packet that was sent since a time was answered.
func anyAnswered(packets []flowPacket, since time.Time) bool {
	return slices.ContainsFunc(packets, func(p flowPacket) bool { return !p.back.IsZero() && p.sent.After(since) })
}

// silence is the longest time without an answer.
func silence(packets []flowPacket) (longest moment) {
	var last time.Time
	for i, p := range packets {
		if i == 0 {
			last = p.sent
		}
		if p.back.After(last) {
			longest, last = longer(longest, moment{last, p.back}), p.back
		}
	}
	return longest
}

// fault says why a flow counts as lost; nil if it does not. Since calmed nothing has
// happened to it.
func (f *flow) fault(calmed time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	longest, what := silence(f.packets), ""
	switch {
	case f.moved > 0:
		what = fmt.Sprintf("has got another port or address %d times", f.moved)
	case !anyAnswered(f.packets, calmed):
		what = "is silent at the end"
	case longest.length() > checkedSilence:
		what = fmt.Sprintf("was silent for %v", longest.length())
	default:
		return nil
	}
	return fmt.Errorf("UDP flow from %v to %v %s", f.plan.source, f.plan.target, what)
}
