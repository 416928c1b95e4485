// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Command vm runs tests under another kernel than that of this machine: it
// boots one in QEMU, without KVM, and reports what the tests said.
//
//	go run ./lab/vm                      the kernel that scripts/peers kernel fetched
//	go run ./lab/vm -kernel IMAGE        another one
//	go run ./lab/vm -run Probe fastpath  some tests of one package alone
//	go run ./lab/vm -sctp                our SCTP against the kernel's
//
// The machine has no disk and no network. Its first file system holds this very
// program as init, the kernel's modules that the tests need, and the tests as
// static programs:
//
//	host                                  guest
//	build tests, modules, cpio archive
//	qemu -kernel -initrd  ----boot--->    init: mount, load modules
//	print, look for the verdict <-tty--   run each test, say the verdict
//	                                      power off
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settings are those of the command line.
type settings struct {
	kernel, modules, run string
	memory               int // MiB
	limit                time.Duration
	verbose, kvm, sctp   bool
	packages             []string
}

func main() {
	if os.Getpid() == 1 {
		initialise()
		return
	}
	s := settings{}
	flag.StringVar(&s.kernel, "kernel", "", "kernel `image` to boot; the one of scripts/peers kernel by default")
	flag.StringVar(&s.modules, "modules", "", "`folder` of the kernel's modules; found beside the image by default")
	flag.StringVar(&s.run, "run", "", "run only tests that match this `pattern`")
	flag.IntVar(&s.memory, "memory", 2048, "memory of the machine in `MiB`")
	flag.DurationVar(&s.limit, "limit", time.Hour, "`time` after which the machine is switched off")
	flag.BoolVar(&s.verbose, "v", false, "print all that the machine says")
	flag.BoolVar(&s.kvm, "kvm", false, "use KVM, where it works")
	flag.BoolVar(&s.sctp, "sctp", false, "have the kernel speak SCTP, and run the tests against that alone")
	flag.Parse()
	s.packages = flag.Args()
	if err := test(s); err != nil {
		fmt.Fprintf(os.Stderr, "vm: %v\n", err)
		os.Exit(1)
	}
}

// test boots the machine and returns an error unless every test passed.
func test(s settings) error {
	root, err := repository()
	if err != nil {
		return err
	}
	k, err := findKernel(root, s)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "isthmus-vm-")
	if err != nil {
		return fmt.Errorf("no folder for the machine's files: %w", err)
	}
	defer os.RemoveAll(scratch)
	// A signal switches the machine off; then what was made is cleaned up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	image := filepath.Join(scratch, "initramfs")
	if err := buildImage(root, scratch, image, k, s); err != nil {
		return err
	}
	return boot(ctx, root, image, k, s)
}

// repository is the folder with go.mod, from the present one upwards.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod here or above: start it in the repository")
		}
	}
}
