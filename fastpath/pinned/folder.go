// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Layout of what is pinned: <root>/isthmus/<instance>@<namespace>/<map>, notes as
// symbolic links beside the maps, and links/<place>_<interface index>.
const (
	pinsFolder  = "isthmus"
	linksFolder = "links"
	pinsMode    = 0o700
)

// freshNote ends the name of a note that is about to replace another.
const freshNote = "~"

// Folder is an instance's folder in a BPF file system, where maps and links outlive
// the process. One process at a time holds it. The folder carries the cookie of
// the network namespace in its name, since the same instance may run in several.
type Folder struct {
	dir  string
	lock *os.File // the folder itself
}

// Open opens the folder of an instance, in the BPF file system where it has left
// one, or makes it in that which [FindRoot] returns. It fails with [ErrHeld] if
// another process holds it.
func Open(instance string) (*Folder, error) {
	for {
		root, err := rootOf(instance)
		if err != nil {
			return nil, err
		}
		p, err := OpenAt(root, instance)
		if !errors.Is(err, errNotBPFFS) { // or else its last user has unmounted it since
			return p, err
		}
	}
}

var errNotBPFFS = errors.New("is not a BPF file system")

// OpenAt is Open in a BPF file system that is mounted at root.
func OpenAt(root, instance string) (*Folder, error) {
	gone := fmt.Errorf("%s %w: mount one with: mount -t bpf bpf %s", root, errNotBPFFS, root)
	if !isBPFFS(root) {
		return nil, gone
	}
	name, err := folderName(instance)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(root, pinsFolder)
	sweep(base)
	dir := filepath.Join(base, name)
	lock, err := openLocked(dir)
	if err != nil {
		return nil, err
	}
	p := &Folder{dir: dir, lock: lock}
	if !onBPFFS(lock) { // which from now on no one can unmount
		p.Close()
		_, _ = os.Remove(dir), os.Remove(base)
		return nil, gone
	}
	if err := os.MkdirAll(p.LinksDir(), pinsMode); err != nil {
		p.Close()
		return nil, fmt.Errorf("cannot make a folder for what is kept across a restart: %w", err)
	}
	return p, nil
}

// rootOf is where an instance has left its folder, though another file system may
// have been mounted since that would be preferred, or else what [FindRoot] returns.
func rootOf(instance string) (string, error) {
	for _, left := range Peek(instance) {
		if isBPFFS(left.dir) && writable(left.dir) == nil {
			return filepath.Dir(filepath.Dir(left.dir)), nil
		}
	}
	return FindRoot()
}

// folderName makes a name that the file system takes: it reserves dots.
func folderName(instance string) (string, error) {
	if instance == "" || strings.ContainsAny(instance, "/.@") {
		return "", fmt.Errorf("%q cannot name a folder of a BPF file system: leave out dots, slashes and at signs", instance)
	}
	cookie, err := NamespaceCookie()
	if errors.Is(err, unix.ENOPROTOOPT) {
		return instance, nil // before Linux 5.14
	}
	if err != nil {
		return "", fmt.Errorf("cannot tell the network namespace: %w", err)
	}
	return fmt.Sprintf("%s@%d", instance, cookie), nil
}

// NamespaceCookie returns the number of the calling thread's network namespace,
// which no later namespace gets until the machine starts again.
func NamespaceCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// Peek returns the folders in which an instance may have left something in this network
// namespace, to be read alone.
func Peek(instance string) (list []*Folder) {
	name, err := folderName(instance)
	if err != nil {
		return nil
	}
	for _, root := range []string{systemRoot, ownRoot} {
		list = append(list, &Folder{dir: filepath.Join(root, pinsFolder, name)})
	}
	return list
}

// Dir returns the folder.
func (p *Folder) Dir() string { return p.dir }

// Path returns where a map of this name is pinned. A name has no dot.
func (p *Folder) Path(name string) string { return filepath.Join(p.dir, name) }

// Note returns a short text that was left in the folder, empty if there is none.
func (p *Folder) Note(name string) string {
	text, err := os.Readlink(p.Path(name))
	if err != nil {
		return ""
	}
	return text
}

// SetNote leaves a short text in the folder for a successor, such as the version
// of a layout; empty: none. A BPF file system holds no plain files, so notes are
// symbolic links that lead nowhere. Whoever is killed meanwhile leaves the note of
// before or the new one.
func (p *Folder) SetNote(name, text string) error {
	path := p.Path(name)
	if p.Note(name) == text {
		return nil
	}
	if text == "" {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("cannot remove the note %s: %w", path, err)
		}
		return nil
	}
	fresh := path + freshNote
	_ = os.Remove(fresh) // of one who was killed here
	if err := os.Symlink(text, fresh); err != nil {
		return fmt.Errorf("cannot leave the note %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("cannot replace the note %s: %w", path, err)
	}
	return nil
}

// Names lists the maps and notes in the folder.
func (p *Folder) Names() ([]string, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", p.dir, err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasSuffix(e.Name(), freshNote) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Clear unpins everything in the folder: maps that no one uses vanish, and links
// that no one holds are detached. So are filters, if the calling thread is in the
// namespace of the folder. The folder stays, and is held.
func (p *Folder) Clear() error {
	return errors.Join(p.detachFilters(), removeContents(p.LinksDir()), removeFiles(p.dir))
}

// Remove is Clear, and gives up the folder.
func (p *Folder) Remove() error {
	err := errors.Join(p.detachFilters(), removeTree(p.dir), p.lock.Close())
	removeUnused(p.dir)
	return err
}

// detachFilters removes the filters that are noted in the folder. Unlike links
// they do not end with their pins.
func (p *Folder) detachFilters() error {
	instance, _, _ := strings.Cut(filepath.Base(p.dir), "@")
	if here, err := folderName(instance); err != nil || here != filepath.Base(p.dir) {
		return nil // they are in another namespace, where their programs pass everything before long
	}
	var errs []error
	for _, h := range p.Filters() {
		errs = append(errs, h.Detach())
	}
	return errors.Join(errs...)
}

// Touch notes in the time of the folder that it is held. What another namespace keeps is taken for
// abandoned by that, so a holder that may be killed calls it now and then.
func (p *Folder) Touch() {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, p.dir, []unix.Timespec{now, now}, 0)
}

// Close gives up the folder and leaves what is in it for a successor.
func (p *Folder) Close() error {
	p.Touch()
	return p.lock.Close()
}

// removeTree removes a folder of pins. The order matters to no one: a link keeps
// its program, and the program its maps.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot remove what is pinned in %s: %w", dir, err)
	}
	return nil
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", dir, err)
	}
	for _, e := range entries {
		if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeFiles removes everything in a folder but its folders.
func removeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("cannot unpin: %w", err)
		}
	}
	return nil
}
