// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"errors"
	"fmt"

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

// relayRoutes are the routes of a relay through its device.
func relayRoutes(cfg *RelaySettings, link string) []port.Route {
	routes := make([]port.Route, len(cfg.Prefixes))
	for i, p := range cfg.Prefixes {
		routes[i] = port.Route{Dst: p, Link: link}
	}
	return routes
}

// relayRouteTaken adds to an error about a route in the way what else a relay
// can do about it.
func relayRouteTaken(err error) error {
	if taken := new(port.RouteTakenError); errors.As(err, &taken) {
		return fmt.Errorf("%w, or set route = false", err)
	}
	return err
}
