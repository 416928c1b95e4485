// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// fastCore is a node as a process, with a fast path by a mode.
func fastCore(t *testing.T, mode string) *core {
	t.Helper()
	return newCore(t, "fast_path = \""+mode+"\"", "pool4 = [\"10.45.0.0/16\"]")
}

// carriedFast has packets carried until programs carry those of both directions.
func (c *core) carriedFast(t *testing.T, p *program.Process, r *gtp.CreateResponse) {
	t.Helper()
	await(t, func() bool {
		if !c.carried(t, r) {
			t.Fatalf("nothing is carried\n%s", p.Log())
		}
		f := c.status(t).FastPath.Packets["forward"]
		return f["up_forwarded"] > 0 && f["down_forwarded"] > 0
	})
}

// receiveFrames has the SGSN's host take what XDP redirects to it.
func (c *core) receiveFrames(t *testing.T) {
	t.Helper()
	c.sgsn.Show(t)
	c.sgsn.Do(t, func() error { return testutil.ReceiveByNAPI("gn", true) })
}

// TestFastPathProcess: however a process ends, no program of its stays, and the next one carries by others.
func TestFastPathProcess(t *testing.T) {
	for _, mode := range []string{"tc", "xdp"} {
		t.Run(mode, func(t *testing.T) {
			c := fastCore(t, mode)
			if mode == "xdp" {
				c.receiveFrames(t)
			}
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR2, syscall.SIGTERM} {
				p := c.serve(t)
				r := c.open(t, 1, false)
				c.carriedFast(t, p, &r)
				c.manager.End(t, p, how)
				c.ns.Do(t, func() error { return noPrograms(t, "gn") })
			}
		})
	}
}

// TestFastPathIsShown: status and traces say what programs do.
func TestFastPathIsShown(t *testing.T) {
	c := fastCore(t, "tc")
	p := c.serve(t)
	r := c.open(t, 1, false)
	c.carriedFast(t, p, &r)
	await(t, func() bool { return len(c.status(t).FastPath.Rates) > 0 })
	_, out := program.Call(t, "status", "--socket", c.socket)
	for _, want := range []string{"tc by gn", "packets a second, fast path", " up, ", " down; left ", "packets a second, engine", "up forwarded", "down forwarded", "no record"} {
		if !strings.Contains(out, want) {
			t.Errorf("status has no %q:\n%s", want, out)
		}
	}
	type answer struct {
		status int
		out    string
	}
	told := make(chan answer, 1)
	go func() {
		status, out := program.Call(t, "trace", "--socket", c.socket, "-n", "2", "forward")
		told <- answer{status, out}
	}()
	gpdu, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, udp(r.EndUserAddress.Value.IPv4, sgsnAddr[false], 64, 8))
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { // answers by ICMP have a rate
		if _, err := c.user.WriteToUDPAddrPort(gpdu, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
			t.Fatal(err)
		}
		select {
		case a := <-told:
			if a.status != 0 || !strings.Contains(a.out, "forward (up_forwarded): 192.0.2.7:") {
				t.Errorf("%d: %s", a.status, a.out)
			}
			return true
		default:
			return false
		}
	})
	c.manager.End(t, p, syscall.SIGTERM)
}
