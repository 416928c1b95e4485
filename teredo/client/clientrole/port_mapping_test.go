// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/portmap"
)

func withPortMapping(m PortMapping) func(*Settings) {
	return func(c *Settings) { c.PortMapping = m }
}

func TestPortMappingMethods(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "port_mapping")
	for m, want := range map[PortMapping][]portmap.Method{
		PortMappingAuto:   {portmap.UPnP, portmap.NATPMP},
		PortMappingUPnP:   {portmap.UPnP},
		PortMappingNATPMP: {portmap.NATPMP},
	} {
		c, _ := newClient(t, withPortMapping(m))
		if diff := cmp.Diff(want, c.ports.keeper.Methods); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m, diff)
		}
	}
	c, _ := newClient(t)
	if c.ports != nil || c.Status().(Status).PortMapping != nil {
		t.Error("a port is wanted although the default is none")
	}
}

func TestPortMappingFile(t *testing.T) {
	cfg := defaults()
	for _, tt := range []struct{ name, file, env, want string }{
		{"in the configuration", "/srv/port", "/var/lib/other", "/srv/port"},
		{"of the service", "", "/var/lib/other", "/var/lib/other/client.port-mapping"},
		{"neither", "", "", "/var/lib/isthmus/client.port-mapping"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("STATE_DIRECTORY", tt.env)
			cfg.PortMappingFile = tt.file
			if got := portMappingFile(&cfg); got != tt.want {
				t.Errorf("file %s, want %s", got, tt.want)
			}
		})
	}
	configtest.InEffect(t, "teredo_client", "port_mapping_file")
	c, _ := newClient(t, withPortMapping(PortMappingAuto), func(c *Settings) { c.PortMappingFile = "/srv/port" })
	if file := c.ports.keeper.File; file != "/srv/port" {
		t.Errorf("the keeper has the file %s", file)
	}
}

// What the keeper reports reaches engine, status and log, each change once.
func TestPortMappingReport(t *testing.T) {
	c, log := newClient(t, withPortMapping(PortMappingAuto))
	gateway, external := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddrPort("203.0.113.10:3551")
	c.ports.follow(port.Egress{Source: netip.MustParseAddr("192.168.1.2"), Gateway: gateway}, 3551)
	for range 2 {
		c.ports.report(portmap.Mapping{Method: portmap.UPnP, External: external}, nil)
	}
	want := &PortMappingStatus{Method: "upnp", External: external, Gateway: gateway}
	same := cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})
	if diff := cmp.Diff(want, c.Status().(Status).PortMapping, same); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if s, _ := c.snapshot(); !s.PortMapped || s.UPnPMapped != external {
		t.Errorf("engine %+v", s)
	}
	for range 2 {
		c.ports.report(portmap.Mapping{}, portmap.ErrNoGateway)
	}
	want = &PortMappingStatus{Gateway: gateway, Error: portmap.ErrNoGateway.Error()}
	if diff := cmp.Diff(want, c.Status().(Status).PortMapping, same); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if s, _ := c.snapshot(); s.PortMapped {
		t.Errorf("engine %+v", s)
	}
	counted := map[string]float64{}
	c.Collect(func(m role.Metric) {
		if strings.HasPrefix(m.Name, "port_reserv") && m.Value > 0 {
			counted[m.Name+" "+m.Reason] = m.Value
		}
	})
	if diff := cmp.Diff(map[string]float64{"port_reservation_failures_total no_gateway": 2}, counted); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines of log:\n%s", n, log)
	}
}

// The keeper gets the newest way only, and none twice.
func TestPortMappingFollows(t *testing.T) {
	c, _ := newClient(t, withPortMapping(PortMappingAuto))
	way := func(last byte) port.Egress {
		return port.Egress{Source: netip.AddrFrom4([4]byte{192, 168, 1, last}), Gateway: netip.MustParseAddr("192.168.1.1")}
	}
	for _, e := range []port.Egress{way(2), way(3), way(4)} {
		c.ports.follow(e, 3551)
	}
	if got := <-c.ports.targets; got.Local != netip.MustParseAddrPort("192.168.1.4:3551") {
		t.Errorf("target %+v", got)
	}
	c.ports.follow(way(4), 3551)
	if len(c.ports.targets) > 0 {
		t.Error("the same way is told twice")
	}
	c.ports.follow(port.Egress{}, 3551)
	if got := <-c.ports.targets; got.Local.IsValid() || got.Gateway.IsValid() {
		t.Errorf("target without a route: %+v", got)
	}
}

// Events that may mean a restart of the gateway have it asked again; those of a start, and
// answers that no doubt preceded, do not.
func TestPortMappingHeedsEvents(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []client.EventKind
		asked  bool
	}{
		{"start", []client.EventKind{client.GotAddress, client.NATDetermined}, false},
		{"asked and answered at once", []client.EventKind{client.GotAddress, client.Confirmed}, false},
		{"doubted and confirmed", []client.EventKind{client.Doubted, client.Confirmed}, true},
		{"still in doubt", []client.EventKind{client.Doubted}, false},
		{"confirmed once more", []client.EventKind{client.Doubted, client.Confirmed, client.Confirmed}, true},
		{"lost and back", []client.EventKind{client.AddressLost, client.WentOffLine, client.GotAddress}, true},
		{"another mapping", []client.EventKind{client.AddressChanged}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := newClient(t, withPortMapping(PortMappingAuto))
			for _, kind := range tt.events {
				c.ports.heed(client.Event{Kind: kind})
			}
			if asked := len(c.ports.doubts) > 0; asked != tt.asked {
				t.Errorf("asked %v", asked)
			}
		})
	}
	c, _ := newClient(t, withPortMapping(PortMappingAuto))
	for _, kind := range []client.EventKind{client.Doubted, client.Confirmed} {
		if err := c.apply(client.Event{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.ports.doubts) == 0 {
		t.Error("the events of the engine do not get there")
	}
}

// A gateway that does not answer does not keep the client from its address.
func TestPortMappingWithoutGateway(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, withPortMapping(PortMappingAuto), func(c *Settings) {
		c.PortMappingFile = filepath.Join(t.TempDir(), "port")
	})
	began := time.Now()
	roletest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
	t.Logf("qualified after %v", time.Since(began))
	s := await(t, c, "told that no port is reserved", func(s Status) bool { return s.PortMapping.Error != "" })
	if s.PortMapping.External.IsValid() || s.PortMapping.Gateway != netip.MustParseAddr("198.51.100.1") {
		t.Errorf("status %+v", s.PortMapping)
	}
}
