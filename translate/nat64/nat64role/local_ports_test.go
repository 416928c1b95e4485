// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestKeepsPortsApart: a pool may not have the ports out of which the kernel takes
// those of the gateway's own connections, and who follows the advice is let in.
func TestKeepsPortsApart(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	for _, tt := range []struct {
		name, reserved string
		address        netip.Addr
		transports     Transports
		first, last    uint16
		want           string // empty: it may
	}{
		{"below the kernel's", "", gatewaytest.Gateway4, AllTransports, 20000, 29999, ""},
		{"above the kernel's", "", gatewaytest.Gateway4, UDP, 61000, 65535, ""},
		{"some of the kernel's", "", gatewaytest.Gateway4, AllTransports, 20000, 39999, "sysctl -w net.ipv4.ip_local_reserved_ports=20000-39999 "},
		{"the kernel's last", "", gatewaytest.Gateway4, TCP, 60999, 60999, "ip_local_reserved_ports=60999 "},
		{"the kernel's first", "", gatewaytest.Gateway4, UDP, 32768, 32768, "ip_local_reserved_ports=32768 "},
		{"beside what is reserved", "80,8000-8080,32768-32999", gatewaytest.Gateway4, AllTransports, 32000, 39999, "ip_local_reserved_ports=80,8000-8080,32000-39999 "},
		{"reserved", "80,32768-39999", gatewaytest.Gateway4, AllTransports, 20000, 39999, ""},
		{"reserved but for one", "32768-39998", gatewaytest.Gateway4, AllTransports, 20000, 39999, "ip_local_reserved_ports=20000-39999 "},
		{"all", "", gatewaytest.Gateway4, AllTransports, 1024, 65535, "name fewer in pool4"},
		{"identifiers", "", gatewaytest.Gateway4, ICMP, 0, 65535, ""},
		{"an address that is not the host's", "", poolAddr, AllTransports, 1024, 65535, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testSettings(t)
			c.Name = "nat64.ports"
			c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(tt.address, 32), Transports: tt.transports, First: tt.first, Last: tt.last}}
			var examined, started error
			w.Gateway.Do(t, func() error {
				if err := os.WriteFile(localReservedFile, []byte(tt.reserved+"\n"), 0); err != nil {
					return err
				}
				examined = examine(c)
				return nil
			})
			if tt.want == "" && examined != nil || tt.want != "" && (examined == nil || !strings.Contains(examined.Error(), tt.want)) {
				t.Errorf("examined: %v, want %q", examined, tt.want)
			}
			if tt.want == "" {
				return
			}
			n, err := New(c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ended := w.Gateway.Go(func() error { return n.Run(t.Context()) })
			select {
			case <-n.Ready():
				t.Error("it started")
				return
			case started = <-ended:
			}
			if started == nil || !strings.Contains(started.Error(), tt.want) {
				t.Errorf("it ended: %v", started)
			}
		})
	}
	w.Clean(t)
}
