// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// qualified waits until the client named "client" has its address.
func qualified(t *testing.T, asked *control.Client, p *program.Process) control.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for {
		status, err := asked.Status(ctx)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Log())
		}
		for _, instance := range status.Instances {
			if instance.Name == "client" && instance.Values["qualified"] == 1 {
				return status
			}
		}
		time.Sleep(10 * time.Millisecond) // the control socket has no way to wait
	}
}

// TestLife runs all three roles in one process, in one network namespace whose
// loopback has the addresses of all:
//
//	client 192.0.2.9 ── lo ── server 192.0.2.1, 192.0.2.2
//	                     └─── relay  192.0.2.3
//
// from start over reload to stop, and looks that nothing stays behind.
func TestLife(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		return teredotest.SetUp("lo", "192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.9/32")
	})
	socket := filepath.Join(t.TempDir(), "control.sock")
	settings := func(rate, mtu int) string {
		return fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
secondary = "192.0.2.2"
rate_total = %d

[[teredo_relay]]
mode = "host"
bind = "192.0.2.3:3545"
mtu = %d

[[teredo_client]]
server = "192.0.2.1"
bind = "192.0.2.9"
# The client may ask before the server listens.
qualification_timeout = "100ms"

[control]
socket = %q
`, rate, mtu, socket)
	}
	path := program.File(t, settings(1000, 1280))
	service, notify := program.NewManager(t)
	p := program.Start(t, ns, notify, "run", "-c", path)
	service.Expect(t, "READY=1", p)
	asked := control.NewClient(socket)
	status := qualified(t, asked, p)
	if len(status.Instances) != 3 || status.PID != p.Cmd.Process.Pid {
		t.Errorf("status: %+v", status)
	}
	if code, out := program.Call(t, "status", "--socket", socket, "--peers"); code != 0 || !strings.Contains(out, "teredo_client client: qualified, 2001:0:c000:201:") {
		t.Errorf("isthmus status: %d\n%s", code, out)
	}

	if err := os.WriteFile(path, []byte(settings(2000, 1400)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGHUP)
	service.Expect(t, "RELOADING=1", p)
	service.Expect(t, "READY=1", p)
	code, out := program.Call(t, "reload", "--socket", socket)
	if want := "reloaded\ntakes effect at the next start: teredo_relay relay: mtu\n"; code != 0 || out != want {
		t.Errorf("isthmus reload: %d\n%s", code, out)
	}
	service.Expect(t, "RELOADING=1", p)
	service.Expect(t, "READY=1", p)
	if err := os.WriteFile(path, []byte("[[teredo_relay]]\nmtu = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out = program.Call(t, "reload", "--socket", socket)
	if checkCode, checked := program.Call(t, "check", "-c", path); code != checkCode || out != checked || !strings.HasPrefix(out, path+":2:7: teredo_relay.mtu: 5 is out of range") {
		t.Errorf("reload of a faulty file: %d\n%scheck: %d\n%s", code, out, checkCode, checked)
	}
	service.Expect(t, "RELOADING=1", p)
	service.Expect(t, "READY=1", p)
	qualified(t, asked, p)

	p.Signal(t, syscall.SIGTERM)
	service.Expect(t, "STOPPING=1", p)
	if err := <-p.Done; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.Log())
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the control socket was left behind")
	}
	ns.Do(t, func() error {
		links, err := testutil.Whole(func() ([]netlink.Link, error) { return netlink.LinkList() })
		for _, link := range links {
			if link.Type() == "tuntap" || link.Type() == "tun" {
				t.Errorf("the interface %s was left behind", link.Attrs().Name)
			}
		}
		return err
	})
}
