// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dialTimeout bounds the question whether someone listens on a socket.
const dialTimeout = time.Second

// Alive reports whether a process listens on the socket.
func Alive(path string) bool {
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Listen opens the control socket with the permission bits and group given; an
// empty group stays that of the process. A socket that a killed process left is
// replaced, one on which someone listens is not.
func Listen(path string, mode fs.FileMode, group string) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, refused(path, err)
	}
	if stale, err := occupied(path); err != nil {
		return nil, err
	} else if stale {
		if err := os.Remove(path); err != nil {
			return nil, refused(path, err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, refused(path, err)
	}
	if err := own(path, mode, gid); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// own sets the group before the bits, so that no other group is ever let in.
func own(path string, mode fs.FileMode, gid int) error {
	if gid >= 0 {
		if err := os.Chown(path, -1, gid); err != nil {
			return fmt.Errorf("cannot give the control socket %s to group %d (%w): run as root or as a member of the group", path, gid, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("cannot set the permissions of the control socket %s: %w", path, err)
	}
	return nil
}

// Usable returns why Listen could not open the socket, as far as that is seen
// without changing anything.
func Usable(path, group string) error {
	if _, err := groupID(group); err != nil {
		return err
	}
	// Folders that are not there would be made in the nearest one that is.
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	for errors.Is(err, fs.ErrNotExist) && folder != "/" {
		folder = filepath.Dir(folder)
		info, err = os.Stat(folder)
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "mkdir", Path: folder, Err: syscall.ENOTDIR}
	}
	if err == nil {
		err = unix.Access(folder, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return refused(path, err)
	}
	_, err = occupied(path)
	return err
}

// RemoveStale removes a socket that a killed process left, and reports whether there was one.
// What somebody listens on, and what is no socket, stays.
func RemoveStale(path string) (removed bool, err error) {
	if stale, err := occupied(path); err != nil || !stale {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, refused(path, err)
	}
	return true, nil
}

// occupied looks whether something is at path. A socket on which no one listens
// is stale and may be removed; anything else is an error.
func occupied(path string) (stale bool, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, refused(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("%s is not a socket, so it is left alone: move it away, or set another [control] socket", path)
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err == nil {
		_ = conn.Close()
		return false, fmt.Errorf("another isthmus is running and listens on %s: stop it, or give this one another [control] socket", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return false, refused(path, err)
	}
	return true, nil
}

func refused(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("this user may not use the control socket %s: run as root, or set another [control] socket", path)
	}
	return fmt.Errorf("cannot use the control socket %s: %w", path, err)
}

// groupID finds a group by name or number; -1 stands for none.
func groupID(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if id, err := strconv.Atoi(group); err == nil && id >= 0 {
		return id, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q for the control socket: create it with groupadd --system %s, or change [control] group", group, group)
	}
	return strconv.Atoi(found.Gid)
}

// noUser is the user of a connection that tells none.
const noUser = -1

// userOf returns the user of the process at the other end of the connection.
func userOf(conn net.Conn) int {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return noUser
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return noUser
	}
	user := noUser
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = int(peer.Uid)
		}
	})
	if err != nil {
		return noUser
	}
	return user
}

// mayChange reports whether a user is root or the one that this process runs as.
func mayChange(user int) bool { return user == 0 || user == os.Geteuid() }
