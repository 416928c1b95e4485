// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Kinds of files in an archive, as in the mode of stat.
const (
	modeFolder  = 0o040000
	modeFile    = 0o100000
	modeLink    = 0o120000
	modeConsole = 0o020000 // a character device
)

// archive writes what the kernel unpacks as its first file system: a cpio
// archive of the "newc" format, headers of hexadecimal text, all on boundaries
// of four bytes (Documentation/driver-api/early-userspace/buffer-format.rst).
// Its first error stays.
type archive struct {
	w       *bufio.Writer
	err     error
	inode   int
	folders map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), folders: map[string]bool{".": true, "/": true}}
}

// header writes what stands before the content of an entry.
func (a *archive) header(name string, mode, size, major, minor int) {
	a.inode++
	name = strings.TrimPrefix(name, "/")
	a.print("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	a.pad(110 + len(name) + 1)
}

func (a *archive) print(format string, args ...any) {
	if a.err == nil {
		_, a.err = fmt.Fprintf(a.w, format, args...)
	}
}

// pad fills up to a boundary behind n bytes.
func (a *archive) pad(n int) { a.print("%s", "\x00\x00\x00"[:(4-n%4)%4]) }

// folder adds a folder and those above it.
func (a *archive) folder(name string) {
	name = path.Clean(name)
	if a.folders[name] {
		return
	}
	a.folder(path.Dir(name))
	a.folders[name] = true
	a.header(name, modeFolder|0o755, 0, 0, 0)
}

// text adds a file with that content.
func (a *archive) text(name string, permissions int, content []byte) {
	a.folder(path.Dir(name))
	a.header(name, modeFile|permissions, len(content), 0, 0)
	if a.err == nil {
		_, a.err = a.w.Write(content)
	}
	a.pad(len(content))
}

// link adds a symbolic link.
func (a *archive) link(name, to string) {
	a.folder(path.Dir(name))
	a.header(name, modeLink|0o777, len(to), 0, 0)
	a.print("%s", to)
	a.pad(len(to))
}

// console adds the device on which init finds its standard streams.
func (a *archive) console() {
	a.folder("/dev")
	a.header("/dev/console", modeConsole|0o600, 0, 5, 1)
}

// file adds a copy of a file of this machine.
func (a *archive) file(name, from string) {
	if a.err != nil {
		return
	}
	info, err := os.Stat(from)
	if err != nil {
		a.err = err
		return
	}
	content, err := os.ReadFile(from)
	if err != nil {
		a.err = err
		return
	}
	a.text(name, int(info.Mode().Perm()), content)
}

// tree adds a folder of this machine with all below it; nothing if it does not
// exist.
func (a *archive) tree(name, from string) {
	if _, err := os.Stat(from); os.IsNotExist(err) || a.err != nil {
		return
	}
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(from, file) // both begin with from
		if entry.Type().IsRegular() {
			a.file(path.Join(name, filepath.ToSlash(below)), file)
		}
		return a.err
	})
	if a.err == nil {
		a.err = err
	}
}

// close ends the archive.
func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0, 0, 0)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}
