// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
)

// examineRoute reports whether a route of this host is in the way of the default
// route that a client will set. It changes nothing and needs no privilege.
func examineRoute(cfg Settings) error {
	return port.RoutesFree([]port.Route{clientRoute(&cfg, cfg.Interface)}, routeTaken)
}

// clientRoute is the default route of a client through its device.
func clientRoute(cfg *Settings, link string) port.Route {
	return port.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Link: link, Metric: cfg.RouteMetric}
}

// routeTaken adds to an error about a route in the way what else a client can do
// about it.
func routeTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set another route_metric", err)
	}
	return err
}
