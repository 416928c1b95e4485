// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"errors"
	"fmt"

	"github.com/isthmus-net/isthmus/internal/port"
)

// examineRoutes reports which routes of this host are in the way of a relay's, one
// error for each. It changes nothing and needs no privilege.
func examineRoutes(cfg Settings) error {
	if !cfg.Route {
		return nil
	}
	return port.RoutesFree(routes(&cfg, cfg.Interface), routeTaken)
}

// routes are the routes of a relay through its device.
func routes(cfg *Settings, link string) []port.Route {
	routes := make([]port.Route, len(cfg.Prefixes))
	for i, p := range cfg.Prefixes {
		routes[i] = port.Route{Dst: p, Link: link}
	}
	return routes
}

// routeTaken adds to an error about a route in the way what else a relay
// can do about it.
func routeTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set route = false", err)
	}
	return err
}
