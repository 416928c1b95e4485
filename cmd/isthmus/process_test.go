// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/echo"
	"github.com/isthmus-net/isthmus/internal/testutil/mirror"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

func TestMain(m *testing.M) {
	service.Enter()
	program.Itself(func(as string) {
		switch as {
		case asAbandoned:
			abandoned()
		case asStopping:
			neverStops()
		case asForeground:
			inForeground()
		case asToys:
			roles = append(roles, echo.Role, mirror.Role)
		}
		main()
	})
	os.Exit(testutil.PrivateMounts(m))
}

// addresses gives a device more addresses.
func addresses(t *testing.T, ns *testutil.Netns, device string, list ...string) {
	t.Helper()
	ns.Do(t, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, address := range list {
			parsed, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, parsed); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestKeysOfTheProcess sees the control socket, the metrics and the log of a process.
func TestKeysOfTheProcess(t *testing.T) {
	configtest.InEffect(t, "control", "socket", "mode", "group")
	configtest.InEffect(t, "metrics", "listen")
	configtest.InEffect(t, "log", "level", "format")
	ns := testutil.NewNetns(t)
	addresses(t, ns, "lo", "192.0.2.1/32")
	socket := filepath.Join(t.TempDir(), "control.sock")
	service, notify := program.NewManager(t)
	p := program.Start(t, ns, notify, "run", "-c", program.File(t, fmt.Sprintf(`
[[teredo_server]]
address = "192.0.2.1"
[control]
socket = %q
mode = 0o640
group = "daemon"
[metrics]
listen = "192.0.2.1:9464"
[log]
level = "warn"
format = "json"
`, socket)))
	service.Expect(t, "READY=1", p)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := user.LookupGroup("daemon")
	if owner := info.Sys().(*syscall.Stat_t).Gid; err != nil || fmt.Sprint(owner) != daemon.Gid || info.Mode().Perm() != 0o640 {
		t.Errorf("the socket is %v of the group %d, %v", info.Mode(), owner, err)
	}
	ns.Do(t, func() error {
		conn, err := net.Dial("tcp", "192.0.2.1:9464")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	p.AwaitLog(t, `"level":"WARN"`) // that there is no IPv6, which comes behind that it serves
	if strings.Contains(p.Log(), "INFO") {
		t.Errorf("the log is\n%s", p.Log())
	}
}
