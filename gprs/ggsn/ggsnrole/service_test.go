// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// TestServiceGGSN has a node with the rights of the packaged service: it binds its ports, makes
// its device, has its fast path, and keeps contexts in the service's folder of state.
func TestServiceGGSN(t *testing.T) {
	c := newCore(t, "", "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]")
	s := program.NewService(t, c.ns, `
[[ggsn]]
gsn_address4 = "192.0.2.1"
gsn_address6 = "2001:db8:9::1"
peers = ["192.0.2.7", "2001:db8:9::7"]
[[ggsn.apn]]
name = "internet"
pool4 = ["10.45.0.0/16"]
pool6 = ["2001:db8:6000::/44"]
`)
	p := s.Start(t)
	p.AwaitLog(t, "the fast path is attached")
	before := c.counter(t)
	r := c.open(t, 1, false)
	if !c.carried(t, &r) {
		t.Errorf("nothing is carried\n%s", p.Log())
	}
	s.Stop(t, p, syscall.SIGUSR2)
	p = s.Start(t)
	if after := c.counter(t); after != before || !c.carried(t, &r) {
		t.Errorf("the context is lost, the counter %d became %d\n%s", before, after, p.Log())
	}
	s.End(t, p)
}
