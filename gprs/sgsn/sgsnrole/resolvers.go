// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// resolvFolder is where `ip netns exec` looks for files that stand in place of those in /etc.
const resolvFolder = "/etc/netns"

// resolvConf is the file of a namespace's name servers.
type resolvConf struct {
	path    string
	before  []byte // nil: there was no file
	folder  bool   // it was made for the file
	written bool
}

func newResolvConf(netns string) *resolvConf {
	return &resolvConf{path: filepath.Join(resolvFolder, netns, "resolv.conf")}
}

// write names the servers in the file.
func (r *resolvConf) write(servers []netip.Addr) error {
	if len(servers) == 0 && !r.written {
		return nil
	}
	if !r.written {
		if err := r.keep(); err != nil {
			return err
		}
	}
	var text strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", s)
	}
	r.written = true
	return os.WriteFile(r.path, []byte(text.String()), 0o644)
}

// keep notes what there is, and makes the folder.
func (r *resolvConf) keep() (err error) {
	folder := filepath.Dir(r.path)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		r.folder = true
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if r.before, err = os.ReadFile(r.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// restore puts back what there was.
func (r *resolvConf) restore() error {
	switch {
	case !r.written:
		return nil
	case r.before != nil:
		return os.WriteFile(r.path, r.before, 0o644)
	case r.folder:
		return errors.Join(os.Remove(r.path), os.Remove(filepath.Dir(r.path)))
	}
	return os.Remove(r.path)
}
