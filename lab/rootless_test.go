// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// rootlessVariable makes the test binary, run by an ordinary user, a lab, its
// shell, or the command that ends it.
const rootlessVariable = "ISTHMUS_LAB_TEST_ROOTLESS"

// beRootless plays the part named by the variable.
func beRootless(part string) error {
	switch {
	case part == "shell":
		return Shell("", "nat", []string{"cat", "/proc/net/dev"})
	case part == "down":
		_, err := Down("", false, nil)
		return err
	case !Limited():
		status, err := Rootless(context.Background())
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d", status)
		}
		return err
	}
	return rootlessLab()
}

// rootlessLab is a client behind a NAT that pings a host, with a TUN device.
func rootlessLab() error {
	ctx := context.Background()
	l, err := New(ctx, Options{Name: "rootless"})
	if err != nil {
		return err
	}
	defer l.Close()
	client, host := l.Node("client"), l.Node("host")
	nat := l.NAT("nat", NATConfig{Kind: FullCone, InputDrop: true})
	l.Link(client, "eth0", nat, "l1")
	if _, err := l.Wire(nat, "e4", host, "eth0", WireConfig{AtoB: LaneConfig{Delay: time.Millisecond}}); err != nil {
		return err
	}
	client.Addr("eth0", "192.168.1.2/24").Route("default", "192.168.1.1")
	nat.Addr("l1", "192.168.1.1/24").Addr("e4", "203.0.113.10/24")
	host.Addr("eth0", "203.0.113.1/24")
	r, err := client.Ping(ctx, Ping{To: netip.MustParseAddr("203.0.113.1"), Count: 2, Interval: time.Millisecond, Timeout: mustArrive})
	if err != nil {
		return err
	}
	if r.Lost() != 0 {
		return errors.New("pings were lost")
	}
	err = client.Do(func() error {
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN})
	})
	if err != nil {
		return fmt.Errorf("make a TUN interface: %w", err)
	}
	if _, err := client.Start(ctx, Process{Path: "sleep", Args: []string{"1000"}}); err != nil {
		return err
	}
	fmt.Println("up", l.dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// ordinaryUser is an account no one has on the test machine.
const ordinaryUser = 61234

// asUser prepares a part of the test as a user without any right, to whom
// /dev/net/tun is open in a mount namespace of the test alone. The tools of the
// lab are open to the user there too, wherever the repository lies: below a home
// folder that is closed, the way to them is laid again.
func asUser(t *testing.T, dir, part string, tunMode os.FileMode) *exec.Cmd {
	t.Helper()
	tun := filepath.Join(dir, "tun-"+strconv.FormatUint(uint64(tunMode), 8))
	script := fmt.Sprintf("set -e; test -e %[1]s || mknod %[1]s c 10 200; chmod %[2]o %[1]s; mount --bind %[1]s %[3]s; "+openTools(dir)+
		"exec setpriv --reuid %[4]d --regid %[4]d --clear-groups --pdeathsig KILL %[5]s", tun, tunMode, tunDevice, ordinaryUser, filepath.Join(dir, "lab.test"))
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script)
	cmd.Env = append(os.Environ(), rootlessVariable+"="+part, "XDG_RUNTIME_DIR="+filepath.Join(dir, "run"))
	return cmd
}

// openTools gives the commands that lay the way to the peers' folder again, if a
// folder on it is closed to others; they touch the mount namespace of the test
// alone.
func openTools(dir string) string {
	found, err := peers.Find()
	if err != nil || isOpen(found.Dir) {
		return ""
	}
	top := "/" + strings.SplitN(found.Dir, "/", 3)[1]
	aside := filepath.Join(dir, "tools")
	return fmt.Sprintf("mkdir -p %[1]s; mount --bind %[2]s %[1]s; "+
		"mount -t tmpfs -o mode=755 tmpfs %[3]s; mkdir -p %[2]s; mount --bind %[1]s %[2]s; ", aside, found.Dir, top)
}

// isOpen reports whether everybody may enter a folder and all above it.
func isOpen(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

// userFolder holds a copy of the test binary and a run-time folder of the user.
func userFolder(t *testing.T) string {
	t.Helper()
	testutil.NeedRoot(t)
	dir, err := os.MkdirTemp("", "isthmus-lab-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "lab.test"), program, 0o755),
		os.Mkdir(run, 0o700), os.Chown(run, ordinaryUser, ordinaryUser)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startRootless gives a running lab of the user and the directory of its run.
func startRootless(t *testing.T, folder string) (cmd *exec.Cmd, stdin io.Closer, dir string) {
	t.Helper()
	cmd = asUser(t, folder, "lab", 0o666)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "up ")
	if !ok {
		_ = cmd.Wait()
		t.Fatalf("the lab says %q %s", line, complaints.String())
	}
	return cmd, stdin, dir
}

func TestRootlessLabWorksAndIsReachedFromSecondTerminal(t *testing.T) {
	folder := userFolder(t)
	cmd, stdin, dir := startRootless(t, folder)
	out, err := asUser(t, folder, "shell", 0o600).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "l1:") {
		t.Errorf("the shell shows %q, %v; want the interfaces of the NAT", out, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the lab ends with %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestRootlessLabIsEndedFromSecondTerminal(t *testing.T) {
	folder := userFolder(t)
	cmd, _, dir := startRootless(t, folder)
	members := membersOf(dir)
	if len(members) == 0 {
		t.Error("the lab has no processes")
	}
	if out, err := asUser(t, folder, "down", 0o600).CombinedOutput(); err != nil {
		t.Errorf("down: %s %v", out, err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if !awaitEnd(members, mustArrive) {
		t.Error("processes outlive the lab")
	}
}

func TestKilledRootlessLabTakesItsProcessesAlong(t *testing.T) {
	folder := userFolder(t)
	cmd, _, dir := startRootless(t, folder)
	members := membersOf(dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(members) == 0 || !awaitEnd(members, mustArrive) {
		t.Errorf("of the processes %v some outlive the lab", members)
	}
}

func TestRootlessLabKilledInsideIsNoSuccess(t *testing.T) {
	folder := userFolder(t)
	cmd, _, dir := startRootless(t, folder)
	runs, err := readRuns(filepath.Dir(dir))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, error %v; want one run", runs, err)
	}
	if err := runs[0].Owner.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("a killed lab ends with %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestRootlessLabWithoutTUNSaysWhatToDo(t *testing.T) {
	folder := userFolder(t)
	out, err := asUser(t, folder, "lab", 0o600).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "sudo") || !strings.Contains(string(out), tunDevice) {
		t.Errorf("it says %q, %v; want a sentence about %s and sudo", out, err, tunDevice)
	}
}
