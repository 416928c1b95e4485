// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// folder is where a file says which table has routes of ours, as long as it may have some: a process that was killed, or
// has left them for a successor, does not know what the next one announces.
var folder = kept.Folder

// routesNote is the file of a table and protocol in the network namespace of the calling thread. Its process has it
// locked.
func routesNote(table, protocol string) (string, error) {
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return "", err
	}
	return filepath.Join(folder, fmt.Sprintf("routes.%d.%s.%s", namespace.Ino, table, protocol)), nil
}

// noteRoutes leaves the note, locked until the file is closed.
func noteRoutes(table, protocol int) (*os.File, error) {
	path, err := routesNote(fmt.Sprint(table), fmt.Sprint(protocol))
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process announces by table %d: %w", table, err), file.Close())
	}
	return file, nil
}

// Clean removes the routes that processes which do not live any more have left in the network namespace of the calling
// thread.
func Clean() (role.Cleaned, error) { return clean("") }

// RemoveLeft is [Clean] at the start of a process, but for the routes that it goes on with. a may be nil.
func RemoveLeft(a *Announcer, log *slog.Logger) {
	but := ""
	if a != nil && a.cfg.Method == config.AnnounceRoute {
		but, _ = routesNote(fmt.Sprint(a.cfg.Table), fmt.Sprint(a.cfg.Protocol))
	}
	cleaned, err := clean(but)
	for _, what := range cleaned.Removed {
		log.Info("removed what an earlier process has announced", "what", what)
	}
	if err != nil {
		log.Warn("what an earlier process has announced by routes stays: run isthmus clean as root", "error", err)
	}
}

// clean is [Clean] but for the routes of one note.
func clean(but string) (cleaned role.Cleaned, err error) {
	pattern, err := routesNote("*", "*")
	if err != nil {
		return cleaned, err
	}
	notes, err := filepath.Glob(pattern)
	for _, path := range notes {
		var table, protocol int
		var namespace uint64
		_, wrong := fmt.Sscanf(filepath.Base(path), "routes.%d.%d.%d", &namespace, &table, &protocol)
		if wrong != nil || path == but {
			continue
		}
		what := fmt.Sprintf("announcing routes in table %d, protocol %d", table, protocol)
		used, failed := removeRoutes(path, table, protocol)
		switch {
		case used:
			cleaned.InUse = append(cleaned.InUse, what)
		case failed != nil:
			err = errors.Join(err, failed)
		default:
			cleaned.Removed = append(cleaned.Removed, what)
		}
	}
	return cleaned, err
}

// removeRoutes removes the routes of a note, and the note, unless a process has it locked.
func removeRoutes(path string, table, protocol int) (used bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true, nil
	}
	routes, err := port.OpenSigns(table, protocol)
	if err != nil {
		return false, err
	}
	defer routes.Close()
	if err := routes.Keep(); err != nil {
		return false, err
	}
	return false, os.Remove(path)
}
