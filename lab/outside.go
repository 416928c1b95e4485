// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// TempDir makes a folder among temporary files, which goes with the run: for what is too large for
// the memory that Dir may lie in, and, if perm allows, for programs of other users, who cannot
// reach Dir.
func (l *Lab) TempDir(perm fs.FileMode) (string, error) {
	if err := l.begin(); err != nil {
		return "", err
	}
	defer l.steps.Done()
	// Nobody guesses the name, which leaves room for sockets below it. What has it is ours: the state tells of it before it is
	// there, for the next run, should this one be killed in between.
	dir := filepath.Join(os.TempDir(), "isthmus-lab-"+l.Name()+"-"+rand.Text()[:12])
	l.mu.Lock()
	l.state.Outside = append(l.state.Outside, dir)
	err := l.state.write(l.dir)
	l.mu.Unlock()
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, perm) // the umask does not matter
	}
	if err != nil {
		return "", fmt.Errorf("cannot make a folder for temporary files: %w", err)
	}
	return dir, nil
}

// removeOutside removes folders that TempDir has made.
func removeOutside(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// Whoever is root must not be led elsewhere.
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && info.IsDir() && int(stat.Uid) == os.Geteuid() {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// removePins removes what fast paths have pinned in the namespaces below a folder: the memory of
// their maps is the kernel's, and nobody comes to take it over.
func removePins(spaces string) error {
	cookies, err := cookiesOf(spaces)
	if err != nil || len(cookies) == 0 {
		return err
	}
	left, err := pinned.LeftoversOf(cookies)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range left {
		errs = append(errs, removePinsOf(l))
	}
	return errors.Join(errs...)
}

// pinsHeld bounds the wait for who holds pins: others hold all of them for the moment of a look.
const pinsHeld = 2 * time.Second

func removePinsOf(l pinned.Leftover) error {
	for end := time.Now().Add(pinsHeld); ; time.Sleep(pinsHeld / 100) {
		if err := l.Remove(); !errors.Is(err, pinned.ErrHeld) {
			return err
		}
		if time.Now().After(end) {
			return nil // they are in use after all
		}
	}
}

// cookiesOf are the numbers of the namespaces that are mounted in a folder. Kernels that have none
// pin nothing that could be told from the host's.
func cookiesOf(spaces string) (map[uint64]bool, error) {
	entries, err := os.ReadDir(spaces)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	cookies := map[uint64]bool{}
	for _, e := range entries {
		path := filepath.Join(spaces, e.Name())
		if !mountedNamespace(path) {
			continue
		}
		if cookie, err := cookieOf(path); err == nil && cookie != 0 {
			cookies[cookie] = true
		}
	}
	return cookies, err
}

func cookieOf(path string) (cookie uint64, err error) {
	ns, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	err = inNamespace(ns, func() (err error) {
		cookie, err = pinned.NamespaceCookie()
		return err
	})
	return cookie, err
}
