// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// Bounds of a list.
const (
	maxListed = 10_000 // files
	maxDepth  = 16     // folders within each other
	listLife  = time.Second
)

// catalog is what there is to send: the files of a folder, which nothing leads out of, and synthetic sources.
type catalog struct {
	root     *os.Root // nil: none
	sources  []Source
	size     int // octets of a message
	maxOctet int64
	users    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	listed time.Time
	list   []transfer.Entry
}

func openCatalog(s *Settings) (*catalog, error) {
	c := &catalog{sources: s.Sources, size: s.MessageSize, maxOctet: int64(s.MaxFileSize)}
	if s.Root == "" {
		return c, nil
	}
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return nil, fmt.Errorf("root cannot be opened: %w", err)
	}
	c.root = root
	return c, nil
}

// media is a source that was opened.
type media struct {
	io.ReaderAt
	io.Closer
	octets     uint64
	rate, size int
}

// open opens a source.
func (c *catalog) open(name string) (*media, transfer.Status) {
	if at := slices.IndexFunc(c.sources, func(s Source) bool { return s.Name == name }); at >= 0 {
		s := c.sources[at]
		return &media{synthetic{}, io.NopCloser(nil), uint64(s.Octets), s.Rate, s.Size}, transfer.OK
	}
	if c.root == nil {
		return nil, transfer.NotFound
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe without a writer is not waited for
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, transfer.Failed
		}
		return nil, transfer.NotFound // so is what leads elsewhere
	}
	info, err := f.Stat()
	switch {
	case err != nil, !info.Mode().IsRegular():
		_ = f.Close()
		return nil, transfer.NotFound
	case c.maxOctet > 0 && info.Size() > c.maxOctet:
		_ = f.Close()
		return nil, transfer.TooLarge
	}
	return &media{f, f, uint64(info.Size()), 0, c.size}, transfer.OK
}

// entries lists what comes behind a name. The folder is read again when what was read of it is a second old.
func (c *catalog) entries(after string, now time.Time) (list []transfer.Entry, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed.IsZero() || now.Sub(c.listed) > listLife {
		c.list, c.listed = c.read(), now
	}
	from, found := slices.BinarySearchFunc(c.list, after, func(e transfer.Entry, name string) int { return strings.Compare(e.Name, name) })
	if found {
		from++
	}
	end := min(from+transfer.MaxEntries, len(c.list))
	for size := 0; from < end; from++ {
		if size += 13 + len(c.list[from].Name); size > transfer.MaxControl-16 {
			break
		}
		list = append(list, c.list[from])
	}
	return list, from < len(c.list)
}

// read lists all, in the order of their names.
func (c *catalog) read() (list []transfer.Entry) {
	for _, s := range c.sources {
		list = append(list, transfer.Entry{Name: s.Name, Octets: uint64(s.Octets), Rate: uint32(s.Rate)})
	}
	if c.root != nil {
		_ = fs.WalkDir(c.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
			switch {
			case path == ".":
				return nil
			case err != nil, transfer.CheckName(path) != nil, d.IsDir() && strings.Count(path, "/") >= maxDepth:
				return skip(d)
			case d.IsDir():
				return nil
			case len(list) >= maxListed:
				return fs.SkipAll
			}
			info, err := c.root.Stat(path)
			if err != nil || !info.Mode().IsRegular() || c.maxOctet > 0 && info.Size() > c.maxOctet ||
				slices.ContainsFunc(c.sources, func(s Source) bool { return s.Name == path }) {
				return nil
			}
			list = append(list, transfer.Entry{Name: path, Octets: uint64(info.Size())})
			return nil
		})
	}
	slices.SortFunc(list, func(a, b transfer.Entry) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func skip(d fs.DirEntry) error {
	if d != nil && d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// close lets the folder go when those who use it are done; there are no new ones. Files that are being sent stay open.
func (c *catalog) close() {
	if c.root != nil {
		go func() {
			c.users.Wait()
			_ = c.root.Close()
		}()
	}
}

// synthetic is a source without end, the same for everybody.
type synthetic struct{}

// noise is what it repeats, of a length that has no common measure with those of messages.
var noise = sync.OnceValue(func() (b []byte) {
	for n := byte(0); len(b) < 1<<12-31; n++ {
		sum := sha256.Sum256([]byte{n})
		b = append(b, sum[:]...)
	}
	return b[:1<<12-31]
})

// ReadAt implements [io.ReaderAt].
func (synthetic) ReadAt(b []byte, at int64) (n int, err error) {
	all := noise()
	for n < len(b) {
		n += copy(b[n:], all[(at+int64(n))%int64(len(all)):])
	}
	return n, nil
}
