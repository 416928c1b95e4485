// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// writeFlow writes a target as the flow of a binding.
func writeFlow(t transaction.Target) string {
	return fmt.Sprintf("%s %s %s %d", t.Transport, t.Local, t.Remote, t.Connection)
}

// ParseFlow reads the flow of a binding.
func ParseFlow(s string) (t transaction.Target, ok bool) {
	words := strings.Fields(s)
	if len(words) != 4 {
		return t, false
	}
	local, err := netip.ParseAddrPort(words[1])
	remote, errRemote := netip.ParseAddrPort(words[2])
	connection, errConnection := strconv.ParseUint(words[3], 10, 64)
	return transaction.Target{Transport: words[0], Local: local, Remote: remote, Connection: connection}, err == nil && errRemote == nil && errConnection == nil
}
