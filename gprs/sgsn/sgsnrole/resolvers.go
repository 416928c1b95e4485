// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// resolvFolder is where `ip netns exec` looks for files that stand in place of those in /etc.
const resolvFolder = "/etc/netns"

// resolvMark is the first line of a file of ours, which tells it from what was there before, also
// after a crash.
const resolvMark = "# Written by isthmus sgsn.\n"

// resolvConf is the file of a namespace's name servers. What stands in its place before, be it a
// link, is kept beside it, so that whoever takes the namespace after a crash can put it back.
type resolvConf struct {
	path, before string
	lock         *os.File // the folder: there is one owner, of this program or another
	folder       bool     // it was made for the file
	written      bool
}

// openResolvConf takes the file of a namespace, in a folder of its own, until it is restored.
func openResolvConf(folder string) (_ *resolvConf, err error) {
	r := &resolvConf{path: filepath.Join(folder, "resolv.conf"), before: filepath.Join(folder, "resolv.conf.before-isthmus")}
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		r.folder = true
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if r.lock, err = os.Open(folder); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(r.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = r.lock.Close()
		return nil, fmt.Errorf("the name servers in %s are another terminal's: %w", folder, err)
	}
	return r, nil
}

// write names the servers and the search list in the file, which is replaced: what is there may
// be a link to the host's own.
func (r *resolvConf) write(servers []netip.Addr, search []string) error {
	if len(servers) == 0 && len(search) == 0 && !r.written {
		return nil
	}
	if err := r.keep(); err != nil {
		return err
	}
	text := []byte(resolvMark)
	for _, s := range servers {
		text = fmt.Appendf(text, "nameserver %s\n", s)
	}
	if len(search) > 0 {
		text = fmt.Appendf(text, "search %s\n", strings.Join(search, " "))
	}
	file, err := os.CreateTemp(filepath.Dir(r.path), ".resolv.conf-*")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), r.path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	r.written = true
	return nil
}

// keep puts what is not ours beside the file. What is there already is of one who was killed.
func (r *resolvConf) keep() error {
	if _, err := os.Lstat(r.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if ours, err := r.ours(); ours || err != nil {
		return err
	}
	if err := os.Remove(r.before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(r.path, r.before) // of a symbolic link itself
}

// ours reports whether the file is one that we have written.
func (r *resolvConf) ours() (bool, error) {
	if info, err := os.Lstat(r.path); err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	text, err := os.ReadFile(r.path)
	return bytes.HasPrefix(text, []byte(resolvMark)), err
}

// restore puts back what there was, and lets go of the namespace. A file that somebody has written
// meanwhile stays.
func (r *resolvConf) restore() (err error) {
	if ours, _ := r.ours(); ours {
		if err = os.Rename(r.before, r.path); errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(r.path)
		}
	}
	if r.folder {
		_ = os.Remove(filepath.Dir(r.path)) // unless somebody else has put something there
	}
	return errors.Join(err, r.lock.Close())
}
