// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Addresses are those of the host where an instance has sockets. It tells people when the host
// loses one, and when it is back; the sockets stay bound, and work again by themselves.
type Addresses struct {
	// Without is what does not work without one, for the log.
	Without string

	missing []netip.Addr
}

// Concerns reports whether a change may be one of the host's addresses. The kernel tells of an
// address first and changes its routes behind that.
func (*Addresses) Concerns(c port.Change) bool {
	return c.Kind != port.RouteChanged || c.Local
}

// Look notes which addresses of a list the host lacks.
func (a *Addresses) Look(host *port.Host, list []netip.Addr, log *slog.Logger) {
	var missing []netip.Addr
	for _, one := range list {
		why, remedy := host.Lacks(one)
		was := slices.Contains(a.missing, one)
		switch {
		case why != "" && !was:
			log.Warn("the address "+why+", so "+a.Without+": "+remedy, "address", one)
		case why == "" && was:
			log.Info("the address is back, and served again", "address", one)
		}
		if why != "" {
			missing = append(missing, one)
		}
	}
	a.missing = missing
}

// Missing are those that the host lacked when it was looked at last.
func (a *Addresses) Missing() []netip.Addr { return slices.Clone(a.missing) }
