// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Clean removes the state that NAT64s without a fast path have left for a successor, and
// the answers for addresses of pools that no device of a translator leads anywhere. It says
// in words what was removed and what a living process uses.
func Clean() (removed, inUse []string, err error) {
	removed, inUse, err = cleanFolder(stateFolder)
	proxies, proxyErr := cleanProxies()
	return append(removed, proxies...), inUse, errors.Join(err, proxyErr)
}

func cleanProxies() ([]string, error) {
	host, err := port.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Abandon()
	return host.RemoveLeftProxies()
}

func cleanFolder(folder string) (removed, inUse []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.nat64.state"))
	errs := []error{err}
	for _, path := range files {
		held, err := dropState(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case held:
			inUse = append(inUse, "sessions in "+path)
		default:
			removed = append(removed, "sessions in "+path)
		}
	}
	return removed, inUse, errors.Join(errs...)
}

// dropState removes a file, unless a process holds it.
func dropState(path string) (held bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true, nil
	}
	return false, os.Remove(path)
}
