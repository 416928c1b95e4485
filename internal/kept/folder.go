// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFolder has the names in a folder reach the disk; a test replaces it.
var syncFolder = func(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); !errors.Is(err, unix.EINVAL) { // some file systems have no such call
		return err
	}
	return nil
}
