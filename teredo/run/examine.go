// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
)

// ExamineRelay tells which routes of this host are in the way of a relay's, one
// error for each. It changes nothing and needs no privilege.
func ExamineRelay(cfg RelaySettings) error {
	if !cfg.Route {
		return nil
	}
	return port.RoutesFree(relayRoutes(&cfg, cfg.Interface), relayRouteTaken)
}

// ExamineClient tells whether a route of this host is in the way of the default
// route that a client will set. It changes nothing and needs no privilege.
func ExamineClient(cfg ClientSettings) error {
	return port.RoutesFree([]port.Route{clientRoute(&cfg, cfg.Interface)}, clientRouteTaken)
}

// relayRoutes are the routes of a relay through its device.
func relayRoutes(cfg *RelaySettings, link string) []port.Route {
	routes := make([]port.Route, len(cfg.Prefixes))
	for i, p := range cfg.Prefixes {
		routes[i] = port.Route{Dst: p, Link: link}
	}
	return routes
}

// clientRoute is the default route of a client through its device.
func clientRoute(cfg *ClientSettings, link string) port.Route {
	return port.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Link: link, Metric: cfg.RouteMetric}
}

// relayRouteTaken adds to an error about a route in the way what else a relay
// can do about it.
func relayRouteTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set route = false", err)
	}
	return err
}

// clientRouteTaken does the same for a client.
func clientRouteTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set another route_metric", err)
	}
	return err
}
