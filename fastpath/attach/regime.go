// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Hook is the place in the kernel where a program runs.
type Hook string

// Hooks, in the words that ip-link and tc use for them.
const (
	HookXDP     Hook = "xdp"    // the driver, native mode, by a link
	HookTCX     Hook = "tcx"    // tc, by a link (Linux 6.6)
	HookClassic Hook = "clsact" // tc, by a filter in the clsact qdisc
	HookNone    Hook = "none"   // nothing is attached
)

// regime is the one way of redirecting that all devices of an instance use,
// with the reason for the choice.
type regime struct {
	xdp bool
	why string
}

func (r regime) String() string {
	if r.xdp {
		return "xdp"
	}
	return "tc"
}

// choose decides on the regime. A packet that comes in by one device must be
// able to leave by any other, and only redirection of the same kind goes
// everywhere, so one device that cannot take XDP decides for all.
func choose(mode fastpath.Mode, host bool, devices []*device) (regime, error) {
	switch {
	case mode == fastpath.ModeOff:
		return regime{}, fmt.Errorf("the fast path is switched off: set fast_path to auto, xdp or tc to attach it")
	case mode == fastpath.ModeTC:
		return regime{why: "tc is set in the configuration"}, nil
	case mode == fastpath.ModeXDP && host:
		return regime{}, fmt.Errorf("XDP does not see what this host sends itself: set fast_path to auto or tc")
	case host:
		return regime{why: "packets start and end on this host, and XDP does not see what a host sends"}, nil
	case mode == fastpath.ModeXDP:
		for _, d := range devices {
			if err := d.refusesXDP(); err != nil {
				return regime{}, err
			}
		}
		return regime{xdp: true, why: "xdp is set in the configuration"}, nil
	case mode == fastpath.ModeAuto:
		for _, d := range devices {
			if why := d.againstXDP(); why != "" {
				return regime{why: why}, nil
			}
		}
		return regime{xdp: true, why: "every device takes native XDP"}, nil
	default:
		return regime{}, fmt.Errorf("%q is no attach mode: use auto, xdp, tc or off", mode)
	}
}
