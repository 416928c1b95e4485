// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere is how long what was left in another network namespace is kept for a successor
// there.
const elsewhere = time.Hour

// Clean removes what processes of a role have left for a successor in the network namespace
// of this cookie, in the usual folder and in files of their own. It says in words what was
// removed, and what a living process or another namespace uses; what is the word for the
// content, such as "sessions".
func Clean(what, role string, namespace uint64, own ...string) (removed, inUse []string, err error) {
	files, err := filepath.Glob(filepath.Join(Folder, "*"+suffix(role)))
	removed, inUse, cleanErr := cleanFiles(what, append(files, own...), namespace)
	return removed, inUse, errors.Join(err, cleanErr)
}

func cleanFiles(what string, files []string, namespace uint64) (removed, inUse []string, err error) {
	var errs []error
	for _, path := range files {
		why, err := drop(path, namespace)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case why != "":
			inUse = append(inUse, what+" in "+path+why)
		default:
			removed = append(removed, what+" in "+path)
		}
	}
	return removed, inUse, errors.Join(errs...)
}

// drop removes a file, unless a process holds it or one in another network namespace may
// take it over: then why says so.
func drop(path string, namespace uint64) (why string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !StillThere(file) { // a new one has that name
		return ", by a living process", nil
	}
	var cookie [8]byte
	if _, err := file.ReadAt(cookie[:], atNamespace); err == nil {
		of := binary.NativeEndian.Uint64(cookie[:])
		info, err := file.Stat()
		if err == nil && of != 0 && namespace != 0 && of != namespace && time.Since(info.ModTime()) < elsewhere {
			return ", of another network namespace: clean there", nil
		}
	}
	return "", os.Remove(path)
}
