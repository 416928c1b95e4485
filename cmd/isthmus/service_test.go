// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// TestServiceRelay has a relay with a fast path that survives: it looks for what it would
// skip, attaches, and takes over what a process before has left.
func TestServiceRelay(t *testing.T) {
	s := newSpan(t)
	r := program.NewService(t, s.relay, "[[teredo_relay]]\nfast_path_devices = [\"v4\", \"v6\"]\n")
	p := r.Start(t)
	s.establish(t, p)
	end := s.flow(t, 1)
	r.Stop(t, p, syscall.SIGUSR2)
	p = r.Start(t)
	if sent, lost := end(); len(lost) > 0 {
		t.Errorf("of %d packets %d are lost, the first of them %v\n%s", sent, len(lost), lost[:min(len(lost), 5)], p.Log())
	}
	code, out, errs := call("status", "--socket", r.Socket)
	for _, want := range []string{"tc by v4, v6", "survives a restart", "peers taken over"} {
		if !strings.Contains(out, want) {
			t.Errorf("isthmus status says nothing of %q: %d\n%s%s\n%s", want, code, out, errs, p.Log())
		}
	}
	r.End(t, p)
}

// TestServiceTeredo has a server, a client of it that asks the router for a port, and a
// relay of the host.
func TestServiceTeredo(t *testing.T) {
	ns := testutil.NewNetns(t)
	addresses(t, ns, "lo", "192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.9/32")
	r := program.NewService(t, ns, `
[[teredo_server]]
address = "192.0.2.1"
secondary = "192.0.2.2"

[[teredo_relay]]
mode = "host"
bind = "192.0.2.3:3545"

[[teredo_client]]
server = "192.0.2.1"
bind = "192.0.2.9"
port_mapping = "auto"
# The client may ask before the server listens.
qualification_timeout = "100ms"
`)
	p := r.Start(t)
	qualified(t, control.NewClient(r.Socket), p)
	p.Signal(t, syscall.SIGHUP)
	r.Manager.Expect(t, "RELOADING=1", p)
	r.Manager.Expect(t, "READY=1", p)
	r.Stop(t, p, syscall.SIGTERM)
}

// TestServiceAnnounce has two speakers of BGP, one of which calls the other with a
// password, and one that sets routes for a routing daemon.
func TestServiceAnnounce(t *testing.T) {
	configtest.InEffect(t, "announce", "listen")
	a, b := testutil.NewNetns(t), testutil.NewNetns(t)
	joined(t, a, b, "bgp", "2001:db8::1/64", "2001:db8::2/64")
	var rigs []*program.Service
	var running []*program.Process
	for _, speaker := range []struct {
		ns            *testutil.Netns
		own, neighbor string
		as            int
		passive       bool
	}{{a, "2001:db8::1", "2001:db8::2", 64512, true}, {b, "2001:db8::2", "2001:db8::1", 64513, false}} {
		addresses(t, speaker.ns, "lo", "192.0.2.1/32")
		r := program.NewService(t, speaker.ns, fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
announce = true
[announce]
method = "bgp"
local_as = %d
router_id = "192.0.2.%d"
next_hop4 = "192.0.2.1"
listen = [%q]
check_interval = "100ms"
check_timeout = "10s"
drain_time = "0s"
[[announce.neighbor]]
address = %q
as = %d
passive = %t
password_file = "/etc/isthmus/password"
`, speaker.as, speaker.as-64511, speaker.own, speaker.neighbor, 64512+64513-speaker.as, speaker.passive))
		r.Machine.Write(t, "password", "secret\n")
		rigs, running = append(rigs, r), append(running, r.Start(t))
	}
	for i, p := range running {
		p.AwaitLog(t, "the BGP session is up")
		p.AwaitLog(t, "msg=announcing")
		rigs[i].Stop(t, p, syscall.SIGTERM)
	}

	r := program.NewService(t, a, `
[[teredo_server]]
address = "192.0.2.1"
announce = true
[announce]
method = "route"
check_interval = "100ms"
check_timeout = "10s"
drain_time = "0s"
`)
	p := r.Start(t)
	p.AwaitLog(t, "msg=announcing")
	r.Stop(t, p, syscall.SIGTERM)
}
