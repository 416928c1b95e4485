// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tunDevice is what Isthmus makes its network interfaces with.
const tunDevice = "/dev/net/tun"

// Limited reports that this process is a lab in a user namespace: root there,
// an ordinary user to the machine.
func Limited() bool { return os.Getenv(stateVariable) != "" }

// Rootless runs this program again, with the same arguments, as root of user,
// network and mount namespaces of its own, and gives its exit status, or an
// error if a signal ended it. When ctx ends it asks the program to end. It is for a user without root; what such a
// lab cannot do, Limited tells it to leave out.
func Rootless(ctx context.Context) (status int, err error) {
	if err := checkTUN(); err != nil {
		return 0, err
	}
	root, err := stateRoot()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stateVariable+"="+root)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := spawn(cmd.Start); err != nil {
		return 0, explainNamespaces(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return 0, err
	}
	lock, err := lockState(root)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	// A lab that was killed left children and files to this process.
	err = sweep(root)
	if end, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && end.Signaled() {
		return 0, errors.Join(fmt.Errorf("the lab was ended by a signal (%s)", end.Signal()), err)
	}
	return cmd.ProcessState.ExitCode(), err
}

// explainNamespaces says in words why the kernel refused.
func explainNamespaces(err error) error {
	for _, refusal := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL} {
		if errors.Is(err, refusal) {
			return errors.New("this system does not let ordinary users make network namespaces: run the lab with sudo")
		}
	}
	return err
}

// checkTUN reports whether this user can make TUN interfaces.
func checkTUN() error {
	f, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing: load it with sudo modprobe tun, or run the lab with sudo", tunDevice)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s is closed to ordinary users here: run the lab with sudo", tunDevice)
	}
	return fmt.Errorf("cannot use %s: %w; run the lab with sudo", tunDevice, err)
}
