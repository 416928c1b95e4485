// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role"
)

// labFolders makes the folders of --pcap and --out, so that a run does not end
// in the middle for want of them. Empty ones are not wanted.
func labFolders(pcap, out string) error {
	for _, folder := range []struct{ flag, path string }{{"--pcap", pcap}, {"--out", out}} {
		if folder.path == "" {
			continue
		}
		err := os.MkdirAll(folder.path, 0o755)
		if err == nil {
			err = unix.Access(folder.path, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			return role.UsageError{Err: explainFolder(folder.flag, folder.path, err)}
		}
	}
	return nil
}

func explainFolder(flag, path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: there is a file in the way of the folder %s: name another folder", flag, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: this user may not write to %s: name another folder", flag, path)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: nothing can be written to %s, which is read-only: name another folder", flag, path)
	}
	return fmt.Errorf("%s: cannot make the folder %s: %w", flag, path, err)
}
