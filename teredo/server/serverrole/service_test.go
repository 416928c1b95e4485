// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// TestServiceAnnounce has two speakers of BGP, one of which calls the other with a
// password, and one that sets routes for a routing daemon.
func TestServiceAnnounce(t *testing.T) {
	configtest.InEffect(t, "announce", "listen")
	a, b := testutil.NewNetns(t), testutil.NewNetns(t)
	teredotest.Link(t, a, b, "bgp", []string{"2001:db8::1/64"}, "2001:db8::2/64")
	var rigs []*program.Service
	var running []*program.Process
	for _, speaker := range []struct {
		ns            *testutil.Netns
		own, neighbor string
		as            int
		passive       bool
	}{{a, "2001:db8::1", "2001:db8::2", 64512, true}, {b, "2001:db8::2", "2001:db8::1", 64513, false}} {
		speaker.ns.Do(t, func() error { return teredotest.SetUp("lo", "192.0.2.1/32") })
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
