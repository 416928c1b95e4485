// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// handleOf makes a translator of lines of a file, without a device.
func handleOf(t *testing.T, lines string) gatewaytest.Handle {
	t.Helper()
	cfg := *configtest.One(t, Role.Section, "[[siit]]\nfast_path = \"off\"\n"+lines).(*Settings)
	s, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.own = gateway.Own{V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8:6::1")}
	settings, err := s.settings(&s.cfg, s.mappings(&s.cfg, s.file))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.engine.Reconfigure(settings); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	return func(ip []byte) (packets [][]byte) {
		var out packet.Batch
		s.handle(bytes.Clone(ip), now, &out)
		return out.IP
	}
}

// TestKeysOfHeaders sees packets by the keys that translators have alike.
func TestKeysOfHeaders(t *testing.T) {
	configtest.InEffect(t, "siit", "pool6", "allow_non_global", "address4", "address6", "router_pool4", "router_pool6",
		"interface_object", "ipv4_mtu", "ipv6_mtu", "lowest_ipv6_mtu", "plateaus", "udp_zero_checksum",
		"traffic_class", "tos", "icmp_errors_off", "icmp_rate", "eam")
	gatewaytest.Headers(t, func(t *testing.T, lines string) gatewaytest.Handle {
		return handleOf(t, "eam = [\"192.0.2.66 2001:db8:1::c\"]\n"+lines)
	})
}
