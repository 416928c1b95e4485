// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

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
// locked, and it has the configuration file by which the routes were announced, if there was one.
func routesNote(table, protocol string) (string, error) {
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return "", err
	}
	return filepath.Join(folder, fmt.Sprintf("routes.%d.%s.%s", namespace.Ino, table, protocol)), nil
}

// noteTime is how long a note is waited for that another process has locked: a predecessor that is about to end removes
// its routes by then, and so does who cleans. Tests have more patience.
var noteTime = time.Second

// noteRoutes leaves the note of an owner, locked until the file is closed.
func noteRoutes(table, protocol int, owner string) (*os.File, error) {
	path, err := routesNote(fmt.Sprint(table), fmt.Sprint(protocol))
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(noteTime); ; time.Sleep(noteTime / 50) {
		file, err := lockNote(path, os.O_CREATE)
		switch {
		case err == nil:
			if err = errors.Join(file.Truncate(0), write(file, owner)); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, os.ErrNotExist):
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("another process announces by table %d: %w", table, err)
		}
	}
}

func write(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// lockNote opens a note and locks it. Who had it may have removed it meanwhile: that is [os.ErrNotExist] as well.
func lockNote(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockOpen(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lockOpen locks a note that is open, if it is still the one of its name.
func lockOpen(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && !kept.StillThere(file) {
		return os.ErrNotExist
	}
	return err
}

// Clean removes the routes that processes which do not live any more have left in the network namespace of the calling
// thread.
func Clean() (role.Cleaned, error) { return clean("", "") }

// RemoveLeft removes, at the start of a process, the routes that one before it with the same configuration file has left,
// but for those that it goes on with. What others have left is for their successors; without a file it is no successor.
// a may be nil.
func RemoveLeft(a *Announcer, owner string, log *slog.Logger) {
	if owner == "" {
		return
	}
	cleaned, err := clean(a.ownNote(), owner)
	for _, what := range cleaned.Removed {
		log.Info("removed what an earlier process has announced", "what", what)
	}
	if err != nil {
		log.Warn("what an earlier process has announced by routes stays: run isthmus clean as root", "error", err)
	}
}

// ownNote is the note of the routes that are to be announced; empty: by another method.
func (a *Announcer) ownNote() string {
	if a == nil {
		return ""
	}
	a.mu.Lock() // a reload may come at any time
	defer a.mu.Unlock()
	if a.cfg.Method != config.AnnounceRoute {
		return ""
	}
	path, _ := routesNote(fmt.Sprint(a.cfg.Table), fmt.Sprint(a.cfg.Protocol))
	return path
}

// clean is [Clean] of the notes of an owner, or if that is empty of all, but for one.
func clean(but, owner string) (cleaned role.Cleaned, err error) {
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
		switch failed := removeRoutes(path, table, protocol, owner); {
		case errors.Is(failed, unix.EWOULDBLOCK):
			cleaned.InUse = append(cleaned.InUse, what)
		case errors.Is(failed, os.ErrNotExist): // another has been faster
		case errors.Is(failed, errNotOurs):
		case failed != nil:
			err = errors.Join(err, failed)
		default:
			cleaned.Removed = append(cleaned.Removed, what)
		}
	}
	return cleaned, err
}

var errNotOurs = errors.New("the routes are of another owner")

// removeRoutes removes the routes of a note, and the note, unless a process has it locked: [unix.EWOULDBLOCK].
func removeRoutes(path string, table, protocol int, owner string) error {
	file, err := lockNote(path, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || owner != "" && string(text) != owner {
		return cmp.Or(err, errNotOurs)
	}
	routes, err := port.OpenSigns(table, protocol)
	if err != nil {
		return err
	}
	defer routes.Close()
	if err := routes.Keep(); err != nil {
		return err
	}
	return os.Remove(path)
}
