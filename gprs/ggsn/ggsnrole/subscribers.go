// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/subscriber"
)

// readSubscribers reads those who may have contexts, and of which networks, from a file; an empty path is nil:
// everybody, of all.
func readSubscribers(path string) (*ggsn.Subscribers, error) {
	if path == "" {
		return nil, nil
	}
	file, err := subscriber.Read(path)
	if err != nil {
		return nil, err
	}
	all := make([]ggsn.Subscriber, 0, len(file.All))
	for _, one := range file.All {
		if one.IMSI == "" { // of SIP alone
			continue
		}
		imsi, err := gtp.ParseIMSI(one.IMSI)
		if err != nil {
			return nil, err
		}
		all = append(all, ggsn.Subscriber{IMSI: imsi, Subscription: subscription(one.APNs)})
	}
	return ggsn.NewSubscribers(all)
}

// subscription is what somebody may use whose access points are these; none are all.
func subscription(apns []subscriber.APN) (s ggsn.Subscription) {
	if len(apns) > 0 {
		s.APNs = make([]ggsn.Service, 0, len(apns))
	}
	for i := range apns {
		a := &apns[i]
		service := ggsn.Service{
			APN: strings.ToLower(a.Name), Rates: ggsn.Rates{Up: uint32(a.MaxUp), Down: uint32(a.MaxDown)},
			Address4: a.Address4, Prefix6: a.Prefix6,
		}
		for _, t := range a.Types {
			service.Types |= typeBits[PDPType(t)]
		}
		s.APNs = append(s.APNs, service)
	}
	return s
}

// nobody says that a node serves no one; empty: it does.
func nobody(path string, who *ggsn.Subscribers) string {
	if who == nil || who.Len() > 0 {
		return ""
	}
	return "no terminal will get a context, because no subscriber in " + path + " has an imsi"
}

// warnOf logs that nobody will be served, when that begins.
func (g *GGSN) warnOf(who *ggsn.Subscribers) {
	if why := nobody(g.cfg.SubscribersFile, who); why != "" {
		g.log.Warn(why)
	}
}

// examineSubscribers tells what is wrong with the file of subscribers, or may be.
func examineSubscribers(s *Settings) []role.Finding {
	who, err := readSubscribers(s.SubscribersFile)
	if err != nil {
		return role.Problems(err)
	}
	if err := fits(s, who); err != nil {
		return role.Problems(fmt.Errorf("%s %q: %s: %w", name, s.Name, s.SubscribersFile, err))
	}
	if why := nobody(s.SubscribersFile, who); why != "" {
		return role.Warnings(name, s.Name, []string{why})
	}
	return s.strangeAPNs(who)
}

// maxStrange is how many access points of others are named.
const maxStrange = 5

// strangeAPNs notes access points that subscribers may use, and this node does not have: they may be another
// node's, or misspelt.
func (s *Settings) strangeAPNs(who *ggsn.Subscribers) (found []role.Finding) {
	users := map[string]int{}
	for _, one := range who.All() {
		for i := range one.APNs {
			users[one.APNs[i].APN]++
		}
	}
	for i := range s.APNs {
		delete(users, strings.ToLower(s.APNs[i].Name))
	}
	for i, apn := range slices.Sorted(maps.Keys(users)) {
		if i == maxStrange {
			text := fmt.Sprintf("%s %q: subscribers may use %d more that it does not have", name, s.Name, len(users)-i)
			return append(found, role.Finding{Note: true, Text: text})
		}
		text := fmt.Sprintf("%s %q: it has no access point %s, which subscribers may use: %d in %s", name, s.Name, apn, users[apn], s.SubscribersFile)
		found = append(found, role.Finding{Note: true, Text: text})
	}
	return found
}
