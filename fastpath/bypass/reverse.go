// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// strictReverse has the kernel drop an IPv4 packet that came in by another device than
// answers would leave by (RFC 3704 section 2.2). The loose form drops what has no route at
// all, which is next to nothing where there is a default route; many distributions set it.
const strictReverse = 1

// findReverse looks for the reverse path filter of the devices that forwarded IPv4 comes
// in by. The greater value counts, that of the device or that of all.
func findReverse(q Query) ([]Finding, error) {
	if !q.Forward4 {
		return nil, nil
	}
	all, err := reverseOf("all")
	if err != nil {
		return nil, err
	}
	for _, device := range q.Devices {
		own, err := reverseOf(device)
		if err != nil {
			return nil, err
		}
		if max(all, own) == strictReverse {
			return []Finding{{
				What:   "the reverse path filter",
				Detail: fmt.Sprintf("the kernel drops packets that come in by %s from addresses to which another way leads (net.ipv4.conf.%[1]s.rp_filter, or that of all, is %d)", device, strictReverse),
				Remedy: fmt.Sprintf("Switch it off if other routers keep wrong sources away (sysctl -w net.ipv4.conf.%s.rp_filter=0 net.ipv4.conf.all.rp_filter=0), %s.", device, choose),
			}}, nil
		}
	}
	return nil, nil
}

// reverseOf reads the filter's value for a device, or for all; 0 for one that is not there.
func reverseOf(device string) (int, error) {
	path := "/proc/sys/net/ipv4/conf/" + device + "/rp_filter"
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, unread(path, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, unread(path, err)
	}
	return n, nil
}
