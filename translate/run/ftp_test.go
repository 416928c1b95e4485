// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/ftpalg/ftptest"
)

// ftpCounts are the gateway's counters.
func ftpCounts(n *NAT64) map[string]float64 {
	counts := make(map[string]float64)
	n.Collect(func(m role.Metric) {
		if m.Name == "ftp_total" {
			counts[m.Reason] = m.Value
		}
	})
	return counts
}

var ftpServer = netip.AddrPortFrom(poolFour6, ftpPort)

// TestFTP has Debian's clients, which have IPv6 alone, use Debian's server, which has
// IPv4 alone: both directions, opened by either side, in clear and behind AUTH TLS.
func TestFTP(t *testing.T) {
	w := newWorld(t)
	server := ftptest.Start(t, w.four, peers.Vsftpd{Address: fourAddr})
	c := nat64Config(t)
	c.FTP = true
	n := startNAT64(t, w, c)
	for _, x := range ftptest.Transfers() {
		t.Run(x.String(), func(t *testing.T) {
			before := ftpCounts(n)
			server.Try(t, w.six, ftpServer, x)
			after := ftpCounts(n)
			grown := func(name string) bool { return after[name] > before[name] }
			if grown("auth_accepted") != x.TLS || grown("eprt_translated") != (x.Active && !x.TLS) || grown("epsv_translated") != (!x.Active && !x.TLS) {
				t.Errorf("before: %v\nafter: %v", before, after)
			}
		})
	}
}
