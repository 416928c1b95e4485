// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestRole holds the declaration to what every section has, and its errors to testdata.
func TestRole(t *testing.T) { configtest.Section(t, Role.Section) }

// TestCommand reads the flags as keys of a file.
func TestCommand(t *testing.T) {
	c := Attach{Also: []string{"192.0.2.2"}, RestartCounter: "none", T3: 2e9, N3: 4, Echo: 60e9, MaxContexts: 7, Sequence: true}
	c.Socket, c.Local = "/run/sgsn.sock", "192.0.2.1"
	c.Terminal = Terminal{
		GGSN: "198.51.100.1", APN: "internet", Type: "v4v6", IMSI: "240010123456789", MSISDN: "46702123456", GTP: 1, NSAPI: 6,
		Delegate: true, PCSCF: true, User: "mig", Password: "hem\"melig", Netns: "ue", TUN: "none", ResolvConf: true,
	}
	settings, err := config.Parse(strings.NewReader(c.configuration()), "flags", Role.Section)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.configuration())
	}
	s := settings.Instances[0].Settings.(*Settings)
	w, ok, _ := s.first()
	if settings.Control.Socket != "/run/sgsn.sock" || len(s.Local) != 2 || s.RestartCounter != counterNone || s.N3Requests != 4 || s.MaxContexts != 7 || !s.SequenceNumbers || !ok {
		t.Errorf("read %+v", s)
	}
	// An order has the same arguments.
	order, err := c.want()
	if err != nil {
		t.Fatal(err)
	}
	if w.IMSI != order.IMSI || w.MSISDN != order.MSISDN || w.APN.String() != order.APN.String() || w.Type != order.Type || w.NSAPI != order.NSAPI ||
		w.Password != order.Password || w.tun != order.tun || w.netns != order.netns || !w.resolvConf || !order.PCSCF || !w.Delegate || !order.Delegate || w.Type != gtp.PDPTypeIPv4v6 {
		t.Errorf("a file gives %+v, an order %+v", w, order)
	}
}
