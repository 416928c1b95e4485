// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
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

// TestKeysOfMappings sees which packets have a form, and where those between mapped hosts go.
func TestKeysOfMappings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mappings")
	if err := os.WriteFile(file, []byte("192.0.2.66 2001:db8:1::c\n192.0.2.67 2001:db8:1::d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const pool6 = "pool6 = [\"2001:db8:64::/96\"]\n"
	for _, tt := range []struct {
		key, lines, to string
		family         byte // of what comes out
	}{
		{configtest.InEffect(t, "siit", "eam_file"), pool6 + fmt.Sprintf("eam_file = %q", file), gatewaytest.Server6, 4},
		{configtest.InEffect(t, "siit", "eam_overlap"), pool6 + "eam = [\"192.0.2.0/24 2001:db8:1::/120\", \"192.0.2.66 2001:db8:1::c\"]\neam_overlap = true", gatewaytest.Server6, 4},
		{"hairpin by default", pool6 + fmt.Sprintf("eam_file = %q", file), "2001:db8:64::192.0.2.67", 6},
		{configtest.InEffect(t, "siit", "hairpin"), pool6 + fmt.Sprintf("eam_file = %q\nhairpin = \"off\"", file), "2001:db8:64::192.0.2.67", 4},
	} {
		t.Run(tt.key, func(t *testing.T) {
			p := gatewaytest.Packet{Src: gatewaytest.Host6, Dst: tt.to, Proto: 17, Payload: gatewaytest.UDP(5000, 53, 10)}
			if out := handleOf(t, tt.lines)(p.Bytes()); len(out) != 1 || out[0][0]>>4 != tt.family {
				t.Errorf("out comes %x", out)
			}
		})
	}
}

// TestKeysOnTheHost sees the device, its routes and the programs.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "siit", "name", "interface", "mtu", "route", "workers", "announce", "fast_path_devices")
	w := gatewaytest.NewWorld(t)
	text := gatewaytest.DeviceSections + "[[siit]]\npool6 = [\"2001:db8:64::/96\"]\neam = [\"192.0.2.66 2001:db8:6::2\"]\n" + gatewaytest.DeviceKeys
	s, err := New(*configtest.One(t, Role.Section, text).(*Settings), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.OnTheHost(t, s, func() int { _, queues := s.device.Stats(); return queues }, s.fast.Status)
}
