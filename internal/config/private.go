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

// serviceUser is whom isthmus.service runs as; see dist/sysusers.d.
const serviceUser = "isthmus"

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
		return nil, fmt.Errorf("this user may not read %s: give the file to the user or the group of isthmus", path)
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
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && !mayOwn(int(owner.Uid), os.Geteuid(), user.Lookup) {
		return fmt.Errorf("%s holds secrets, but belongs to another user: run chown root:%s %s, then chmod 640 %s; without that group, chown root", path, serviceUser, path, path)
	}
	return nil
}

// mayOwn reports whether a file of the user uid may hold secrets of a process of euid. Root, who may check what
// the packaged service is to run with, takes what that takes.
func mayOwn(uid, euid int, lookup func(name string) (*user.User, error)) bool {
	if uid == 0 || uid == euid {
		return true
	}
	if euid != 0 {
		return false
	}
	service, err := lookup(serviceUser)
	return err == nil && service.Uid == strconv.Itoa(uid)
}
