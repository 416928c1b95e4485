// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/port"
)

// Clean removes the state that NAT64s without a fast path have left in this network namespace
// for a successor, in the usual folder and in files of their own, and the answers for
// addresses of pools that no device of a translator leads anywhere. It says in words what was
// removed, and what a living process or another namespace uses.
func Clean(own ...string) (removed, inUse []string, err error) {
	files, err := filepath.Glob(filepath.Join(stateFolder, "*.nat64.state"))
	errs := []error{err}
	removed, inUse, err = cleanFiles(append(files, own...))
	proxies, proxyErr := cleanProxies()
	return append(removed, proxies...), inUse, errors.Join(append(errs, err, proxyErr)...)
}

func cleanProxies() ([]string, error) {
	host, err := port.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Abandon()
	return host.RemoveLeftProxies()
}

func cleanFiles(files []string) (removed, inUse []string, err error) {
	var errs []error
	for _, path := range files {
		why, err := dropState(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case why != "":
			inUse = append(inUse, "sessions in "+path+why)
		default:
			removed = append(removed, "sessions in "+path)
		}
	}
	return removed, inUse, errors.Join(errs...)
}

// keptElsewhere is how long sessions of another network namespace are left to a successor
// there.
const keptElsewhere = time.Hour

// dropState removes a file, unless a process holds it or one in another network namespace may
// take it over: then why says so.
func dropState(path string) (why string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return ", by a living process", nil
	}
	var namespace [8]byte
	if _, err := file.ReadAt(namespace[:], noteNamespace); err == nil {
		of := binary.NativeEndian.Uint64(namespace[:])
		here, err := fastpath.NamespaceCookie()
		info, statErr := file.Stat()
		if err == nil && statErr == nil && of != 0 && of != here && time.Since(info.ModTime()) < keptElsewhere {
			return ", of another network namespace: clean there", nil
		}
	}
	return "", os.Remove(path)
}
