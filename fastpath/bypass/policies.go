// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// findPolicies looks for IPsec. Policies of sockets, which key daemons have, do
// not concern the packets of others.
func findPolicies(Query) ([]Finding, error) {
	list, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, unread("the IPsec policies", err)
	}
	n := 0
	for i := range list {
		switch list[i].Dir {
		case netlink.XFRM_DIR_IN, netlink.XFRM_DIR_OUT, netlink.XFRM_DIR_FWD:
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return []Finding{{
		What:   "IPsec",
		Detail: fmt.Sprintf("there %s that may protect or refuse packets", count(n, "policy", "policies")),
		Remedy: fmt.Sprintf("Remove them (ip xfrm policy), %s.", choose),
	}}, nil
}
