// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/subscriber"
)

// readSubscribers reads who may have contexts, and of which networks; nil: everybody, of all.
func readSubscribers(path string) (map[gtp.IMSI]ggsn.Subscription, error) {
	if path == "" {
		return nil, nil
	}
	file, err := subscriber.Read(path)
	if err != nil {
		return nil, err
	}
	all := map[gtp.IMSI]ggsn.Subscription{}
	for _, one := range file.All {
		if one.IMSI == "" { // of SIP alone
			continue
		}
		imsi, err := gtp.ParseIMSI(one.IMSI)
		if err != nil {
			return nil, err
		}
		all[imsi] = subscription(one.APNs)
	}
	return all, nil
}

// subscription is what somebody may use whose access points are these; none are all.
func subscription(apns []subscriber.APN) (s ggsn.Subscription) {
	for _, a := range apns {
		if s.APNs == nil {
			s.APNs = map[string]ggsn.Types{}
		}
		var types ggsn.Types
		for _, t := range a.Types {
			types |= typeBits[PDPType(t)]
		}
		s.APNs[strings.ToLower(a.Name)] = types
	}
	return s
}

// unsubscribed warns of a node that nobody could use.
func unsubscribed(s *Settings) []role.Finding {
	if all, err := readSubscribers(s.SubscribersFile); err != nil || all == nil || len(all) > 0 {
		return nil
	}
	return role.Warnings(name, s.Name, []string{"no terminal will get a context, because no subscriber in " + s.SubscribersFile + " has an imsi"})
}
