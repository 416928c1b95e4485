// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// qemuProgram is the emulator for the kind of machine that kernels here are for.
const qemuProgram = "qemu-system-x86_64"

// boot starts the machine, prints what it says and returns its verdict.
func boot(outer context.Context, root, image string, k kernel, s settings) error {
	ctx, cancel := context.WithTimeout(outer, s.limit)
	defer cancel()
	qemu := filepath.Join(root, ".cache/kernel/bin", qemuProgram)
	if _, err := os.Stat(qemu); err != nil {
		qemu = qemuProgram
	}
	// A busy host lets the kernel's check of its timer fail, which is a panic.
	cmd := exec.CommandContext(ctx, qemu,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-accel", accelerator(s), "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(s.memory),
		"-kernel", k.image, "-initrd", image,
		"-append", "console=ttyS0 panic=-1 loglevel=4 no_timer_check rdinit=/init")
	console, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("QEMU cannot be started: %w", err)
	}
	say("booting %s", filepath.Base(k.image))
	verdict := follow(console, os.Stdout, s.verbose)
	err = cmd.Wait()
	switch {
	case outer.Err() != nil:
		return errors.New("interrupted; the machine was switched off")
	case ctx.Err() != nil:
		return fmt.Errorf("the machine was switched off after %v", s.limit)
	case verdict == verdictPassed:
		return nil
	case verdict == verdictFailed:
		return errors.New("see what failed above")
	case err != nil:
		return fmt.Errorf("QEMU failed: %w\n%s", err, strings.TrimSpace(complaints.String()))
	}
	return errors.New("the machine stopped without a verdict; -v shows all it said")
}

// accelerator is how QEMU runs the machine's code. KVM is used only if asked
// for: a /dev/kvm that is there need not work, inside another virtual machine.
func accelerator(s settings) string {
	if s.kvm {
		return "kvm"
	}
	return "tcg,thread=multi"
}

// follow prints the console until it ends and returns the last verdict on it.
// Unless all is wanted, what tests say while all is well is left out.
func follow(console io.Reader, to io.Writer, all bool) (verdict string) {
	r := bufio.NewReader(console)
	for {
		line, err := r.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if line == verdictPassed || line == verdictFailed {
			verdict = line
		}
		if line != "" && (all || !noise(line)) {
			fmt.Fprintln(to, line)
		}
		if err != nil {
			return verdict
		}
	}
}

// noise reports whether a line says only that a test runs or has passed.
func noise(line string) bool {
	line = strings.TrimSpace(line)
	for _, start := range []string{"=== ", "--- PASS: ", "PASS"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}
