// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"slices"
)

// RoutesFree collects why routes could not be set, each error passed through explain,
// without changing anything. It needs no privilege.
func RoutesFree(routes []Route, explain func(error) error) error {
	host, err := OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	left, err := host.LeftTUNs()
	errs := []error{err}
	for _, err := range host.routesFree(routes) {
		if taken := new(RouteTakenError); errors.As(err, &taken) && slices.Contains(left, taken.Link) {
			continue // what an earlier process has left makes room
		}
		errs = append(errs, explain(err))
	}
	return errors.Join(errs...)
}
