// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// maxSecret bounds a file that holds one secret, in bytes.
const maxSecret = 4096

// Secret is text that no log, status or error may show.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(secret)" }

// ReadPrivate reads a whole file that strangers may not read.
func ReadPrivate(path string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK a pipe would wait for its other end.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s: make it (chmod 640), or name the right one", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not read %s: give the file to the user or the group that isthmus runs as, or use sudo", path)
	case err != nil:
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = CheckPrivate(path, info)
	}
	if err != nil {
		return nil, err
	}
	// Read at once, a file of many MiB costs no more than its size; one that grows meanwhile is read to its end.
	text := bytes.NewBuffer(make([]byte, 0, min(info.Size(), limit)+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(file, limit+1)); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if int64(text.Len()) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes, and more is not read: name the right file", path, limit)
	}
	return text.Bytes(), nil
}

// CheckPrivate returns why a file must not hold secrets: it is no file, others
// than owner and group may read it, the group may write it, or it belongs to
// another user than root, this one or, for root, that of the service.
func CheckPrivate(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file: name the right one", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return fmt.Errorf("%s holds secrets, but its permissions %04o open it to others: run chmod 640 %s, or 600", path, mode, path)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return checkOwner(path, int(owner.Uid), os.Geteuid(), runsAs)
	}
	return nil
}

// checkOwner returns why a file of the user uid must not hold secrets of a process of euid, which runs as runsAs
// says.
func checkOwner(path string, uid, euid int, runsAs func() *user.User) error {
	if uid == 0 || uid == euid {
		return nil
	}
	as := runsAs()
	switch {
	case as == nil, as.Uid == "0":
		return fmt.Errorf("%s holds secrets, but does not belong to root: run chown root %s, then chmod 600 %s", path, path, path)
	case as.Uid == strconv.Itoa(uid):
		return nil
	}
	group := as.Gid
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Errorf("%s holds secrets, but belongs neither to root nor to %s, as whom isthmus runs: run chown root:%s %s, then chmod 640 %s",
		path, as.Username, group, path, path)
}
