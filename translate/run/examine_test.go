// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config"
)

func TestExamineNAT64Broadcast(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		name, address string
		refused       bool
	}{
		{"a host's address", "192.0.2.70", false},
		{"the network's broadcast address", "192.0.2.255", true},
		{"the network's first address", "192.0.2.0", true},
	} {
		c := nat64Config(t)
		c.Pool4 = []config.PoolRange{{Prefix: netip.PrefixFrom(netip.MustParseAddr(tt.address), 32), Transports: config.AllTransports, First: 1024, Last: 65535}}
		var err error
		w.gateway.Do(t, func() error { err = ExamineNAT64(c); return nil })
		if refused := err != nil && strings.Contains(err.Error(), "all hosts of 192.0.2.0/24"); refused != tt.refused {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}
