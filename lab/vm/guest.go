// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Files of the machine.
const (
	planFile     = "/plan.json"
	moduleFolder = "/modules"
)

// What init says at the end; the host looks for it.
const (
	verdictPassed = "vm: all tests passed"
	verdictFailed = "vm: some tests failed"
)

// suiteLimit is how long the tests of one package may take in the machine,
// which may be twenty times slower than its host.
const suiteLimit = 25 * time.Minute

// mounts are what programs expect to find.
var mounts = []struct {
	kind, to string
	required bool
}{
	{"proc", "/proc", true},
	{"sysfs", "/sys", true},
	{"devtmpfs", "/dev", true},
	{"tmpfs", "/tmp", true},
	{"tmpfs", "/run", true},
	{"cgroup2", "/sys/fs/cgroup", false},
	{"bpf", "/sys/fs/bpf", true},
}

// initialise is what the program does as the machine's first process.
func initialise() {
	verdict := verdictPassed
	if err := work(); err != nil {
		fmt.Printf("vm: %v\n", err)
		verdict = verdictFailed
	}
	fmt.Println(verdict)
	unix.Sync()
	// Never comes back; init that ends would be a panic.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// work makes a machine of a kernel and runs the tests.
func work() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.to, 0o755); err != nil && m.required {
			return err
		}
		if err := unix.Mount(m.kind, m.to, m.kind, 0, ""); err != nil && m.required {
			return fmt.Errorf("%s cannot be mounted at %s: %w", m.kind, m.to, err)
		}
	}
	// A fresh namespace holds nothing but its loopback, as on any kernel without
	// these modules.
	if err := os.WriteFile("/proc/sys/net/core/fb_tunnels_only_for_init_net", []byte("2"), 0); err != nil {
		return fmt.Errorf("tunnels cannot be kept out of new namespaces: %w", err)
	}
	if err := loadModules(); err != nil {
		return err
	}
	if lo, err := netlink.LinkByName("lo"); err == nil {
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("the loopback device cannot be set up: %w", err)
		}
	}
	text, err := os.ReadFile(planFile)
	if err != nil {
		return err
	}
	var suites []suite
	if err := json.Unmarshal(text, &suites); err != nil {
		return err
	}
	var errs []error
	for _, s := range suites {
		if err := s.test(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Package, err))
		}
	}
	return errors.Join(errs...)
}

// loadModules loads what the host has put in order. One that this kernel does
// not take is told and does no harm by itself.
func loadModules() error {
	files, err := filepath.Glob(moduleFolder + "/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files { // Glob sorts
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
			fmt.Printf("vm: the module %s cannot be loaded: %v\n", filepath.Base(file), err)
		}
		f.Close()
	}
	return nil
}

// test runs the tests of one package. The machine is many times slower than what
// tests are written for, and its host may have other work; so what fails is tried
// once more, alone, and both results are told.
func (s suite) test() error {
	fmt.Printf("vm: testing %s\n", s.Package)
	start := time.Now()
	failed, err := s.attempt(s.Run)
	if err != nil && len(failed) > 0 {
		fmt.Printf("vm: once more: %s\n", strings.Join(failed, ", "))
		_, err = s.attempt("^(" + strings.Join(failed, "|") + ")$")
	}
	if err != nil {
		return err
	}
	fmt.Printf("vm: %s passed in %.0f s\n", s.Package, time.Since(start).Seconds())
	return nil
}

// attempt runs the tests that match a pattern and returns which failed. None did
// if the program ended early.
func (s suite) attempt(pattern string) (failed []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), suiteLimit)
	defer cancel()
	args := []string{"-test.v", "-test.timeout=" + suiteLimit.String()}
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	cmd := exec.CommandContext(ctx, s.program(), args...)
	cmd.Dir = s.folder()
	cmd.Env = []string{
		"PATH=/bin:" + peersThere + "/bin", "HOME=/root", "TMPDIR=/tmp",
		"ISTHMUS_REQUIRE_ROOT=1", "ISTHMUS_BINARY=/bin/isthmus", "ISTHMUS_PEERS=" + peersThere,
		"ISTHMUS_REQUIRE_KERNEL_SCTP=1",
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed = failures(output, os.Stdout)
	if err := cmd.Wait(); err != nil {
		return failed, err
	}
	return nil, nil
}

// failures copies what tests say and returns the names of those that failed, none
// if the program did not come to its end.
func failures(output io.Reader, to io.Writer) (failed []string) {
	ended := false
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		fmt.Fprint(to, line)
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			failed = append(failed, name)
		}
		ended = ended || line == "FAIL\n"
		if err != nil {
			break
		}
	}
	if !ended {
		return nil
	}
	return failed
}
